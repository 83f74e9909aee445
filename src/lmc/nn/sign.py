"""SIGN (Frasca et al., 2020): powers of the adjacency times the features, then a network on rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.data.normalization import propagated
from lmc.errors import ArgumentError
from lmc.nn.activation import Activation, NormKind
from lmc.nn.dropout import Dropout
from lmc.nn.model import MOST_LAYERS, LinearLayer, Model
from lmc.nn.node_wise import Chain, Identity, Linear, NodeWise
from lmc.nn.recipe import Recipe
from lmc.nn.rows import Rows


class Widths(NamedTuple):
    """All that a model reads of a graph when it is made, in the place of the graph."""

    num_features: int
    num_classes: int


class PowerLayer(LinearLayer):
    """z = A h, where h is a power of A times x; the last layer joins all of them: [x | A x | .. | Aᴷ x].

    Args:
        place: of the layer, from 1 to `hops`.
        hops: K.
    """

    def __init__(self, place: int, hops: int) -> None:
        super().__init__()
        self.message = Identity()
        self.opens, self.joins = place == 1, place == hops
        self.reads_own = self.joins
        self.reads = tuple(range(place - 1, 0, -1)) if self.joins else ()

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, features) to (rows, features), the last time to (rows, (hops + 1) features)."""
        if not self.joins:
            return aggregated
        lower = [initial] if self.reads else []
        return torch.cat([*lower, own, aggregated], dim=1)


class LinearOfEach(NodeWise):
    """[x W₀ + b₀ | A x W₁ + b₁ | .. | Aᴷ x W_K + b_K]."""

    def __init__(self, in_features: int, out_features: int, count: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(Linear(in_features, out_features) for _ in range(count))

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, count * in) to (rows, count * out)."""
        powers = z.tensor_split(len(self.linears), dim=1)
        mapped = [linear(power) for linear, power in zip(self.linears, powers, strict=True)]
        return torch.cat(mapped, dim=1)


class SIGN(Model):
    """Powers of the normalised adjacency times the features, then a network on the rows of these.

    h = dropout(relu(norm([x W₀ | A x W₁ | .. | Aᴷ x W_K]))), and a multi-layer perceptron from h to the
    prediction. Nothing is trained before the powers, so they are computed once for a graph: `lmc.Precomputed`
    trains on rows of them, without the graph. Other estimators take the model, too, and gain nothing.

    Args:
        graph: whose numbers of features and classes are taken; nothing else is read of it.
        hops: K, the highest power.
        hidden: width of what each power is mapped to, and of the perceptron's hidden layers.
        layers: of the perceptron, each a linear map.
        dropout: probability of a hidden entry to be dropped.
        norm: `"none"`, `"batch"` or `"layer"`; None is `"none"`.
        input_dropout: probability of an entry of the powers to be dropped.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=200, features=16)
    >>> model = SIGN(graph, hops=3, hidden=32)
    >>> [part.shape[1] for part in model.precomputed(graph)]
    [16, 16, 16, 16]
    >>> result = lmc.fit(graph, model, lmc.Precomputed(batch_size=50), epochs=3)
    """

    def __init__(
        self,
        graph: Graph | Widths,
        hops: int = 3,
        hidden: int = 64,
        layers: int = 2,
        dropout: float = 0.0,
        norm: NormKind | None = "none",
        input_dropout: float = 0.0,
    ) -> None:
        if not isinstance(graph, Widths):
            check_graph(graph)
        hops = checks.whole_number("hops", hops, 1, MOST_LAYERS)
        hidden = checks.whole_number("hidden", hidden, 1)
        layers = checks.whole_number("layers", layers, 1, MOST_LAYERS)
        norm = norm or "none"
        if graph.num_classes == 0:
            raise ArgumentError("graph: has no labels, so the width of a prediction is not known")
        width = (hops + 1) * hidden
        head: list[NodeWise] = [
            Dropout(input_dropout),
            LinearOfEach(graph.num_features, hidden, hops + 1),
            Activation.of_width(width, norm, dropout),
        ]
        for _ in range(layers - 1):
            head += [Linear(width, hidden), Activation.of_width(hidden, norm, dropout)]
            width = hidden
        head.append(Linear(width, graph.num_classes))
        powers = [PowerLayer(place, hops) for place in range(1, hops + 1)]
        super().__init__(Identity(), [*powers], Chain(*head))
        options = {
            "hops": hops,
            "hidden": hidden,
            "layers": layers,
            "dropout": dropout,
            "norm": norm,
            "input_dropout": input_dropout,
        }
        self.recipe = Recipe("sign", graph.num_classes, options)

    def precomputed(self, graph: Graph) -> list[Tensor]:
        """(nodes, features) each: x, A x, .., Aᴷ x."""
        return [propagated(graph, hops=power) for power in range(len(self.layers) + 1)]
