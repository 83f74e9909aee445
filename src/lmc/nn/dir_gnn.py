"""PyG's DirGNNConv: a convolution along the edges, and one against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lmc.data.batch import Batch, Edges
from lmc.data.directions import both_directions
from lmc.data.graph import Graph
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows


@dataclass(frozen=True, kw_only=True)
class EdgesBothWays(Edges):
    """What rows receive along the edges, and `against` them."""

    against: Edges
    along: Edges

    def sent_from(self, first: int) -> Edges:
        """Those whose source has this number or a larger one."""
        return _both_ways(self.along.sent_from(first), self.against.sent_from(first))

    def within(self, count: int, targets: Tensor) -> Edges:
        """Those from one of the first `count` rows to a row where `targets` (rows,) is True."""
        return _both_ways(self.along.within(count, targets), self.against.within(count, targets))


class DirGNNLayer(ConvolutionLayer):
    """z = (1 - alpha) conv_in(h, edges) + alpha conv_out(h, reversed edges) + h W + b.

    As PyG's, it reads neither weights nor features of edges. A batch's halo has the neighbours of both
    directions.

    Args:
        conv: the DirGNNConv.
        message: what comes before it, node by node.
        along: the layer of its `conv_in`.
        against: the layer of its `conv_out`.
    """

    both_ways = True

    def __init__(
        self, conv: Any, message: NodeWise, along: ConvolutionLayer, against: ConvolutionLayer
    ) -> None:
        super().__init__(conv, message)
        self.along, self.against = along, against

    def called(self) -> list[nn.Module]:
        """Its own linear map; those of its convolutions are said by their layers."""
        return [self.conv.lin] if self.conv.root_weight else []  # type: ignore[list-item]

    def prepare_graph(self, graph: Graph) -> None:
        """Find the edges of both directions, and what each convolution reads of them."""
        plain, reverse = both_directions(graph)
        self.along.prepare_graph(plain)
        self.against.prepare_graph(reverse)

    def edges(self, batch: Batch) -> Edges:
        """What the batch receives, both ways."""
        plain, reverse = both_directions(batch.graph)
        return _both_ways(self.along.edges(batch.on(plain)), self.against.edges(batch.on(reverse)))

    def halo_edges(self, batch: Batch) -> Edges:
        """What the halo receives from within reach, both ways."""
        plain, reverse = both_directions(batch.graph)
        return _both_ways(self.along.halo_edges(batch.on(plain)), self.against.halo_edges(batch.on(reverse)))

    def receive(self, edges: Edges, own: Tensor, others: Tensor, rows: Rows) -> Tensor:
        """(targets, out) what the targets make of their messages.

        Edges without a second direction, as in a trial, are taken for both.
        """
        conv: Any = self.conv
        ways = (edges.along, edges.against) if isinstance(edges, EdgesBothWays) else (edges, edges)
        along = self.along.receive(ways[0], own, others, rows.within(0))
        against = self.against.receive(ways[1], own, others, rows.within(1))
        z: Tensor = conv.alpha * against + (1 - conv.alpha) * along
        return z + conv.lin(own) if conv.root_weight else z


def _both_ways(along: Edges, against: Edges) -> EdgesBothWays:
    return EdgesBothWays(along.ends, along.weight, along.attr, along=along, against=against)
