"""PyG's PDNConv, whose messages are weighed by a function of their edges' features.

Its normalisation divides by learned degrees, of sources too: sums over all edges to a source, also from
beyond the halo. Features of edges do not change, so that these sums are exact in every batch, for the price
of the edges to the halo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lmc.data.batch import Batch, Edges
from lmc.errors import ArgumentError
from lmc.nn.convolution import CONVOLUTION, ConvolutionLayer
from lmc.nn.module_context import running_on
from lmc.nn.rows import Rows


@dataclass(frozen=True, kw_only=True)
class EdgesWithDegrees(Edges):
    """Messages, and what the degrees of all sources are made of.

    Attributes:
        receiver: (all,) the number of the source that each of these messages arrives at.
        arriving: (all, columns) features of their edges, or None.
        loop: (sources,) the weight of a self-loop that a source is given: zero or one.
    """

    receiver: Tensor
    arriving: Tensor | None
    loop: Tensor


class PDNLayer(ConvolutionLayer):
    """PDNConv in a bipartite form. Where degrees are not known, as in a trial, it does not normalise."""

    def edges(self, batch: Batch) -> Edges:
        """What the batch receives, with the degrees of batch and halo."""
        return self._with_degrees(batch.edges, batch, batch.members)

    def halo_edges(self, batch: Batch) -> Edges:
        """What the halo receives from within reach, with the degrees of halo and batch."""
        return self._with_degrees(batch.halo_edges, batch, torch.cat([batch.halo, batch.nodes]))

    def _with_degrees(self, edges: Edges, batch: Batch, sources: Tensor) -> Edges:
        if not self.conv.normalize:
            return edges
        every, attr = batch.arriving(sources), batch.graph.edge_attr
        loop = torch.zeros(len(sources), dtype=torch.bool)
        if self.conv.add_self_loops:
            every = every.keep(_last_of_loops(sources[every.row_ids()], every.indices))
            edges = edges.where(_last_of_loops(*edges.ends))
            receiver = every.row_ids()
            loop[:] = True
            loop[receiver[every.indices == sources[receiver]]] = False
        receiver, dtype = every.row_ids().long(), batch.graph.x.dtype
        arriving = None if attr is None else attr[every.values].to(dtype)
        degrees = {"receiver": receiver, "loop": loop.to(dtype)}
        return EdgesWithDegrees(edges.ends, None, edges.attr, **degrees, arriving=arriving)

    def receive(self, edges: Edges, own: Tensor, others: Tensor, rows: Rows) -> Tensor:
        """(targets, out) what the targets make of their messages."""
        if edges.attr is None and not self.conv.normalize:
            raise ArgumentError("PDNConv with normalize=False: needs features of edges, edge_attr")
        with running_on(self.conv, rows.within(CONVOLUTION)):
            weighed = self._weighed(edges, own)
            return self.call(torch.cat([own, others]), own, weighed.ends, {"edge_weight": weighed.weight})

    def _weighed(self, edges: Edges, own: Tensor) -> Edges:
        """The messages with their weights, self-loops included."""
        weight = self._weights(edges.attr, edges.ends.shape[1], own)
        if not isinstance(edges, EdgesWithDegrees):
            return replace(edges, weight=weight)
        received = self._weights(edges.arriving, len(edges.receiver), own)
        degree = edges.loop.index_add(0, edges.receiver, received)
        power = torch.where(degree > 0, degree, torch.inf).pow(-0.5)
        (looped,) = edges.loop[: len(own)].nonzero(as_tuple=True)
        source, target = ends = torch.cat([edges.ends, looped.expand(2, -1)], dim=1)
        weight = torch.cat([weight, edges.loop[looped]])
        return Edges(ends, power[source] * weight * power[target], None)

    def _weights(self, attr: Tensor | None, count: int, like: Tensor) -> Tensor:
        """(count,) the function of the features; one without features."""
        if attr is None:
            return like.new_ones(count)
        weights: Tensor = self.conv.mlp(attr).squeeze(-1)  # type: ignore[operator]
        return weights

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) as `PDNConv.forward` computes it, sources and targets apart."""
        conv: Any = self.conv
        x, size = (conv.lin(sources), None), (len(sources), len(targets))
        z: Tensor = conv.propagate(index, x=x, size=size, **given)
        return z if conv.bias is None else z + conv.bias


def _last_of_loops(source: Tensor, target: Tensor) -> Tensor:
    """(edges,) bool: all but the self-loops of a node that are followed by another one.

    >>> _last_of_loops(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1])).tolist()
    [False, True, True, True]
    """
    loop = torch.where(source == target, source, -1)
    kept = torch.ones(len(loop), dtype=torch.bool)
    kept[:-1] = (loop[:-1] < 0) | (loop[:-1] != loop[1:])
    return kept
