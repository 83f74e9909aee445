"""Torch's operations whose last bits depend on the number of threads, by others whose bits do not.

There are two kinds of them. Sums that are cut into as many pieces as there are threads: statistics and
derivatives of batch norms, derivatives of a layer norm's scale and shift, and of a parameter of one entry
that many rows read. And functions such as ELU, which are computed a vector of entries at a time, and with
another rounding for the rest: which entries are the rest of a piece depends on where the pieces are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lmc import kernels
from lmc.kernels.fixed_sums import spread
from lmc.kernels.plain import wide_type
from lmc.nn import products

VECTOR = 32  # entries: two of the longest vectors that processors have
PIECE = 32768  # entries that torch gives to a thread, at least


class FixedOrder(TorchFunctionMode):
    """In this context torch's functions are those of this file, also for modules of users and of PyG.

    >>> with FixedOrder():
    ...     z = torch.nn.BatchNorm1d(2)(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    >>> z.detach().round(decimals=2).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The call, by what stands in for the function."""
        return REPLACED.get(function, function)(*args, **(kwargs or {}))


def first_compiled(model: nn.Module) -> str | None:
    """The name of the first module whose inside `FixedOrder` does not see, if there is one.

    >>> first_compiled(nn.Sequential(nn.ReLU(), nn.ELU())) is None
    True
    """

    def is_compiled(part: nn.Module) -> bool:  # by torch.jit, or by torch.compile
        return isinstance(part, torch.jit.ScriptModule) or hasattr(part, "_orig_mod")

    return next((name for name, part in model.named_modules() if is_compiled(part)), None)


# -- sums ----------------------------------------------------------------------------------------


class _Normalize(Function):
    """(z - mean) * inverse_deviation * weight + bias, column by column.

    `own`: whether mean and inverse_deviation are those of z itself, and so have a derivative.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse_deviation: Tensor, own: bool
    ) -> Tensor:
        ctx.save_for_backward(z, weight, mean, inverse_deviation)
        ctx.own = own
        scale = weight * inverse_deviation
        return torch.addcmul(bias - mean * scale, z, scale).to(z.dtype)

    @staticmethod
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor | None, ...]:
        z, weight, mean, inverse_deviation = ctx.saved_tensors
        to_z, to_weight, to_bias = ctx.needs_input_grad[:3]
        of_weight = of_bias = of_z = None
        of_derivative = weight * inverse_deviation
        if ctx.own or to_weight or to_bias:
            of_bias, with_z = kernels.kernels_for(z, derivative).sums(derivative, z)
            of_weight = inverse_deviation * (with_z - mean * of_bias)
        if to_z:
            of_z = derivative * of_derivative
            if ctx.own:
                linear = -of_derivative * inverse_deviation * of_weight / len(z)
                constant = -of_derivative * of_bias / len(z) - linear * mean
                of_z = of_z.add_(constant).addcmul_(z, linear)
            of_z = of_z.to(z.dtype)
        return of_z, of_weight, of_bias, None, None, None


_normalize: Callable[..., Tensor] = _Normalize.apply


