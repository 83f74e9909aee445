"""What a model is: an encoder, message-passing layers and a head.

    z⁰ = encoder(x)                                             node by node
    zˡ = update(A message(zˡ⁻¹), message(zˡ⁻¹), initial(z⁰))    l = 1 .. L
    prediction = head(zᴸ)                                       node by node

The values zˡ between layers are the *boundary*, where histories live. They are the aggregation's output
before the non-linearity, which is the first thing that the next layer's `message` applies. `message` and
`update` work node by node, and `update` is affine in the aggregated messages, with the same matrix for
every node. So the derivative that a node sends to a neighbour needs nothing of the neighbour's own sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lmc.errors import ArgumentError
from lmc.files import one_line
from lmc.nn.rows import Rows
from lmc.normalization import Norm, normalize

if TYPE_CHECKING:
    from lmc.graph import Graph


class NodeWise(nn.Module, ABC):
    """A function of each node's own vector, which knows the nodes behind its rows."""

    @abstractmethod
    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, in) to (rows, out)."""

    @property
    def is_identity(self) -> bool:
        """Whether, as it is now, it gives back what it takes."""
        return False


class Identity(NodeWise):
    """An encoder or a head that is not there."""

    is_identity = True

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, width), unchanged."""
        return z


class Layer(nn.Module, ABC):
    """One round of message passing with a linear aggregation.

    Attributes:
        message: from the boundary before to what is sent: norm, non-linearity, dropout.
        aggregation: the normalisation of the adjacency.
        out_features: the width of the boundary behind.
        reads_own: whether `update` reads the node's own message; if not, it may be given none.
    """

    message: NodeWise
    aggregation: Norm = "gcn"
    out_features: int
    reads_own: bool = True

    @abstractmethod
    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """From what arrives to the boundary behind, affine in `aggregated`.

        Args:
            aggregated: (rows, in) sums of messages.
            own: (rows, in) the node's own message, or (rows, 0).
            initial: (rows, any width) what every layer reads of the model's input.
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
    """

    reads_initial: bool = False

    def __init__(self, encoder: NodeWise, layers: list[Layer], head: NodeWise) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = Layers(layers)
        self.head = head

    def initial(self, encoded: Tensor) -> Tensor:
        """(rows, any width) what every layer reads of z⁰, node by node, without parameters; or nothing."""
        return encoded[:, :0]

    def widths(self, x: Tensor) -> list[int]:
        """The widths of every boundary and of a prediction, found by sending one row of x through.

        >>> import lmc
        >>> lmc.GCN(64, 32, 10, layers=3).widths(torch.zeros(1, 64))
        [32, 32, 10, 10]
        """
        rows = Rows(torch.zeros(1, dtype=torch.long), (0,), inside=False)
        widths = []
        try:
            with torch.no_grad():
                z = self.encoder(x[:1], rows)
                initial = self.initial(z)
                for layer in self.layers:
                    message = layer.message(z, rows)
                    z = layer.update(message, message, initial)
                    widths.append(z.shape[1])
                return [*widths, self.head(z, rows).shape[1]]
        except RuntimeError as error:
            features = f"{x.shape[1]} features of {x.dtype}"
            raise ArgumentError(f"model: does not take the graph's {features} ({one_line(error)})") from None

    def forward(self, graph: Graph) -> Tensor:
        """(nodes, out) predictions for the whole graph in one piece, differentiable by autograd.

        For large graphs `lmc.predict` gives the same in bounded memory. Dropout, in training mode, is
        seeded by torch's generator.

        >>> import lmc
        >>> graph = lmc.synthetic(nodes=100)
        >>> lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2)(graph).shape
        torch.Size([100, 10])
        """
        nodes = torch.arange(graph.num_nodes)
        seed = int(torch.randint(1 << 62, ())) if self.training else 0
        z = self.encoder(graph.x, Rows(nodes, (seed, 0, 0)))
        initial = self.initial(z)
        for place, layer in enumerate(self.layers, start=1):
            message = layer.message(z, Rows(nodes, (seed, 0, place)))
            aggregated = normalize(graph, layer.aggregation) @ message
            z = layer.update(aggregated, message, initial)
        prediction: Tensor = self.head(z, Rows(nodes, (seed, 0, len(self.layers) + 1)))
        return prediction
