"""Numba loops over rows.

A loop covers the rows from `start` to `stop` and holds no lock, so that `parallel.over` can give parts of the
rows to several threads. Each row, or fixed block of rows, is one thread's work from beginning to end: results
do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.kernels import parallel, plain
from lmc.kernels.compilation import loop
from lmc.kernels.fast_batches import localize as localize
from lmc.kernels.fast_batches import members as members
from lmc.kernels.fast_batches import swap_between_groups as swap_between_groups
from lmc.kernels.fast_quantized import put_quantized as put_quantized
from lmc.kernels.fast_quantized import take_quantized as take_quantized
from lmc.kernels.fast_rows import is_symmetric as is_symmetric
from lmc.kernels.fast_rows import weigh as weigh
from lmc.kernels.fast_samples import draw as draw
from lmc.kernels.fast_samples import number as number
from lmc.kernels.fast_samples import pick as pick
from lmc.kernels.fetch import LINE, fetch
from lmc.kernels.plain import Keys, Told
from lmc.kernels.words import stored, value_of, wide, words

BLOCK = 512  # rows whose sums are taken by one thread, in order
WIDE, AHEAD = (
    128,
    12,
)  # columns from which on rows do not come by themselves; entries that they are asked for ahead

_NO_KEYS = np.empty(0, dtype=np.uint64)
_UNTOLD = np.empty((0, 0), dtype=np.bool_)


@loop
def _spmm(
    start: Any,
    stop: Any,
    indptr: Any,
    indices: Any,
    values: Any,
    inside: Any,
    outside: Any,
    like: Any,
    out: Any,
) -> None:
    split, width, row = len(inside), out.shape[1], np.empty_like(like)
    stride = LINE // inside.itemsize
    for i in range(start, stop):
        row[:] = 0
        end = indptr[i + 1]
        last = end - (end - indptr[i]) % 4
        # Four entries at a time, so that the row is read and written once for them; sums keep their order.
        for e in range(indptr[i], last, 4):
            if width >= WIDE:
                for coming in range(e + AHEAD, min(e + AHEAD + 4, indptr[stop])):
                    j = indices[coming]
                    if j < split:
                        for c in range(0, width, stride):
                            fetch(inside, j, c)  # type: ignore[call-arg]
                    else:
                        for c in range(0, width, stride):
                            fetch(outside, j - split, c)  # type: ignore[call-arg]
            j_0, j_1, j_2, j_3 = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
            of_0, of_1, of_2, of_3 = values[e], values[e + 1], values[e + 2], values[e + 3]
            s_0 = inside[j_0] if j_0 < split else outside[j_0 - split]
            s_1 = inside[j_1] if j_1 < split else outside[j_1 - split]
            s_2 = inside[j_2] if j_2 < split else outside[j_2 - split]
            s_3 = inside[j_3] if j_3 < split else outside[j_3 - split]
            for c in range(width):
                two = row[c] + of_0 * value_of(s_0[c]) + of_1 * value_of(s_1[c])
                row[c] = two + of_2 * value_of(s_2[c]) + of_3 * value_of(s_3[c])
        for e in range(last, end):
            j = indices[e]
            value = values[e]
            source = inside[j] if j < split else outside[j - split]
            for c in range(width):
                row[c] += value * value_of(source[c])
        for c in range(width):
            out[i, c] = stored(row[c], out)


def spmm(indptr: Tensor, indices: Tensor, values: Tensor | None, inside: Tensor, outside: Tensor) -> Tensor:
    """(rows, width) of a CSR matrix times the rows of `inside` and then of `outside`."""
    if values is None:
        values = torch.ones(indices.numel(), dtype=plain.wide_type(inside))
    out = torch.empty(indptr.numel() - 1, inside.shape[1], dtype=inside.dtype)
    arrays = _arrays(indptr, indices, values, inside, outside)
    parallel.over(len(out), len(indices) * inside.shape[1], _spmm, *arrays, _row(inside), words(out))
    return out


@loop
def _moments(start: Any, stop: Any, z: Any, like: Any, sums: Any) -> None:
    rows, width = z.shape
    total, squares = np.empty_like(like), np.empty_like(like)
    for b in range(start, stop):
        first, last = b * BLOCK, min(rows, (b + 1) * BLOCK)
        total[:], squares[:] = 0, 0
        for i in range(first, last):
            for c in range(width):
                total[c] += value_of(z[i, c])
        sums[b, 0] = total
        total /= last - first
        # Squares about the block's own mean: no cancellation.
        for i in range(first, last):
            for c in range(width):
                d = value_of(z[i, c]) - total[c]
                squares[c] += d * d
        sums[b, 1] = squares


def moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """(width,) mean and (biased) variance of each column."""
    rows, width = z.shape
    sums = np.zeros((-(-rows // BLOCK), 2, width))
    parallel.over(len(sums), z.numel(), _moments, *_arrays(z), _row(z), sums)
    counts = np.full((len(sums), 1), float(BLOCK))
    counts[-1] = rows - BLOCK * (len(sums) - 1)
    with np.errstate(invalid="ignore"):  # of infinite ones; a step says it of the loss
        mean = sums[:, 0].sum(0) / rows
        between = (counts * (sums[:, 0] / counts - mean) ** 2).sum(0)
        variance = (sums[:, 1].sum(0) + between) / rows
    wide_mean, wide_variance = (torch.from_numpy(each).to(plain.wide_type(z)) for each in (mean, variance))
    return wide_mean, wide_variance


@loop
def _sums(start: Any, stop: Any, derivative: Any, z: Any, sums: Any) -> None:
    rows, width = z.shape
    for b in range(start, stop):
        for i in range(b * BLOCK, min(rows, (b + 1) * BLOCK)):
            for c in range(width):
                g = value_of(derivative[i, c])
                sums[b, 0, c] += g
                sums[b, 1, c] += g * value_of(z[i, c])


def sums(derivative: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """(width,) sums over rows of g and of g z, g the derivative."""
    rows, width = z.shape
    found = np.zeros((-(-rows // BLOCK), 2, width))
    parallel.over(len(found), z.numel(), _sums, *_arrays(derivative, z), found)
    total = torch.from_numpy(found.sum(0)).to(plain.wide_type(z))
    return total[0], total[1]


@loop
def _word(low: Any, high: Any, c: Any) -> Any:
    """The mixer of `hashed_random.columns`."""
    h = low ^ np.uint32(np.uint32(c) * np.uint32(0x9E3779B9))
    h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
    h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
    h = np.uint32((h ^ (h >> np.uint32(16))) + high)
    h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
    h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
    return h ^ (h >> np.uint32(16))


@loop
def _activate(
    start: Any,
    stop: Any,
    z: Any,
    scale: Any,
    shift: Any,
    keys: Any,
    threshold: Any,
    gain: Any,
    passed: Any,
    out: Any,
) -> None:
    width, zero = z.shape[1], gain * 0  # of the type that is computed in: a 0 would make it a wider one
    half = (width + 1) // 2
    drawn = np.empty(half, np.uint32)
    scale_2, shift_2 = scale[half:], shift[half:]
    for i in range(start, stop):
        if len(keys) == 0:
            for c in range(width):
                out[i, c] = stored(max(value_of(z[i, c]) * scale[c] + shift[c], zero), out)
        else:
            low, high = np.uint32(keys[i]), np.uint32(keys[i] >> np.uint64(32))
            for c in range(half):
                drawn[c] = _word(low, high, c)
            # Loops over slices that begin at zero are what the compiler turns into vector instructions.
            z_1, z_2, out_1, out_2 = z[i, :half], z[i, half:], out[i, :half], out[i, half:]
            for c in range(half):
                y = max(value_of(z_1[c]) * scale[c] + shift[c], zero)
                out_1[c] = stored(y * gain if drawn[c] & np.uint32(0xFFFF) >= threshold else zero, out)
            for c in range(width - half):
                y = max(value_of(z_2[c]) * scale_2[c] + shift_2[c], zero)
                out_2[c] = stored(y * gain if drawn[c] >> np.uint32(16) >= threshold else zero, out)
        if len(passed) > 0:
            passed_i, out_i = passed[i], out[i]
            for c in range(width):
                passed_i[c] = value_of(out_i[c]) > 0


def activate(z: Tensor, scale: Tensor, shift: Tensor, keys: Keys, p: float, passed: Told = None) -> Tensor:
    """(rows, width) dropout(relu(z * scale + shift)), column by column; no dropout without keys."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    dropout = (_NO_KEYS if keys is None else keys, np.uint32(plain.threshold(p)), _gain(z, p))
    told = _UNTOLD if passed is None else words(passed)
    parallel.over(len(z), z.numel(), _activate, *_arrays(z, scale, shift), *dropout, told, *_arrays(out))
    return out


