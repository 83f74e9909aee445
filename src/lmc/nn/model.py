"""What a model is: an encoder, message-passing layers and a head.

    z⁰ = encoder(x)                                             node by node
    zˡ = update(A message(zˡ⁻¹), message(zˡ⁻¹), initial(z⁰))    l = 1 .. L
    prediction = head(zᴸ)                                       node by node

The values zˡ between layers are the *boundary*, where histories live. They are the aggregation's output
before the non-linearity, which is the first thing that the next layer's `message` applies.

The second line is that of a `LinearLayer`. There `message` and `update` work node by node, and `update` is
affine in the aggregated messages, with the same matrix for every node. So the derivative that a node sends
to a neighbour does not depend on the neighbour's own sum. Other layers, such as attention, are in
`convolution.py`. A convolution of several hops is several layers, of which the later ones read the node's own
message into the first again, in place of initial(z⁰); see `hops.py`. A head that `jumps` reads every
convolution: message(z¹), .., message(zᴸ⁻¹), as far as they go into the first layer of one, and zᴸ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from lmc.data.given import check_graph
from lmc.data.normalization import Norm, messages_back, sums_of
from lmc.data.typed_adjacency import TYPED
from lmc.device import device_of
from lmc.errors import ArgumentError, GraphError
from lmc.files import one_line
from lmc.nn.node_wise import NodeWise
from lmc.nn.recipe import Recipe
from lmc.nn.rows import Rows
from lmc.nn.weights import weight_type

if TYPE_CHECKING:
    from lmc.data.batch import Batch
    from lmc.data.graph import Graph
    from lmc.data.sampled import SampledBlock

MOST_LAYERS = 1000
"""More are a mistake, or a file that asks for all the memory there is."""


class LayerWidths(NamedTuple):
    """How wide a layer's values are.

    Attributes:
        message: what a node sends.
        received: what it makes of messages that arrive, before `update`.
        boundary: z after the layer.
        returned: what it makes of derivatives that come back, before they go through the message.
    """

    message: int
    received: int
    boundary: int
    returned: int


class ModelWidths(NamedTuple):
    """How wide the values of every layer are, and a prediction."""

    layers: list[LayerWidths]
    prediction: int


class Layer(nn.Module, ABC):
    """One round of message passing.

    Attributes:
        message: from the boundary before to what is sent: norm, non-linearity, dropout.
        opens: whether it is the first layer of its convolution, or the only one.
        reads: the layers of its convolution, counted backwards from 1 for the one before, whose messages it
            reads in place of what the model's input gives. Those are the node's own: no history keeps them.
        reads_initial: whether it reads what the model's input gives.
        both_ways: whether messages also travel against the direction of the edges.
    """

    message: NodeWise
    opens: bool = True
    reads: tuple[int, ...] = ()
    reads_initial: bool = False
    both_ways: bool = False

    def what_it_reads(self, messages: Sequence[Tensor], initial: Tensor) -> Tensor:
        """(rows, any width) what the layer reads besides its messages, of the same rows.

        Args:
            messages: (rows, any width) into each of the layers before it, from the first on.
            initial: (rows, any width) what every layer reads of the model's input.
        """
        found = [messages[-back] for back in self.reads]
        if len(found) > 1:
            return torch.cat(found, dim=1)
        return found[0] if found else initial

    @abstractmethod
    def widths(self, graph: Graph, message: int, boundary: int) -> LayerWidths:
        """Of its values, where messages and the boundary after it have these widths."""

    def prepare_graph(self, graph: Graph) -> None:
        """Build what the layer will read of a graph in every step, ahead of the first; here, nothing."""

    @abstractmethod
    def prepare(self, batch: Batch, halo: bool) -> None:
        """Build what the layer will read of a batch, and with `halo` of its halo rows, ahead of its step."""

    def prepare_telling(self, batch: Batch) -> None:
        """Build what the layer will read of the rows `batch.telling`; here, nothing."""

    @abstractmethod
    def of_rows(self, graph: Graph, part: slice, message: Tensor, initial: Tensor, rows: Rows) -> Tensor:
        """(part, out) the boundary after the layer, of consecutive nodes; differentiable.

        Args:
            graph: where.
            part: the nodes.
            message: (nodes, in) what all nodes send.
            initial: (part, any width) `what_it_reads`; where it is, the layer computes.
            rows: the part, and the address of its randomness.
        """

    @abstractmethod
    def of_sampled(self, block: SampledBlock, message: Tensor, initial: Tensor, rows: Rows) -> Tensor:
        """(nodes, out) the boundary after the layer, of some of the messages; differentiable.

        Args:
            block: the nodes and who they hear.
            message: (members of the block, in) what those send, the nodes themselves first.
            initial: (nodes, any width) `what_it_reads`.
            rows: the nodes, and the address of their randomness.
        """

    @abstractmethod
    def of_one(self, graph: Graph, message: Tensor, initial: Tensor) -> Tensor:
        """(1, out) of a node that is its only neighbour."""


class LinearLayer(Layer):
    """One round of message passing with a linear aggregation.

    Attributes:
        aggregation: the normalisation of the adjacency.
        reads_own: whether `update` reads the node's own message; if not, it may be given none.
    """

    aggregation: Norm = "gcn"
    reads_own: bool = True

    def widths(self, graph: Graph, message: int, boundary: int) -> LayerWidths:
        """Sums are as wide as what is added up; of a stacked aggregation, side by side."""
        stacked = graph.num_edge_types if self.aggregation in TYPED else 1
        return LayerWidths(message, stacked * message, boundary, stacked * boundary)

    def prepare_graph(self, graph: Graph) -> None:
        """Normalise the adjacency, for both directions."""
        messages_back(graph, self.aggregation)

    def prepare(self, batch: Batch, halo: bool) -> None:
        """Build the blocks of its aggregation, for both directions."""
        batch.block(self.aggregation)
        batch.transposed_block(self.aggregation)
        if halo:
            batch.halo_block(self.aggregation)
            batch.transposed_halo_block(self.aggregation)

    def prepare_telling(self, batch: Batch) -> None:
        """Build the blocks of its aggregation, for both directions."""
        batch.telling_block(self.aggregation)
        batch.transposed_telling_block(self.aggregation)

    def of_rows(self, graph: Graph, part: slice, message: Tensor, initial: Tensor, rows: Rows) -> Tensor:
        """(part, out) the boundary after the layer, of consecutive nodes; differentiable."""
        received, here = sums_of(graph, self.aggregation, message, part), initial.device
        return self.update_at(rows, received.to(here), message[part].to(here), initial)

    def of_sampled(self, block: SampledBlock, message: Tensor, initial: Tensor, rows: Rows) -> Tensor:
        """(nodes, out) the boundary after the layer, of some of the messages; differentiable."""
        received = block.received(self.aggregation, message)
        return self.update_at(rows, received, message[: block.num_nodes], initial)

    def of_one(self, graph: Graph, message: Tensor, initial: Tensor) -> Tensor:
        """(1, out) of a node that is its only neighbour."""
        return self.update(message, message, initial)

    def returned(self, arriving: Tensor, by_update: Callable[[Tensor], Tensor]) -> Tensor:
        """(rows, in) the derivative at messages, of what comes back along the transposed aggregation.

        Args:
            arriving: (rows, out) sums of derivatives at boundaries; of a stacked one, side by side.
            by_update: from the derivative at what `update` gives to that at what it received.
        """
        return by_update(arriving)

    def update_at(self, rows: Rows, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """`update` of these rows, for layers that drop some of what they read: masks depend on the rows."""
        return self.update(aggregated, own, initial)

    @abstractmethod
    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """From what arrives to the boundary after the layer, affine in `aggregated`.

        Args:
            aggregated: (rows, in) sums of messages; of a stacked aggregation, side by side.
            own: (rows, in) the node's own message, or (rows, 0).
            initial: (rows, any width) `what_it_reads`.
        """


class Layers(nn.ModuleList):
    """A list of layers that knows their type."""

    def __iter__(self) -> Iterator[Layer]:
        return super().__iter__()  # type: ignore[return-value]

    def __getitem__(self, place: int) -> Layer:  # type: ignore[override]
        return super().__getitem__(place)  # type: ignore[return-value]


class Model(nn.Module):
    """Encoder, layers and head; see the top of this file.

    Attributes:
        reads_initial: whether layers read `initial`; if not, it may be computed from nothing.
        jumps: whether the head reads the messages of every convolution beside the last boundary.
        recipe: how it is built anew; None where settings cannot say it.
    """

    reads_initial: bool = False
    jumps: bool = False
    recipe: Recipe | None = None

    def __init__(self, encoder: NodeWise, layers: list[Layer], head: NodeWise) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = Layers(layers)
        self.head = head

    @property
    def original(self) -> nn.Module:
        """The module whose names the weights have in files: the one that was wrapped, or the model itself."""
        return self

    def initial(self, encoded: Tensor) -> Tensor:
        """(rows, any width) what every layer reads of z⁰, node by node, without parameters; or nothing."""
        return encoded[:, :0]

    def precomputed(self, graph: Graph) -> list[Tensor] | None:
        """(nodes, any width) each: side by side they are zᴸ, where nothing before the head is trained.

        It is computed once for a graph. None where layers have something to train.
        """
        return None

    @property
    def parameters_before_first(self) -> list[nn.Parameter]:
        """Those that derivatives reach through the first aggregation: the encoder's, the first message's."""
        return [*self.encoder.parameters(), *self.layers[0].message.parameters()]

    @property
    def read_again(self) -> set[int]:
        """The layers, counted from 1, whose messages later layers read."""
        return {place - back for place, layer in enumerate(self.layers, start=1) for back in layer.reads}

    @property
    def jumped_to(self) -> list[int]:
        """The layers, counted from 1, whose messages the head reads: those that open later convolutions."""
        opening = [place for place, layer in enumerate(self.layers, start=1) if layer.opens]
        return opening[1:] if self.jumps else []

    def prepare(self, batch: Batch, halo: bool) -> None:
        """Build what the layers will read of a batch, and with `halo` of its halo rows, ahead of its step."""
        for layer in self.layers:
            layer.prepare(batch, halo)

    def prepare_telling(self, batch: Batch) -> None:
        """Build what the layers will read of the rows `batch.telling`, ahead of the batch's step."""
        for layer in self.layers:
            layer.prepare_telling(batch)

    def widths(self, graph: Graph) -> list[int]:
        """The widths of every boundary and of a prediction.

        >>> import lmc
        >>> graph = lmc.synthetic(nodes=100, features=64)
        >>> lmc.GCN(64, 32, 10, layers=3).widths(graph)
        [32, 32, 10, 10]
        """
        layers, prediction = self.all_widths(graph)
        return [*(layer.boundary for layer in layers), prediction]

    def all_widths(self, graph: Graph) -> ModelWidths:
        """The widths of all its values, found by sending one node through alone."""
        rows = Rows(torch.zeros(1, dtype=torch.long), (0,), inside=False)
        widths, seen = list[LayerWidths](), list[Tensor]()
        try:
            with torch.no_grad():
                z = self.encoder(graph.x[:1].to(device_of(self)), rows)
                initial = self.initial(z)
                for layer in self.layers:
                    message, read = layer.message(z, rows), layer.what_it_reads(seen, initial)
                    seen.append(message)
                    z = layer.of_one(graph, message, read)
                    widths.append(layer.widths(graph, message.shape[1], z.shape[1]))
                read_by_head = [*(seen[place - 1] for place in self.jumped_to), z]
                prediction = self.read(read_by_head, rows)
            if prediction.ndim != 2:
                rule = (
                    f"gives shape {tuple(prediction.shape)} for a node; must be (nodes, out), one out or more"
                )
                raise ArgumentError(f"model: {rule}")
            return ModelWidths(widths, prediction.shape[1])
        except (ArgumentError, GraphError):
            raise
        except Exception as error:  # modules of users may raise anything
            features = f"{graph.num_features} features of {graph.x.dtype}"
            if graph.edge_attr is not None:
                features += f" and {graph.edge_attr.shape[1]} of its edges"
            why, own = one_line(error), weight_type(self)
            if graph.num_features == 0:
                why = "graph.with_features('structure'), or --features structure, makes some of its edges"
            elif own not in (None, graph.x.dtype):
                why = f"its weights are of {own}; model.to({graph.x.dtype}) makes them agree"
            elif graph.edge_attr is None and "NoneType" in why:
                why = f"perhaps a convolution reads edge_attr, of which the graph has none; {why}"
            raise ArgumentError(f"model: does not take the graph's {features} ({why})") from None

    def read(self, seen: Sequence[Tensor], rows: Rows) -> Tensor:
        """(rows, out) what the head makes of the boundary after the last layer, the last of `seen`.

        With `jumps` it also reads what is before it there, the messages into every convolution but the first.
        """
        prediction: Tensor = self.head(list(seen) if self.jumps else seen[-1], rows)
        return prediction

    def forward(self, graph: Graph, *others: object) -> Tensor:
        """(nodes, out) predictions for the whole graph in one piece, differentiable by autograd.

        For large graphs `lmc.predict` gives the same in bounded memory. Dropout, in training mode, is
        seeded by torch's generator.

        >>> import lmc
        >>> graph = lmc.synthetic(nodes=100)
        >>> lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2)(graph).shape
        torch.Size([100, 10])
        """
        if others:  # as the models of PyG are called
            hint = "lmc.Graph.from_pyg(data) makes one"
            raise ArgumentError(f"model: takes one lmc.Graph, not {len(others) + 1} arguments; {hint}")
        check_graph(graph)
        nodes = torch.arange(graph.num_nodes)
        seed = int(torch.randint(1 << 62, ())) if self.training else 0
        z = self.encoder(graph.x.to(device_of(self)), Rows(nodes, (seed, 0, 0)))
        initial, messages = self.initial(z), list[Tensor]()
        for place, layer in enumerate(self.layers, start=1):
            rows, read = Rows(nodes, (seed, 0, place)), layer.what_it_reads(messages, initial)
            messages.append(layer.message(z, rows))
            z = layer.of_rows(graph, slice(None), messages[-1], read, rows)
        seen = [*(messages[place - 1] for place in self.jumped_to), z]
        return self.read(seen, Rows(nodes, (seed, 0, len(self.layers) + 1)))
