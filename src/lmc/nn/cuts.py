"""Whether a node has the same row in two batches of a real graph: a last check of what was only tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.errors import ArgumentError
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.inference import evaluating
from lmc.nn.locality import called, differ, without_chance
from lmc.nn.module_context import training_mode
from lmc.nn.rows import Rows
from lmc.sparse import CSR

if TYPE_CHECKING:
    from lmc.data.graph import Graph
    from lmc.nn.gnn import GNN

MOST, FEW = 64, 4
"""Nodes of the larger batch, and those of them that are the smaller one."""
USUAL_DEGREE = 64
"""Nodes with more neighbours are not taken if there are others: hubs would make the check expensive."""


def check_cuts(model: GNN, graph: Graph) -> None:
    """Raise ArgumentError for the first module that gives a node another row in another batch.

    Both modes are checked, on the values of real nodes; those of later layers need not be exact for that.
    """
    if any(isinstance(layer, ConvolutionLayer) for layer in model.layers):
        large = Batch.of_known(graph, _some_nodes(graph.neighbours), 1.0)
        small = Batch.of_known(graph, large.nodes[-FEW:].flip(0), 1.0)
    else:  # nothing reads who is whose neighbour
        nodes = _some_nodes(graph.adjacency)
        large, small = (Batch(graph, some, nodes[:0], 1.0) for some in (nodes, nodes[-FEW:].flip(0)))
    for mode, suffix in ((evaluating, ""), (training_mode, ", in training mode")):
        with mode(model), without_chance():
            _Compared(model, large, small, suffix).run()


def _some_nodes(adjacency: CSR) -> Tensor:
    """(nodes,) evenly spread over the graph."""
    degree = adjacency.row_lengths()
    usual = (degree <= max(USUAL_DEGREE, int(degree.min()))).nonzero()[:, 0]
    return usual[:: max(1, len(usual) // MOST)][:MOST]


class _Compared:
    """A model on two batches, the smaller of which is part of the larger one."""

    def __init__(self, model: GNN, large: Batch, small: Batch, suffix: str) -> None:
        self.model, self.large, self.small, self.suffix = model, large, small, suffix
        place = torch.empty(large.graph.num_nodes, dtype=torch.long)
        place[large.members] = torch.arange(len(large.members))
        self.among = place[small.members]  # where the rows of the smaller one are

    def run(self) -> None:
        """Raise ArgumentError for the first module that gives other rows."""
        model, large, count = self.model, self.large, self.large.num_nodes
        z = self._row_by_row("encoder", model.encoder, large.graph.x[large.members])
        initial, seen, place = model.initial(z), list[Tensor](), -1
        layer: Any
        for layer in model.layers:
            place += layer.opens  # of the convolution
            message = self._row_by_row(f"layers[{place}], before the convolution", layer.message, z)
            read = layer.what_it_reads(seen, initial)
            seen.append(message)
            if isinstance(layer, ConvolutionLayer):
                received = self._received(f"layers[{place}] ({type(layer.conv).__name__})", layer, message)
                # Any values do for rows outside.
                z = layer.update(received[torch.arange(len(message)) % count], initial)
            else:
                z = called(f"layers[{place}]", layer, layer.update, message, message, read)
        by_head = [*(seen[place - 1] for place in model.jumped_to), z]
        widths = [each.shape[1] for each in by_head]
        self._row_by_row(
            "head", lambda z, rows: model.read(torch.split(z, widths, 1), rows), torch.cat(by_head, 1)
        )

    def _row_by_row(self, title: str, function: Callable[[Tensor, Rows], Tensor], z: Tensor) -> Tensor:
        """(members, out) of the larger batch."""
        found = []
        for given, nodes in ((z, self.large.members), (z[self.among], self.small.members)):
            found.append(called(title, self.model, function, given, _rows(nodes)))
        self._compare(title, found[0][self.among], found[1])
        return found[0]

    def _received(self, title: str, layer: ConvolutionLayer, message: Tensor) -> Tensor:
        """(batch, out) of the larger batch."""
        found = []
        for batch, sent in ((self.large, message), (self.small, message[self.among])):
            own, others = sent[: batch.num_nodes], sent[batch.num_nodes :]
            rows = _rows(batch.nodes)
            found.append(called(title, layer, layer.receive, layer.edges(batch), own, others, rows))
        self._compare(title, found[0][self.among[: self.small.num_nodes]], found[1])
        return found[0]

    def _compare(self, title: str, in_large: Tensor, in_small: Tensor) -> None:
        if differ(in_large, in_small):
            sizes = f"a batch of {self.small.num_nodes} nodes and in one of {self.large.num_nodes}"
            raise ArgumentError(f"{title}: gives a node other rows in {sizes}: it mixes nodes{self.suffix}")


def _rows(nodes: Tensor) -> Rows:
    return Rows(nodes, (0,), inside=False)