@loop
def _activated_sums(
    start: Any, stop: Any, derivative: Any, passed: Any, z: Any, gain: Any, sums: Any
) -> None:
    (rows, width), zero = z.shape, gain * 0
    for b in range(start, stop):
        for i in range(b * BLOCK, min(rows, (b + 1) * BLOCK)):
            for c in range(width):
                g = value_of(derivative[i, c]) * gain if passed[i, c] else zero
                sums[b, 0, c] += g
                sums[b, 1, c] += g * value_of(z[i, c])


def activated_sums(derivative: Tensor, passed: Tensor, z: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """(width,) sums over rows of g and of g z, g the derivative before relu and dropout."""
    rows, width = z.shape
    sums = np.zeros((-(-rows // BLOCK), 2, width))
    arrays = _arrays(derivative, passed, z)
    parallel.over(len(sums), z.numel(), _activated_sums, *arrays, _gain(z, p), sums)
    total = torch.from_numpy(sums.sum(0)).to(plain.wide_type(z))
    return total[0], total[1]


@loop
def _activated_vjp(
    start: Any,
    stop: Any,
    derivative: Any,
    passed: Any,
    z: Any,
    gain: Any,
    of_g: Any,
    of_z: Any,
    of_1: Any,
    out: Any,
) -> None:
    width, zero = z.shape[1], gain * 0
    for i in range(start, stop):
        derivative_i, passed_i, z_i, out_i = derivative[i], passed[i], z[i], out[i]
        for c in range(width):
            g = value_of(derivative_i[c]) * gain if passed_i[c] else zero
            out_i[c] = stored(of_g[c] * g + of_z[c] * value_of(z_i[c]) + of_1[c], out)


def activated_vjp(
    derivative: Tensor, passed: Tensor, z: Tensor, p: float, of_g: Tensor, of_z: Tensor, of_1: Tensor
) -> Tensor:
    """(rows, width) the derivative at z: of_g g + of_z z + of_1, column by column."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    rows, columns = _arrays(derivative, passed, z), _arrays(of_g, of_z, of_1, out)
    parallel.over(len(z), z.numel(), _activated_vjp, *rows, _gain(z, p), *columns)
    return out


def _arrays(*tensors: Tensor) -> list[NDArray[Any]]:
    return [words(tensor.contiguous()) for tensor in tensors]


def _row(z: Tensor) -> NDArray[Any]:
    """(width,) of the type that a row of z is computed in."""
    return np.empty(z.shape[1], wide(z))


def _gain(z: Tensor, p: float) -> Any:
    """What dropout multiplies by, in the type that loops compute in, so that none computes in a wider one."""
    return wide(z)(plain.gain(p))


@loop
def _put_rows(start: Any, stop: Any, rows: Any, values: Any, into: Any) -> None:
    width = values.shape[1]
    for i in range(start, stop):
        if rows[i] >= 0:
            row = into[rows[i]]
            for c in range(width):
                row[c] = values[i, c]


def put_rows(rows: Tensor, values: Tensor, into: Tensor) -> None:
    """Write (rows, width) values to distinct rows of (any, width); rows below zero are left out."""
    parallel.over(len(values), values.numel(), _put_rows, *_arrays(rows, values), words(into))
