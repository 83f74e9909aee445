"""The loops of a step in Triton, for tensors on a GPU.

A program has its tile of a matrix to itself, and no two write to the same place: the order of sums is fixed.
They are taken in float32, of float16 and bfloat16 too, and of float64 in float64; sums over all rows are made
of those over tiles, in float64.

What is shown, without a GPU: in Triton's interpreter each loop has the values of its twin in `plain.py`, and
dropout's masks to the bit; and each compiles to machine code for NVIDIA's GPUs. Not shown: that the machine
code has these values, and how fast it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from lmc.kernels import plain
from lmc.kernels.plain import Keys, Told
from lmc.kernels.plain_quantized import put_quantized as put_quantized
from lmc.kernels.plain_quantized import take_quantized as take_quantized

ROWS, COLUMNS = tl.constexpr(64), tl.constexpr(64)  # of a tile
ENTRIES = tl.constexpr(32)  # of a row of a sparse matrix that are read at once


def _kernel(function: Callable[..., Any]) -> Any:
    return triton.jit(function)


def _launch(kernel: Any, programs: tuple[int, int], first: Tensor, *arguments: Any) -> None:
    """Run as many programs, or none, on the device of the first argument."""
    with torch.cuda.device(first.get_device()):  # Triton asks torch for the current one
        kernel[programs](first, *arguments, enable_fp_fusion=True)  # Triton warns unless told


def _tiles(rows: int, width: int) -> tuple[int, int]:
    return -(-rows // ROWS.value), -(-width // COLUMNS.value)


@_kernel
def _tile(rows: tl.tensor, width: tl.tensor) -> Any:
    """The rows and columns of this program's tile, and where in it there are entries."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return row, column, (row < rows) & (column < width)


@_kernel
def _wide(values: tl.tensor) -> Any:
    """The same values in the type that sums are taken in."""
    return values if values.dtype == tl.float64 else values.to(tl.float32)


