"""Norm, ReLU and dropout in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from lmc import checks, kernels
from lmc.nn.dropout import Dropout
from lmc.nn.fixed_order import columns_of, statistics
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows

NormKind = Literal["none", "batch", "layer"]


class Activation(NodeWise):
    """dropout(relu(norm(z))): what comes between a boundary and the next product.

    A batch norm takes its statistics from batch rows, which alone move the running ones, and halo rows are
    normalised apart from them (appendix A.3.2), by the running ones. Their own would be another graph's:
    a halo is richer in hubs, and what it sends in training would not be what it sends in evaluation. A
    single row has no variance; the running statistics serve it too.
    """

    def __init__(self, norm: nn.Module, dropout: float | nn.Dropout) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)

    @classmethod
    def of_width(cls, width: int, norm: NormKind, dropout: float) -> Activation:
        """With a new norm, of a kind known by name."""
        checks.one_of("norm", norm, NormKind)
        kinds = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        return cls(kinds[norm](width), dropout)

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, width) to (rows, width)."""
        keys, p = (rows.keys(), self.dropout.p) if self.dropout.active else (None, 0.0)
        if not isinstance(self.norm, nn.BatchNorm1d):
            one, zero = columns_of(1, z), columns_of(0, z)
            weight, bias = one, zero
            if isinstance(self.norm, nn.LayerNorm):  # the rest of it, scale and shift, is what is fused
                z = layer_norm(z, self.norm.normalized_shape, eps=self.norm.eps)
                weight, bias = self.norm.weight, self.norm.bias
            return _activated(z, weight, bias, zero, one, keys, p, False)
        own = self.norm.training and rows.inside and len(z) > 1
        mean, variance = self._statistics(z.detach(), own)
        inverse_deviation = (variance + self.norm.eps).rsqrt()
        return _activated(z, self.norm.weight, self.norm.bias, mean, inverse_deviation, keys, p, own)

    def _statistics(self, z: Tensor, own: bool) -> tuple[Tensor, Tensor]:
        norm = self.norm
        assert isinstance(norm, nn.BatchNorm1d)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        if not own:
            return norm.running_mean, norm.running_var
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked += 1
        return statistics(z, norm.running_mean, norm.running_var, norm.momentum or 0.0)


class _Activate(torch.autograd.Function):
    """dropout(relu((z - mean) * inverse_deviation * weight + bias)), column by column.

    `own`: whether mean and inverse_deviation are those of z itself, and so have a derivative.
    `passed`: (rows, width) bool, room for what the way back has to know; None where there is none.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        inverse_deviation: Tensor,
        keys: NDArray[np.uint64] | None,
        p: float,
        own: bool,
        passed: Tensor | None,
    ) -> Tensor:
        scale = weight * inverse_deviation
        activated: Tensor = kernels.kernels_for(z).activate(z, scale, bias - mean * scale, keys, p, passed)
        # Not what was activated: it is large, and who goes on with it may be done with it before that.
        ctx.save_for_backward(z, passed, weight, mean, inverse_deviation)
        ctx.p, ctx.own = p, own
        return activated

    @staticmethod
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor | None, ...]:
        z, passed, weight, mean, inverse_deviation = ctx.saved_tensors
        loops, (to_z, to_weight, to_bias) = kernels.kernels_for(z), ctx.needs_input_grad[:3]
        of_weight = of_bias = of_z = None
        of_g = weight * inverse_deviation
        linear = constant = torch.zeros_like(of_g)
        if ctx.own or to_weight or to_bias:
            of_bias, with_z = loops.activated_sums(derivative, passed, z, ctx.p)
            of_weight = inverse_deviation * (with_z - mean * of_bias)
            if ctx.own:
                linear = -of_g * inverse_deviation * of_weight / len(z)
                constant = -of_g * of_bias / len(z) - linear * mean
        if to_z:
            of_z = loops.activated_vjp(derivative, passed, z, ctx.p, of_g, linear, constant)
        return of_z, of_weight, of_bias, None, None, None, None, None, None


_activate: Callable[..., Tensor] = _Activate.apply


def _activated(z: Tensor, *given: Any) -> Tensor:
    """`_Activate`, which remembers only where there may be a way back."""
    passed = torch.empty(z.shape, dtype=torch.bool, device=z.device) if torch.is_grad_enabled() else None
    return _activate(z, *given, passed)
