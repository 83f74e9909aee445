"""Convolutions of typed edges: RGCNConv with a linear aggregation, cut where it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmc.errors import ArgumentError
from lmc.nn.model import LinearLayer
from lmc.nn.node_wise import NodeWise

if TYPE_CHECKING:
    from lmc.data.graph import Graph


class RGCNConvLayer(LinearLayer):
    """z = A₁ h W₁ + A₂ h W₂ + .. + h U + b, with Aₜ the mean or the sum over edges of type t.

    RGCNConv and FastRGCNConv alike. The Aₜ are one stacked matrix, so that what is received is Aₜ h for every
    type, side by side; edge weights are not read.
    """

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__()
        self.message, self.conv = message, conv
        self.aggregation = "typed mean" if conv.aggr == "mean" else "typed sum"

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, types * in) and (rows, in) to (rows, out)."""
        conv, weight = self.conv, self._weight()
        received = _by_type(aggregated, *weight.shape[1:3])
        z = torch.einsum("ntbi,tbio->nbo", received, weight[: received.shape[1]]).flatten(1)
        z = z if conv.root is None else z + own @ conv.root
        return z if conv.bias is None else z + conv.bias

    def returned(self, arriving: Tensor, by_update: Callable[[Tensor], Tensor]) -> Tensor:
        """(rows, in) of (rows, types * out), what comes back by each type: each by its own weight."""
        weight = self._weight().detach()
        of_type = _by_type(arriving, weight.shape[1], weight.shape[3])
        return torch.einsum("ntbo,tbio->nbi", of_type, weight[: of_type.shape[1]]).flatten(1)

    def _weight(self) -> Tensor:
        """(relations, blocks, in / blocks, out / blocks) of which a relation's matrix is made."""
        conv = self.conv
        weight: Tensor = conv.weight
        if conv.num_blocks is not None:
            return weight
        if conv.num_bases is not None:
            weight = torch.tensordot(conv.comp, weight, dims=1)
        return weight[:, None]

    def of_one(self, graph: Graph, message: Tensor, initial: Tensor) -> Tensor:
        """(1, out) of a node that is its only neighbour, by every type."""
        check_types(self.conv, graph)
        return self.update(message.repeat(1, graph.num_edge_types), message, initial)


def _by_type(rows: Tensor, blocks: int, width: int) -> Tensor:
    """(rows, types, blocks, width) of what stands side by side."""
    return rows.view(len(rows), rows.shape[1] // (blocks * width), blocks, width)


def check_types(conv: Any, graph: Graph) -> None:
    """Raise GraphError where edges have no type, ArgumentError where they have more than the convolution."""
    relations = conv.num_relations
    if graph.num_edge_types > relations:
        found = f"edge_type of the graph goes up to {graph.num_edge_types - 1}"
        raise ArgumentError(f"{type(conv).__name__}: has num_relations={relations}; {found}")
