"""Placement: of which type, and on which device, a step computes, and of which type it remembers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from lmc.data.batch import Batch, Part
from lmc.data.graph import Graph
from lmc.data.placed import Block, placed
from lmc.device import HOST, Copies
from lmc.kernels.plain import wide_type
from lmc.nn.module_context import computing_in
from lmc.precision import Precision, computed_type, remembered_type


def in_full(values: Tensor) -> Tensor:
    """The same values for what is not done in 16 bits, such as losses: float32, unless they are float64."""
    return values.to(wide_type(values))


class Placement(NamedTuple):
    """Where everything that a step takes from the graph or from histories ends up.

    Nothing else in a step names a type or a device.

    Attributes:
        dtype: of what is computed.
        device: where.
        remembered: the type of histories.
        whole: copies of features, and of sums of them, on the device; None where there is no room for them.
        remembers_here: whether there is room for histories on the device.

    >>> here = Placement.of(Graph([[0], [1]], torch.eye(2)), "half")
    >>> here.put(torch.eye(2).double()[1:]), here.remembered
    (tensor([[0., 1.]]), torch.float16)
    """

    dtype: torch.dtype
    device: torch.device
    remembered: torch.dtype
    whole: Copies | None
    remembers_here: bool

    @staticmethod
    def of(
        graph: Graph,
        precision: Precision,
        device: torch.device = HOST,
        room: int | None = None,
        remembered: int = 0,
    ) -> Placement:
        """On a device on which there is room for so many bytes, None for any.

        Histories, which have `remembered` bytes, come first; then the features, and their sums.
        """
        full = graph.x.dtype
        features = 2 * graph.x.numel() * graph.x.itemsize
        fits = room is None or remembered + features <= room
        return Placement(
            computed_type(precision, full),
            device,
            remembered_type(precision, full),
            Copies(device) if fits else None,
            room is None or remembered <= room,
        )

    def put(self, values: Tensor) -> Tensor:
        """The same values, here."""
        return values.to(self.device, self.dtype)

    def batch(self, batch: Block, *, ahead: bool = False) -> Block:
        """The batch with all that a step reads of it here; itself on the host.

        Args:
            batch: on the host, or here already.
            ahead: whether its step is yet to come.
        """
        if self.device == HOST or batch.host is not batch:
            return batch
        return placed(batch, self.device, self.whole, ahead=ahead)

    def fetch(self, batch: Batch, source: Tensor, part: Part) -> None:
        """Have rows of features, or what finds them, copied ahead of the step that takes them."""
        if self.whole is None:
            batch.rows_of(source, part)
        else:
            batch.ids(part)

    def computing(self) -> AbstractContextManager[None]:
        """In this context dense products are of this type."""
        return computing_in(self.dtype, self.device)
