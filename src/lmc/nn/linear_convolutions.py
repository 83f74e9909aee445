"""PyG's convolutions with a linear aggregation, cut where it ends: the same path as the built-in models.

Each keeps the very module that it was given, and reads its parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from lmc.data.derived_norms import Averaged
from lmc.data.normalization import Norm
from lmc.nn.fixed_order import FixedOrder, linear
from lmc.nn.model import LinearLayer
from lmc.nn.node_wise import NodeWise


class _Normalized(LinearLayer):
    """What GCNConv and GCN2Conv share: the normalisation, which is that of the whole graph."""

    reads_own = False

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__()
        self.message, self.conv = message, conv
        norm = normalization_of(conv)
        self.aggregation = Averaged(norm) if conv.aggr == "mean" else norm


class GCNConvLayer(_Normalized):
    """z = A h W + b."""

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        return linear(aggregated, self.conv.lin.weight, self.conv.bias)


class GCN2ConvLayer(_Normalized):
    """z = p M + q N, with p = (1 - alpha) A h, q = alpha h⁰ and M, N = (1 - beta) I + beta W."""

    reads_initial = True

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, width) to (rows, width)."""
        conv = self.conv
        p, q = (1 - conv.alpha) * aggregated, conv.alpha * initial
        if conv.weight2 is None:
            return _mapped(p + q, conv.weight1, conv.beta)
        return _mapped(p, conv.weight1, conv.beta) + _mapped(q, conv.weight2, conv.beta)


class SAGEConvLayer(LinearLayer):
    """z = A h W + b + h U, with A the mean or the sum over neighbours; edge weights are not read."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__()
        self.message, self.conv = message, conv
        self.reads_own = conv.root_weight
        self.aggregation = "plain mean" if conv.aggr == "mean" else "plain sum"

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        with FixedOrder():
            z: Tensor = self.conv.lin_l(aggregated)
            return z + self.conv.lin_r(own) if self.reads_own else z


class GINConvLayer(LinearLayer):
    """z = A h + (1 + eps) h; the network that follows it is part of the next layer's message."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__()
        self.message, self.conv = message, conv
        self.aggregation = "plain mean" if conv.aggr == "mean" else "plain sum"

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


def _mapped(x: Tensor, weight: Tensor, beta: float) -> Tensor:
    return torch.addmm(x, x, weight, beta=1 - beta, alpha=beta)


def normalization_of(conv: Any) -> Norm:
    """Which normalisation of the whole graph a GCNConv or GCN2Conv asks for, before it aggregates."""
    if not conv.normalize:
        return "sum"
    if not conv.add_self_loops:
        return "gcn without loops"
    return "gcn improved" if getattr(conv, "improved", False) else "gcn"
