"""Layers made of any convolution that can be called as PyG's are on a bipartite block."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lmc.data.batch import Batch, Edges
from lmc.nn.model import Layer
from lmc.nn.module_context import running_on
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows

if TYPE_CHECKING:
    from lmc.data.graph import Graph


CONVOLUTION = 1 << 20
"""Its place in the address of a layer's randomness, after all parts of the message."""


class ConvolutionLayer(Layer):
    """zˡ = conv((messages of the sources, own messages), edges).

    Args:
        conv: the convolution; edge weights and features are given to it where it takes them.
        message: what comes before it, node by node.
    """

    def __init__(self, conv: nn.Module, message: NodeWise) -> None:
        super().__init__()
        self.message = message
        self.conv = conv
        takes = signature(conv.forward).parameters
        self._takes_weight = "edge_weight" in takes
        self._needs_weight = self._takes_weight and takes["edge_weight"].default is Parameter.empty
        # Where a convolution says how wide they are, and says None, it does not want them.
        self.takes_attr = "edge_attr" in takes and getattr(conv, "edge_dim", "any") is not None

    def prepare(self, batch: Batch, halo: bool) -> None:
        """Build the lists of messages."""
        _ = batch.edges
        if halo:
            _ = batch.halo_edges

    def receive(self, edges: Edges, own: Tensor, others: Tensor, rows: Rows) -> Tensor:
        """(targets, out) what the targets make of their messages.

        Args:
            edges: sources are the targets themselves, in their order, and then the others.
            own: (targets, in) messages of the targets.
            others: (others, in) messages of the others.
            rows: the targets.
        """
        given: dict[str, Tensor] = {}
        if self._needs_weight and edges.weight is None:
            given["edge_weight"] = own.new_ones(edges.ends.shape[1])
        elif self._takes_weight and edges.weight is not None:
            given["edge_weight"] = edges.weight
        if self.takes_attr and edges.attr is not None:
            given["edge_attr"] = edges.attr
        with running_on(self.conv, rows.within(CONVOLUTION)):
            return self.call(torch.cat([own, others]), own, edges.ends, given)

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) of the convolution itself."""
        received: Tensor = self.conv((sources, targets), index, **given)
        return received

    def of_rows(self, graph: Graph, part: slice, message: Tensor, initial: Tensor, rows: Rows) -> Tensor:
        """(part, out) the boundary after the layer, of consecutive nodes; differentiable."""
        batch = Batch.of_known(graph, torch.arange(graph.num_nodes)[part], 1.0)
        return self.receive(batch.edges, message[part], message[batch.halo], rows)

    def of_one(self, graph: Graph, message: Tensor, initial: Tensor) -> Tensor:
        """(1, out) of a node that is its only neighbour."""
        attr = None if graph.edge_attr is None else message.new_ones(1, graph.edge_attr.shape[1])
        edges = Edges(torch.zeros(2, 1, dtype=torch.long), None, attr)
        rows = Rows(torch.zeros(1, dtype=torch.long), (0,), inside=False)
        return self.receive(edges, message, message[:0], rows)


class PNALayer(ConvolutionLayer):
    """PyG's PNAConv in a bipartite form, which PyG does not give it."""

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) as `PNAConv.forward` computes it, sources and targets apart."""
        conv: Any = self.conv
        x = self._towers(sources), self._towers(targets)
        given.setdefault("edge_attr", None)
        received = conv.propagate(index, x=x, size=(len(sources), len(targets)), **given)
        both = torch.cat([x[1], received], dim=-1)
        outs = [post(both[:, tower]) for tower, post in enumerate(conv.post_nns)]
        z: Tensor = conv.lin(torch.cat(outs, dim=1))
        return z

    def _towers(self, x: Tensor) -> Tensor:
        conv: Any = self.conv
        if conv.divide_input:
            return x.view(-1, conv.towers, conv.F_in)
        return x.view(-1, 1, conv.F_in).repeat(1, conv.towers, 1)