@_kernel
def _spmm(
    out: tl.tensor,
    indptr: tl.tensor,
    indices: tl.tensor,
    values: tl.tensor,
    inside: tl.tensor,
    outside: tl.tensor,
    split: tl.tensor,
    width: tl.tensor,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    first, last = tl.load(indptr + row).to(tl.int64), tl.load(indptr + row + 1).to(tl.int64)
    total = _wide(tl.zeros([ENTRIES, COLUMNS], out.dtype.element_ty))
    for start in range(first, last, ENTRIES):
        entry = start + tl.arange(0, ENTRIES)[:, None]
        j = tl.load(indices + entry, entry < last, 0).to(tl.int64)
        value = tl.load(values + entry, entry < last, 0.0)
        there = (entry < last) & (column < width)
        source = _wide(tl.load(inside + j * width + column, there & (j < split), 0.0))
        source += _wide(tl.load(outside + (j - split) * width + column, there & (j >= split), 0.0))
        total += (_wide(value) * source).to(total.dtype)
    tl.store(out + row * width + column, tl.sum(total, 0, keep_dims=True), column < width)


def spmm(indptr: Tensor, indices: Tensor, values: Tensor | None, inside: Tensor, outside: Tensor) -> Tensor:
    """(rows, width) of a CSR matrix times the rows of `inside` and then of `outside`."""
    if values is None:
        values = inside.new_ones(indices.numel())
    rows, width = indptr.numel() - 1, inside.shape[1]
    out = inside.new_empty(rows, width)
    arguments = _contiguous(indptr, indices, values, inside, outside)
    _launch(_spmm, (rows, _tiles(rows, width)[1]), out, *arguments, len(inside), width)
    return out


@_kernel
def _put_sums(
    found: tl.tensor, first: tl.tensor, second: tl.tensor, column: tl.tensor, width: tl.tensor
) -> None:
    """Two sums over the rows of a tile, to their place in (tiles, 2, width)."""
    at = found + tl.program_id(0).to(tl.int64) * 2 * width + column
    tl.store(at, first, column < width)
    tl.store(at + width, second, column < width)


@_kernel
def _moments(found: tl.tensor, z: tl.tensor, rows: tl.tensor, width: tl.tensor) -> None:
    row, column, there = _tile(rows, width)
    x = tl.load(z + row * width + column, there, 0.0).to(found.dtype.element_ty)
    total = tl.sum(x, 0, keep_dims=True)
    # Squares about the tile's own mean: no cancellation.
    deviation = tl.where(there, x - total / tl.minimum(rows - tl.program_id(0) * ROWS, ROWS), 0.0)
    _put_sums(found, total, tl.sum(deviation * deviation, 0, keep_dims=True), column, width)


def moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """(width,) mean and (biased) variance of each column."""
    totals, squares = _sums_of_tiles(_moments, z)
    rows = len(z)
    counts = (rows - ROWS.value * torch.arange(len(totals), device=z.device)).clamp(max=ROWS.value)[:, None]
    mean = totals.sum(0) / rows
    between = (counts * (totals / counts - mean) ** 2).sum(0)
    variance = (squares.sum(0) + between) / rows
    return mean.to(plain.wide_type(z)), variance.to(plain.wide_type(z))


def _sums_of_tiles(kernel: Any, z: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    """Two sums over the rows of each tile: (tiles, width) float64 each."""
    rows, width = z.shape
    tiles = _tiles(rows, width)
    found = z.new_empty(tiles[0], 2, width, dtype=plain.wide_type(z))
    _launch(kernel, tiles, found, *_contiguous(z, *others), rows, width)
    first, second = found.double().unbind(1)
    return first, second


@_kernel
def _sums(found: tl.tensor, z: tl.tensor, derivative: tl.tensor, rows: tl.tensor, width: tl.tensor) -> None:
    row, column, there = _tile(rows, width)
    g = tl.load(derivative + row * width + column, there, 0.0).to(found.dtype.element_ty)
    g_z = g * tl.load(z + row * width + column, there, 0.0)
    _put_sums(found, tl.sum(g, 0, keep_dims=True), tl.sum(g_z, 0, keep_dims=True), column, width)


def sums(derivative: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """(width,) sums over rows of g and of g z, g the derivative."""
    g, g_z = _sums_of_tiles(_sums, z, derivative)
    return g.sum(0).to(plain.wide_type(z)), g_z.sum(0).to(plain.wide_type(z))


@_kernel
def _word(low: tl.tensor, high: tl.tensor, c: tl.tensor) -> Any:
    """The mixer of `hashed_random.columns`."""
    h = low ^ (c * 0x9E3779B9)
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    h = (h ^ (h >> 16)) + high
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@_kernel
def _activate(
    out: tl.tensor,
    z: tl.tensor,
    scale: tl.tensor,
    shift: tl.tensor,
    keys: tl.tensor,
    threshold: tl.tensor,
    passed: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
) -> None:
    row, column, there = _tile(rows, width)
    s, t = tl.load(scale + column, column < width, 0.0), tl.load(shift + column, column < width, 0.0)
    y = tl.load(z + row * width + column, there, 0.0) * s + t
    y = tl.where(y < 0, 0.0, y)  # what is no number stays so
    if keys is not None:
        key = tl.load(keys + row, row < rows, 0)
        half = (width + 1) // 2
        c = tl.where(column < half, column, column - half)
        word = _word(key.to(tl.uint32), (key >> 32).to(tl.uint32), c.to(tl.uint32))
        y = tl.where(tl.where(column < half, word & 0xFFFF, word >> 16) >= threshold, y, 0.0)
    tl.store(out + row * width + column, y, there)
    if passed is not None:
        tl.store(passed + row * width + column, y > 0, there)


def activate(z: Tensor, scale: Tensor, shift: Tensor, keys: Keys, p: float, passed: Told = None) -> Tensor:
    """(rows, width) dropout(relu(z * scale + shift)), column by column; no dropout without keys."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    words, gain = None, 1.0
    if keys is not None:
        words, gain = torch.from_numpy(keys.view(np.int64)).to(z.device, non_blocking=True), plain.gain(p)
    # The gain is not negative: it may be multiplied by before relu, where columns have a factor anyway.
    columns = (gain * each.to(plain.wide_type(z)) for each in (scale, shift))
    arguments = (*_contiguous(z, *columns), words, int(plain.threshold(p)), passed, *z.shape)
    _launch(_activate, _tiles(*z.shape), out, *arguments)
    return out


@_kernel
def _activated_sums(
    found: tl.tensor,
    z: tl.tensor,
    derivative: tl.tensor,
    passed: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
) -> None:
    row, column, there = _tile(rows, width)
    through = there & (tl.load(passed + row * width + column, there, 0) != 0)
    g = tl.load(derivative + row * width + column, through, 0.0).to(found.dtype.element_ty)
    g_z = g * tl.load(z + row * width + column, there, 0.0)
    _put_sums(found, tl.sum(g, 0, keep_dims=True), tl.sum(g_z, 0, keep_dims=True), column, width)


def activated_sums(derivative: Tensor, passed: Tensor, z: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """(width,) sums over rows of g and of g z, g the derivative before relu and dropout."""
    g, g_z = _sums_of_tiles(_activated_sums, z, derivative, passed)
    wide = plain.wide_type(z)
    return (plain.gain(p) * g.sum(0)).to(wide), (plain.gain(p) * g_z.sum(0)).to(wide)


@_kernel
def _activated_vjp(
    out: tl.tensor,
    derivative: tl.tensor,
    passed: tl.tensor,
    z: tl.tensor,
    of_g: tl.tensor,
    of_z: tl.tensor,
    of_1: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
) -> None:
    row, column, there = _tile(rows, width)
    through = there & (tl.load(passed + row * width + column, there, 0) != 0)
    g = tl.load(derivative + row * width + column, through, 0.0)
    x = tl.load(z + row * width + column, there, 0.0)
    in_g, in_z = tl.load(of_g + column, column < width, 0.0), tl.load(of_z + column, column < width, 0.0)
    y = in_g * g + in_z * x + tl.load(of_1 + column, column < width, 0.0)
    tl.store(out + row * width + column, y, there)


def activated_vjp(
    derivative: Tensor, passed: Tensor, z: Tensor, p: float, of_g: Tensor, of_z: Tensor, of_1: Tensor
) -> Tensor:
    """(rows, width) the derivative at z: of_g g + of_z z + of_1, column by column."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    wide = plain.wide_type(z)
    columns = (plain.gain(p) * of_g.to(wide), of_z.to(wide), of_1.to(wide))
    arguments = _contiguous(derivative, passed, z, *columns)
    _launch(_activated_vjp, _tiles(*z.shape), out, *arguments, *z.shape)
    return out


@_kernel
def _put_rows(
    into: tl.tensor,
    places: tl.tensor,
    values: tl.tensor,
    row_stride: tl.tensor,
    column_stride: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
) -> None:
    row, column, there = _tile(rows, width)
    place = tl.load(places + row, row < rows, -1).to(tl.int64)
    value = tl.load(values + row * width + column, there, 0.0)
    at = into + place * row_stride + column.to(tl.int64) * column_stride
    tl.store(at, value, there & (place >= 0))


def put_rows(rows: Tensor, values: Tensor, into: Tensor) -> None:
    """Write (rows, width) values to distinct rows of (any, width); rows below zero are left out."""
    arguments = (*_contiguous(rows, values), *into.stride(), *values.shape)
    _launch(_put_rows, _tiles(*values.shape), into, *arguments)


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [tensor.contiguous() for tensor in tensors]
