"""GCNII (Chen et al., 2020): deep, by an initial residual and an identity mapping."""

from __future__ import annotations

import math

from torch import Tensor

from lmc import checks
from lmc.errors import ArgumentError
from lmc.nn.activation import Activation, NormKind
from lmc.nn.dropout import Dropout
from lmc.nn.model import MOST_LAYERS, Layer, LinearLayer, Model
from lmc.nn.node_wise import Chain, Linear, NodeWise
from lmc.nn.recipe import Recipe


class GCNIILayer(LinearLayer):
    """z = p M + q N, with p = (1 - alpha) A h, q = alpha h⁰ and M, N = (1 - b) I + b W.

    M and N share their W, or have one each. With `residual`, h is added.
    """

    def __init__(
        self, width: int, message: NodeWise, alpha: float, strength: float, shared: bool, residual: bool
    ) -> None:
        super().__init__()
        self.message = message
        self.linear = Linear(width, width, bias=False)
        self.linear_initial = None if shared else Linear(width, width, bias=False)
        self.alpha, self.strength, self.residual = alpha, strength, residual
        self.out_features, self.reads_own = width, residual

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, width) to (rows, width)."""
        p, q = (1 - self.alpha) * aggregated, self.alpha * initial
        if self.linear_initial is None:
            mapped: Tensor = self.linear(p + q)
        else:
            mapped = self.linear(p) + self.linear_initial(q)
        z = (1 - self.strength) * (p + q) + self.strength * mapped
        return z + own if self.residual else z


class GCNII(Model):
    """A deep GCN in which every layer reads the initial embedding h⁰ = relu(z⁰), z⁰ = x W + b.

    Args:
        in_features: width of the features.
        hidden: width of every layer.
        out_features: width of a prediction.
        layers: number of convolutions; 64 works.
        alpha: how much of the initial embedding a layer takes.
        theta: layer l weighs its matrix by log(theta / l + 1).
        dropout: probability of a hidden entry to be dropped.
        norm: `"none"`, `"batch"` or `"layer"`; None is `"none"`.
        input_dropout: probability of a feature to be dropped.
        residual: whether a layer also adds its own input.
        shared_weights: whether a layer has one matrix, or another for the initial embedding.

    >>> model = GCNII(64, 32, 10, layers=4, alpha=0.1, theta=0.5)
    >>> len(model.layers)
    4
    """

    reads_initial = True

    def __init__(
        self,
        in_features: int,
        hidden: int,
        out_features: int,
        layers: int = 4,
        alpha: float = 0.1,
        theta: float = 0.5,
        dropout: float = 0.0,
        norm: NormKind | None = "none",
        input_dropout: float = 0.0,
        residual: bool = False,
        shared_weights: bool = True,
    ) -> None:
        in_features = checks.whole_number("in_features", in_features, 0)
        out_features = checks.whole_number("out_features", out_features, 1)
        checks.whole_number("layers", layers, 1, MOST_LAYERS)
        hidden = checks.whole_number("hidden", hidden, 1)
        if not 0 <= checks.real("alpha", alpha) <= 1:
            raise ArgumentError(f"alpha={alpha}: must be in [0, 1]")
        if not checks.real("theta", theta) >= 0:
            raise ArgumentError(f"theta={theta}: must be 0 or more")
        checks.truth("residual", residual)
        checks.truth("shared_weights", shared_weights)
        norm = norm or "none"
        convolutions: list[Layer] = []
        for place in range(1, layers + 1):
            message = Activation.of_width(hidden, norm if place > 1 else "none", dropout)
            strength = math.log(theta / place + 1)
            layer = GCNIILayer(hidden, message, alpha, strength, shared_weights, residual)
            convolutions.append(layer)
        super().__init__(
            Chain(Dropout(input_dropout), Linear(in_features, hidden)),
            convolutions,
            Chain(Activation.of_width(hidden, norm, dropout), Linear(hidden, out_features)),
        )
        options = {
            "hidden": hidden,
            "layers": int(layers),
            "alpha": alpha,
            "theta": theta,
            "dropout": dropout,
            "norm": norm,
            "input_dropout": input_dropout,
            "residual": residual,
            "shared_weights": shared_weights,
        }
        self.recipe = Recipe("gcnii", out_features, options)

    def initial(self, encoded: Tensor) -> Tensor:
        """(rows, hidden) h⁰ = relu(z⁰)."""
        return encoded.relu()
