"""PyG's convolutions with a linear aggregation, cut where it ends: the same path as the built-in models.

Each keeps the very module that it was given, and reads its parameters. That is the same as calling it as long
as it `fits`: a convolution of this very class, without hooks or methods of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from lmc.data.derived_norms import Averaged
from lmc.data.normalization import Norm
from lmc.nn.fixed_order import FixedOrder, linear
from lmc.nn.hooks import is_linear, is_plain
from lmc.nn.model import LinearLayer
from lmc.nn.node_wise import Chain, NodeWise, NodeWiseModule


class ReadConvolution(LinearLayer):
    """A layer that reads the parameters of a convolution of PyG."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__()
        self.message, self.conv = message, conv
        self._options = options_of(conv)

    @property
    def is_as_read(self) -> bool:
        """Whether a call of the convolution still gives what is made of its parameters."""
        return self.fits(self.conv) and options_of(self.conv) == self._options

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether a call of the convolution would give the same."""
        raise NotImplementedError

    def called(self) -> list[nn.Module]:
        """The parts of the convolution that are called."""
        return []


def options_of(conv: nn.Module) -> dict[str, Any]:
    """Its numbers, names and switches.

    >>> from torch_geometric.nn import GCNConv
    >>> options_of(GCNConv(3, 4))["add_self_loops"]
    True
    """
    simple = (bool, int, float, str, type(None))
    return {
        name: value
        for name, value in vars(conv).items()
        if isinstance(value, simple) and not name.startswith("_") and name != "training"
    }


class _Normalized(ReadConvolution):
    """What GCNConv and GCN2Conv share: the normalisation, which is that of the whole graph."""

    reads_own = False

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__(conv, message)
        norm = normalization_of(conv)
        self.aggregation = Averaged(norm) if conv.aggr == "mean" else norm


class GCNConvLayer(_Normalized):
    """z = A h W + b."""

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether it adds up, and its linear map is no more than that."""
        return GCNConvOfMapped.fits(conv) and is_read(conv.lin) and conv.lin.bias is None

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        return linear(aggregated, self.conv.lin.weight, self.conv.bias)


class GCNConvOfMapped(_Normalized):
    """z = A f(h) + b, with any module f in the place of GCNConv's linear map."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__(conv, Chain(message, NodeWiseModule(conv.lin)))

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether it adds up, or averages."""
        from torch_geometric.nn import GCNConv

        return is_plain(conv, GCNConv) and (adds_up(conv) or averages(conv))

    def called(self) -> list[nn.Module]:
        """The map."""
        return [self.conv.lin]

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, out) to (rows, out)."""
        return aggregated if self.conv.bias is None else aggregated + self.conv.bias


class GCN2ConvLayer(_Normalized):
    """z = p M + q N, with p = (1 - alpha) A h, q = alpha h⁰ and M, N = (1 - beta) I + beta W."""

    reads_initial = True

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether it adds up, or averages."""
        from torch_geometric.nn import GCN2Conv

        return is_plain(conv, GCN2Conv) and (adds_up(conv) or averages(conv))

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, width) to (rows, width)."""
        conv = self.conv
        p, q = (1 - conv.alpha) * aggregated, conv.alpha * initial
        if conv.weight2 is None:
            return _mapped(p + q, conv.weight1, conv.beta)
        return _mapped(p, conv.weight1, conv.beta) + _mapped(q, conv.weight2, conv.beta)


class SAGEConvLayer(ReadConvolution):
    """z = A h W + b + h U, with A the mean or the sum over neighbours; edge weights are not read."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__(conv, message)
        self.reads_own = conv.root_weight
        self.aggregation = "plain mean" if conv.aggr == "mean" else "plain sum"

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether it adds up what it is given, which a `project`, a map before the sum, is not."""
        from torch_geometric.nn import SAGEConv

        if not is_plain(conv, SAGEConv) or not (adds_up(conv) or averages(conv)) or conv.project:
            return False
        return is_linear(conv.lin_l) and (not conv.root_weight or is_linear(conv.lin_r))

    def called(self) -> list[nn.Module]:
        """Both linear maps."""
        return [self.conv.lin_l, *([self.conv.lin_r] if self.reads_own else [])]

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        with FixedOrder():
            z: Tensor = self.conv.lin_l(aggregated)
            return z + self.conv.lin_r(own) if self.reads_own else z


class GINConvLayer(ReadConvolution):
    """z = A h + (1 + eps) h; the network that follows it is part of the next layer's message."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__(conv, message)
        self.aggregation = "plain mean" if conv.aggr == "mean" else "plain sum"

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether it adds up."""
        from torch_geometric.nn import GINConv

        return is_plain(conv, GINConv) and (adds_up(conv) or averages(conv))

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, in)."""
        eps: Tensor = self.conv.eps
        with FixedOrder():
            return aggregated + (1 + eps) * own


class UnitLength(nn.Module):
    """What SAGEConv does at its end with `normalize=True`."""

    def forward(self, z: Tensor) -> Tensor:
        """(rows, width) of length one each."""
        return normalize(z, p=2.0, dim=-1)


READ: tuple[type[ReadConvolution], ...] = (
    GCNConvLayer,
    GCNConvOfMapped,
    GCN2ConvLayer,
    SAGEConvLayer,
    GINConvLayer,
)
"""The first that fits is the layer of a convolution."""


def _mapped(x: Tensor, weight: Tensor, beta: float) -> Tensor:
    return torch.addmm(x, x, weight, beta=1 - beta, alpha=beta)


def normalization_of(conv: Any) -> Norm:
    """Which normalisation of the whole graph a GCNConv or GCN2Conv asks for, before it aggregates."""
    if not conv.normalize:
        return "sum"
    if not conv.add_self_loops:
        return "gcn without loops"
    return "gcn improved" if getattr(conv, "improved", False) else "gcn"


def is_read(module: nn.Module) -> bool:
    """Whether a call of it is x Wᵀ + b with its `weight` and `bias`."""
    from torch_geometric.nn import Linear

    return is_plain(module, nn.Linear, Linear)


def adds_up(conv: Any) -> bool:
    """Whether messages are added up, by PyG's own sum."""
    from torch_geometric.nn.aggr import SumAggregation

    return conv.aggr in ("add", "sum") and is_plain(conv.aggr_module, SumAggregation)


def averages(conv: Any) -> bool:
    """Whether it takes the mean of messages, by PyG's own."""
    from torch_geometric.nn.aggr import MeanAggregation

    return conv.aggr == "mean" and is_plain(conv.aggr_module, MeanAggregation)
