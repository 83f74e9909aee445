"""Products with dense matrices by oneDNN, which torch brings along, where torch's own are slower.

In bfloat16 torch does ask oneDNN, but has it make a program for every number of rows, and no two batches
have as many; and a bias takes a pass of its own. In float32 it asks MKL, which has no AVX-512 on processors
that are not Intel's. Here rows are taken in blocks of a few sizes. Both cut a single sum over many rows into
as many as there are threads, whatever MKL_CBWR asks for, but never one of several sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional

LARGEST, SMALLEST, LEAST = 8192, 512, 16  # rows of a block; the least where there are not more
PIECE = 2048  # at most so many rows are summed at once, and at most half a block: see above


def linear(z: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., out) as `torch.nn.functional.linear`.

    >>> linear(torch.ones(2, 3), torch.ones(4, 3)).tolist()
    [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]]
    """
    dtype = _type_of_product(z, weight)
    if dtype is None:
        return functional.linear(z, weight, bias)
    with torch.autocast("cpu", enabled=False):
        z = z.to(dtype).contiguous()
        shift = None if bias is None else bias.detach().to(dtype)
        factor = weight.detach().to(dtype).contiguous()
        value: Tensor = _OfRows.apply(z, factor, shift)  # type: ignore[no-untyped-call]
        without = _OfParameters.apply(weight, bias, z.detach())  # type: ignore[no-untyped-call]
        joined: Tensor = _Joined.apply(value, without)  # type: ignore[no-untyped-call]
    return joined


def _type_of_product(z: Tensor, weight: Tensor) -> torch.dtype | None:
    """The type that oneDNN multiplies these in; None where torch's own product serves as well."""
    fits = z.ndim == 2 and z.numel() > 0 and z.shape[1] == weight.shape[-1]  # torch says what does not
    if not fits or {z.device.type, weight.device.type} != {"cpu"}:
        return None
    given = {z.dtype, weight.dtype}
    if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16:
        given = {torch.bfloat16} if given <= {torch.bfloat16, torch.float32} else given
    if given == {torch.bfloat16} and _has_onednn(torch.bfloat16):
        return torch.bfloat16
    return torch.float32 if given == {torch.float32} and _has_onednn(torch.float32) else None


@cache
def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether it is there, and the better choice."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    processor = torch.cpu.get_capabilities().get("cpu_name", "Intel")
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return has_mkl and "Intel" not in processor


class _OfRows(Function):
    """z Wᵀ + b as a function of z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return _in_blocks(z, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        return _in_blocks(derivative, weight.T.contiguous()), None, None


class _OfParameters(Function):
    """The same as a function of W and b, without its value."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        ctx.dtype = weight.dtype
        return z.new_zeros(1).expand(len(z), len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor | None, ...]:
        (z,) = ctx.saved_tensors
        of_bias = derivative.sum(0).to(ctx.dtype) if ctx.needs_input_grad[1] else None
        return _sum_of_products(derivative, z).to(ctx.dtype), of_bias, None


class _Joined(Function):
    """What has a value, with the derivatives of both: autograd then computes those that are asked for."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, without: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor, Tensor]:
        derivative = derivative.contiguous()
        return derivative, derivative


def _in_blocks(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(rows, out) rows times Wᵀ, plus b."""
    out = rows.new_empty(len(rows), len(weight))
    for part, block in _blocks(rows):
        out[part] = _product(block, weight, bias)[: part.stop - part.start]
    return out


def _sum_of_products(one: Tensor, other: Tensor) -> Tensor:
    """(columns of one, columns of other) float32, one transposed times the other, of the same rows."""
    if one.shape[1] == 1 < other.shape[1]:  # a single row of a product is cut by threads
        return _sum_of_products(other, one).T
    total = one.new_zeros(one.shape[1], other.shape[1], dtype=torch.float32)
    for (_, left), (_, right) in zip(_blocks(one), _blocks(other), strict=True):
        left, right = (each.view(-1, min(PIECE, len(each) // 2), each.shape[1]) for each in (left, right))
        total += torch.bmm(left.transpose(1, 2), right).sum(0, dtype=torch.float32)
    return total


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(rows, out) by oneDNN."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


def _blocks(rows: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Consecutive rows in blocks of a power of two, the largest first; the last is filled up with zeros."""
    start, size = 0, LARGEST
    smallest = max(LEAST, min(SMALLEST, 1 << (len(rows) - 1).bit_length()))
    while start < len(rows):
        while size > smallest and size > len(rows) - start:
            size //= 2
        stop = min(start + size, len(rows))
        block = rows[start:stop]
        if missing := size - len(block):
            block = torch.cat([block, block.new_zeros(missing, block.shape[1])])
        yield slice(start, stop), block
        start = stop
