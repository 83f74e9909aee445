"""A batch on a device: copies of its blocks, labels and masks, where a step computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from lmc.data.batch import Batch, Edges, InducedBatch, ListEdges, Part, Telling
from lmc.data.normalization import Norm
from lmc.data.sampled import SampledBlock
from lmc.device import Copies
from lmc.sparse import CSR

Block = TypeVar("Block", bound=Batch)


@dataclass(frozen=True, eq=False)
class PlacedBatch(Batch):
    """A batch as a step on a device reads it; its ids stay on the host, where all of it is built.

    Attributes:
        on_host: the batch.
        copies: of what it has, on the device; they live as long as the batch does.
        whole: of matrices with a row for each node of the graph; None where there is no room for them.
        ahead: whether it is not read yet, but prepared.
    """

    on_host: Batch = field(kw_only=True)
    copies: Copies = field(kw_only=True)
    whole: Copies | None = field(kw_only=True)
    ahead: bool = field(kw_only=True)

    @property
    def host(self) -> Batch:
        """The batch on the host."""
        return self.on_host

    @cached_property
    def members(self) -> Tensor:
        """(batch + halo,) the graph's id of every local row."""
        return self.host.members

    def ids(self, part: Part) -> Tensor:
        """(rows,) the graph's ids of some local rows, on the device."""
        return self.copies.get(part, lambda: self.host.ids(part), ahead=self.ahead)

    def rows_of(self, source: Tensor, part: Part) -> Tensor:
        """(rows, width) of (graph's nodes, width), taken on the device, or on the host and then copied."""
        if self.whole is not None:
            return self.whole.get(source, lambda: source).index_select(0, self.ids(part))
        return self.copies.get((source, part), lambda: self.host.rows_of(source, part), ahead=self.ahead)

    def listed(self, by: ListEdges) -> Edges:
        """The messages that a convolution wants of the batch."""
        return self.copies.get(by, lambda: by(self.host), ahead=self.ahead)

    def _copy(self, block: CSR) -> CSR:
        return self.copies.get(block, lambda: block, ahead=self.ahead)

    def block(self, norm: Norm = "gcn") -> CSR:
        """(batch, batch + halo): what the batch receives."""
        return self._copy(self.host.block(norm))

    def halo_block(self, norm: Norm = "gcn") -> CSR:
        """(halo, batch + halo): what the halo receives from within reach."""
        return self._copy(self.host.halo_block(norm))

    def transposed_block(self, norm: Norm = "gcn") -> CSR:
        """The way back of derivatives; the same object if symmetric."""
        return self._copy(self.host.transposed_block(norm))

    def transposed_halo_block(self, norm: Norm = "gcn") -> CSR:
        """`halo_block` of the transposed adjacency; the same object if symmetric."""
        return self._copy(self.host.transposed_halo_block(norm))

    def telling_block(self, norm: Norm = "gcn") -> CSR:
        """(telling rows, batch + halo): what they receive from the batch alone."""
        return self._copy(self.host.telling_block(norm))

    def transposed_telling_block(self, norm: Norm = "gcn") -> CSR:
        """`telling_block` of the transposed adjacency; the same object if symmetric."""
        return self._copy(self.host.transposed_telling_block(norm))

    @cached_property
    def y(self) -> Tensor:
        """(batch + halo, ...) labels."""
        return self.copies.get("y", lambda: self.host.y, ahead=self.ahead)

    @cached_property
    def train_mask(self) -> Tensor:
        """(batch + halo,) bool: which labels are learned from."""
        return self.copies.get("train_mask", lambda: self.host.train_mask, ahead=self.ahead)

    @cached_property
    def local_share(self) -> Tensor:
        """(halo,) x: the share of a halo node's neighbours that are in the batch or the halo."""
        return self.copies.get("local_share", lambda: self.host.local_share, ahead=self.ahead)

    @cached_property
    def telling(self) -> Telling:
        """A sample of the batch rows with neighbours outside."""
        return self.copies.get("telling", lambda: self.host.telling, ahead=self.ahead)


class PlacedInducedBatch(PlacedBatch, InducedBatch):
    """The subgraph that a batch induces, on a device."""


@dataclass(frozen=True, eq=False)
class PlacedBlock(PlacedBatch, SampledBlock):
    """Messages that were drawn, on a device."""

    def received(self, norm: Norm, message: Tensor) -> Tensor:
        """(nodes, width) sums of what was drawn, of (members, width) messages; differentiable."""
        assert isinstance(self.host, SampledBlock)
        return self.host.received_at(self, norm, message)


def placed(batch: Block, device: torch.device, whole: Copies | None, *, ahead: bool = False) -> Block:
    """The batch as a step on a device reads it; see `PlacedBatch`."""
    copies = batch._copies.setdefault(device, Copies(device))
    weights = copies.get("weights", lambda: batch.weights, ahead=ahead)
    ids = batch.graph, batch.nodes, batch.halo, batch.scale, weights, batch.shard
    own: dict[str, Any] = {"on_host": batch, "copies": copies, "whole": whole, "ahead": ahead}
    found: Any
    if isinstance(batch, SampledBlock):
        found = PlacedBlock(*ids, heard=batch.heard, places=batch.places, **own)
    else:
        found = (PlacedInducedBatch if isinstance(batch, InducedBatch) else PlacedBatch)(*ids, **own)
    placed: Block = found
    return placed