def batch_norm(
    z: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(rows, width) as `torch.nn.functional.batch_norm`."""
    if z.ndim != 2 or len(z) < 2:
        return functional.batch_norm(z, running_mean, running_var, weight, bias, training, momentum, eps)
    mean, variance = running_mean, running_var
    if training:
        mean, variance = statistics(z, running_mean, running_var, momentum)
    assert mean is not None
    assert variance is not None
    one, zero = columns_of(1, z), columns_of(0, z)
    scale, shift = one if weight is None else weight, zero if bias is None else bias
    return _normalize(z, scale, shift, mean, (variance + eps).rsqrt(), training)


def columns_of(value: float, z: Tensor) -> Tensor:
    """(width,) the same value for every column of z, in the type that columns are described in."""
    return torch.full(z.shape[1:], float(value), dtype=wide_type(z), device=z.device)


def statistics(
    z: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """(width,) mean and biased variance of the columns, towards which the running ones move."""
    mean, variance = kernels.kernels_for(z).moments(z.detach())
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(variance * (len(z) / (len(z) - 1)), momentum)
    return mean, variance


def layer_norm(
    z: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(..., width) as `torch.nn.functional.layer_norm`."""
    alone = functional.layer_norm(z, normalized_shape, eps=eps)
    if weight is None or weight.ndim != 1:
        return alone if weight is None else functional.layer_norm(z, normalized_shape, weight, bias, eps)
    shift = torch.zeros_like(weight) if bias is None else bias
    zero, one = torch.zeros_like(weight), torch.ones_like(weight)
    flat = alone.reshape(-1, len(weight))
    return _normalize(flat, weight, shift, zero, one, False).view(z.shape)


def prelu(z: Tensor, weight: Tensor) -> Tensor:
    """(..., width) as `torch.nn.functional.prelu`."""
    if weight.numel() > 1:
        return functional.prelu(z, weight)
    return torch.where(z > 0, z, z * spread(weight, tuple(z.shape)))


def linear(z: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., out) as `torch.nn.functional.linear`."""
    if bias is None or bias.numel() > 1:
        return products.linear(z, weight, bias)
    product = products.linear(z, weight)
    return product + spread(bias, tuple(product.shape))


def _with_parameters_spread(function: Any, *operands: Any, **options: Any) -> Any:
    """A function of each entry of its operands, where one of them may have a single entry for all."""
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    shape = numpy.broadcast_shapes(*(operand.shape for operand in tensors))

    def is_read_by_many(operand: Any) -> bool:
        single = isinstance(operand, Tensor) and operand.requires_grad and operand.numel() == 1
        return single and torch.Size(shape).numel() > 1

    spread_out = (spread(operand, shape) if is_read_by_many(operand) else operand for operand in operands)
    return function(*spread_out, **options)


# -- functions of each entry ---------------------------------------------------------------------


def _in_whole_vectors(function: Any, z: Any, *arguments: Any, **options: Any) -> Any:
    """A function of each entry, with ones after the last, so that every thread has whole vectors."""
    of_one = isinstance(z, Tensor) and not any(isinstance(each, Tensor) for each in arguments)
    size = z.numel() if of_one and z.device.type == "cpu" else 0
    threads = max(1, min(torch.get_num_threads(), -(-size // PIECE)))
    missing = -size % (VECTOR * threads)
    if not missing:
        return function(z, *arguments, **options)
    in_place = options.pop("inplace", False)
    whole = functional.pad(z.reshape(-1), (0, missing), value=1.0)
    found = function(whole, *arguments, **options)[:size].view(z.shape)
    return z.copy_(found) if in_place else found


def softmax(z: Tensor, dim: int | None = None, *_: Any, **options: Any) -> Tensor:
    """As `torch.nn.functional.softmax`."""
    if dim is None:
        return functional.softmax(z, dim, **options)
    powers = (z - z.detach().amax(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


def glu(z: Tensor, dim: int = -1) -> Tensor:
    """As `torch.nn.functional.glu`."""
    value, gate = z.chunk(2, dim)
    opened: Tensor = _in_whole_vectors(torch.sigmoid, gate)
    return value * opened


ELEMENTWISE = (
    *(functional.elu, functional.selu, functional.celu, functional.silu, functional.mish, functional.gelu),
    *(functional.softplus, functional.logsigmoid, functional.sigmoid, torch.sigmoid, Tensor.sigmoid),
    *(torch.pow, Tensor.pow, Tensor.__pow__),
)
ARITHMETIC = (
    *(torch.add, torch.sub, torch.mul, torch.div),
    *(Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.sub, Tensor.__sub__, Tensor.__rsub__),
    *(Tensor.mul, Tensor.__mul__, Tensor.__rmul__, Tensor.div, Tensor.__truediv__, Tensor.__rtruediv__),
)
REPLACED: dict[Any, Callable[..., Any]] = {
    functional.batch_norm: batch_norm,
    functional.layer_norm: layer_norm,
    functional.prelu: prelu,
    functional.linear: linear,
    functional.softmax: softmax,
    functional.softmin: lambda z, *given, **options: softmax(-z, *given, **options),
    functional.glu: glu,
    **{function: partial(_in_whole_vectors, function) for function in ELEMENTWISE},
    **{function: partial(_with_parameters_spread, function) for function in ARITHMETIC},
}
