"""Layers made of any convolution that can be called as PyG's are on a bipartite block."""

from __future__ import annotations

from dataclasses import replace
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lmc.data.batch import Batch, Edges
from lmc.device import copied, on_host
from lmc.nn.model import Layer, LayerWidths
from lmc.nn.module_context import running_on
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows
from lmc.nn.typed_convolutions import check_types

if TYPE_CHECKING:
    from lmc.data.graph import Graph
    from lmc.data.sampled import SampledBlock


CONVOLUTION = 1 << 20
"""Its place in the address of a layer's randomness, after all parts of the message."""


class ConvolutionLayer(Layer):
    """zˡ = update(conv((messages of the sources, own messages), edges), initial).

    Args:
        conv: the convolution; edge weights, features and types are given to it where it takes them.
        message: what comes before it, node by node.
    """

    def __init__(self, conv: nn.Module, message: NodeWise) -> None:
        from torch_geometric.nn.aggr import QuantileAggregation

        super().__init__()
        self.message = message
        self.conv = conv
        self._reads_quantiles = any(isinstance(part, QuantileAggregation) for part in conv.modules())
        takes = signature(conv.forward).parameters
        self.takes_weight = "edge_weight" in takes
        self._needs_weight = self.takes_weight and takes["edge_weight"].default is Parameter.empty
        self.takes_type = "edge_type" in takes
        # Where a convolution says how wide they are, and says None, it does not want them.
        self.takes_attr = "edge_attr" in takes and getattr(conv, "edge_dim", "any") is not None

    def called(self) -> list[nn.Module]:
        """The convolution, or the parts of it that are called where `call` takes it apart."""
        is_whole = type(self).call is ConvolutionLayer.call
        return [self.conv] if is_whole else list(self.conv.children())

    def widths(self, graph: Graph, message: int, boundary: int) -> LayerWidths:
        """What is received is as wide as the boundary, and what comes back as the message."""
        return LayerWidths(message, boundary, boundary, message)

    def prepare(self, batch: Batch, halo: bool) -> None:
        """Build the lists of messages."""
        batch.listed(self.edges)
        if halo:
            batch.listed(self.halo_edges)

    def edges(self, batch: Batch) -> Edges:
        """What the batch receives, as the convolution wants it."""
        return batch.edges

    def halo_edges(self, batch: Batch) -> Edges:
        """What the halo receives from within reach, as the convolution wants it."""
        return batch.halo_edges

    def receive(self, edges: Edges, own: Tensor, others: Tensor, rows: Rows) -> Tensor:
        """(targets, out) what the targets make of their messages.

        Args:
            edges: sources are the targets themselves, in their order, and then the others.
            own: (targets, in) messages of the targets.
            others: (others, in) messages of the others.
            rows: the targets.
        """
        count = edges.ends.shape[1]
        if self._reads_quantiles and (count < 2 or int(on_host(edges.ends[1, 0])) > 0):
            return self._received_after_one(edges, own, others, rows)
        try:
            return self._received(edges, own, others, rows)
        except Exception:  # some convolutions fail without any message, each in its way
            if count > 0:
                raise
            return self._received_after_one(edges, own, others, rows)

    def _received_after_one(self, edges: Edges, own: Tensor, others: Tensor, rows: Rows) -> Tensor:
        """The same with one more row, made up, that has messages: PyG's quantiles need some for the first."""
        one = own.new_ones(1, own.shape[1])
        outside = replace(rows, inside=False)  # a batch norm has no statistics of what is made up
        return self._received(edges.after_one(), torch.cat([one, own]), others, outside)[1:]

    def _received(self, edges: Edges, own: Tensor, others: Tensor, rows: Rows) -> Tensor:
        given: dict[str, Tensor] = {}
        if self._needs_weight and edges.weight is None:
            given["edge_weight"] = own.new_ones(edges.ends.shape[1])
        elif self.takes_weight and edges.weight is not None:
            given["edge_weight"] = edges.weight
        if self.takes_attr and edges.attr is not None:
            given["edge_attr"] = edges.attr
        if self.takes_type and edges.type is not None:
            given["edge_type"] = edges.type
        with running_on(self.conv, rows.within(CONVOLUTION)):
            return self.call(torch.cat([own, others]), own, edges.ends, given)

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) of the convolution itself."""
        received: Tensor = self.conv((sources, targets), index, **given)
        return received

    def update(self, received: Tensor, initial: Tensor) -> Tensor:
        """(rows, out) the boundary after the layer: what was received plus, perhaps, something of `initial`.

        Args:
            received: (rows, out) what `receive` gives.
            initial: (rows, any width) what every layer reads of the model's input.
        """
        return received

    def of_rows(self, graph: Graph, part: slice, message: Tensor, initial: Tensor, rows: Rows) -> Tensor:
        """(part, out) the boundary after the layer, of consecutive nodes; differentiable."""
        batch, here = Batch.of_known(graph, torch.arange(*part.indices(graph.num_nodes)), 1.0), initial.device
        others = message.index_select(0, copied(batch.halo, message.device))
        edges = copied(self.edges(batch), here)
        received = self.receive(edges, message[part].to(here), others.to(here), rows)
        return self.update(received, initial)

    def of_sampled(self, block: SampledBlock, message: Tensor, initial: Tensor, rows: Rows) -> Tensor:
        """(nodes, out) the boundary after the layer, of some of the messages; differentiable."""
        own, others = message.tensor_split([block.num_nodes])
        return self.update(self.receive(block.listed(self.drawn_edges), own, others, rows), initial)

    def drawn_edges(self, block: SampledBlock) -> Edges:
        """What was drawn of the messages, as the convolution wants it."""
        return self.edges(block)

    def of_one(self, graph: Graph, message: Tensor, initial: Tensor) -> Tensor:
        """(1, out) of a node that is its only neighbour."""
        attr = None if graph.edge_attr is None else message.new_ones(1, graph.edge_attr.shape[1])
        if self.takes_type and hasattr(self.conv, "num_relations"):
            check_types(self.conv, graph)
        kind = None if graph.edge_type is None else message.new_zeros(1, dtype=torch.long)
        edges = Edges(message.new_zeros(2, 1, dtype=torch.long), None, attr, kind)
        rows = Rows(torch.zeros(1, dtype=torch.long), (0,), inside=False)
        return self.update(self.receive(edges, message, message[:0], rows), initial)
