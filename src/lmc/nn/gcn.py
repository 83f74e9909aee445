"""GCN (Kipf and Welling, 2017)."""

from __future__ import annotations

from torch import Tensor

from lmc import checks
from lmc.errors import ArgumentError
from lmc.nn.activation import Activation, NormKind
from lmc.nn.dropout import Dropout
from lmc.nn.model import MOST_LAYERS, Layer, LinearLayer, Model
from lmc.nn.node_wise import Chain, Identity, Linear, NodeWise
from lmc.nn.recipe import Recipe


class GCNLayer(LinearLayer):
    """z = (A h) W + b, plus h with `residual` where the widths agree; h is the message."""

    def __init__(self, in_features: int, out_features: int, message: NodeWise, residual: bool) -> None:
        super().__init__()
        self.message = message
        self.linear = Linear(in_features, out_features)
        self.residual = self.reads_own = residual and in_features == out_features
        self.out_features = out_features

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        z: Tensor = self.linear(aggregated)
        return z + own if self.residual else z


class GCN(Model):
    """A graph convolutional network of any depth.

    zˡ = A hˡ⁻¹ Wˡ + bˡ, with hˡ = dropout(relu(norm(zˡ))) and h⁰ = dropout(x).

    Args:
        in_features: width of the features.
        hidden: width of the hidden layers, or one width for each.
        out_features: width of a prediction.
        layers: number of convolutions.
        dropout: probability of a hidden entry to be dropped.
        norm: `"none"`, `"batch"` or `"layer"`; None is `"none"`.
        input_dropout: probability of a feature to be dropped.
        residual: whether hˡ⁻¹ is added to zˡ, before the norm, where their widths agree.
        linear_in: whether a linear layer and a ReLU come before the first convolution.
        linear_out: whether norm, ReLU and a linear layer follow the last convolution, which is then hidden.

    >>> import lmc
    >>> model = GCN(64, 32, 10, layers=3, norm="batch", dropout=0.5)
    >>> [layer.out_features for layer in model.layers]
    [32, 32, 10]
    """

    def __init__(
        self,
        in_features: int,
        hidden: int | list[int],
        out_features: int,
        layers: int = 2,
        dropout: float = 0.0,
        norm: NormKind | None = "none",
        input_dropout: float = 0.0,
        residual: bool = False,
        linear_in: bool = False,
        linear_out: bool = False,
    ) -> None:
        norm = norm or "none"
        in_features = checks.whole_number("in_features", in_features, 0)
        out_features = checks.whole_number("out_features", out_features, 1)
        checks.whole_number("layers", layers, 1, MOST_LAYERS)
        for name, value in {"residual": residual, "linear_in": linear_in, "linear_out": linear_out}.items():
            checks.truth(name, value)
        boundaries = layers - (0 if linear_out else 1) + (1 if linear_in else 0)
        widths = _widths(hidden, boundaries)
        encoder: NodeWise = Identity()
        first: NodeWise = Dropout(input_dropout)
        width = in_features
        if linear_in:
            width, *widths = widths
            encoder = Chain(Dropout(input_dropout), Linear(in_features, width))
            first = Activation.of_width(width, "none", dropout)
        ends = widths if linear_out else [*widths, out_features]
        convolutions: list[Layer] = []
        for place, end in enumerate(ends):
            message = first if place == 0 else Activation.of_width(width, norm, dropout)
            convolutions.append(GCNLayer(width, end, message, residual))
            width = end
        head: NodeWise = Identity()
        if linear_out:
            head = Chain(Activation.of_width(width, norm, dropout), Linear(width, out_features))
        super().__init__(encoder, convolutions, head)
        options = {
            "hidden": [*map(int, hidden)] if isinstance(hidden, (list, tuple)) else int(hidden),
            "layers": int(layers),
            "dropout": dropout,
            "norm": norm,
            "input_dropout": input_dropout,
            "residual": residual,
            "linear_in": linear_in,
            "linear_out": linear_out,
        }
        self.recipe = Recipe("gcn", out_features, options)


def _widths(hidden: int | list[int], boundaries: int) -> list[int]:
    """One width per hidden boundary."""
    widths = hidden if isinstance(hidden, (list, tuple)) else [hidden] * boundaries
    if len(widths) != boundaries:
        raise ArgumentError(f"hidden={hidden}: must be one width, or {boundaries} of them")
    return [checks.whole_number("hidden", width, 1) for width in widths]
