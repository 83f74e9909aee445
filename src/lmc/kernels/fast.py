"""Numba loops over rows.

A loop covers the rows from `start` to `stop` and holds no lock, so that `parallel.over` can give parts of the
rows to several threads. Each row, or fixed block of rows, is one thread's work from beginning to end: results
do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.kernels import compilation, parallel

compilation.prepare()

BLOCK = 512  # rows whose sums are taken by one thread, in order

_NO_KEYS = np.empty(0, dtype=np.uint64)
_loop: Any = numba.njit(nogil=True, cache=True, boundscheck=False, fastmath={"contract", "nsz"})


@_loop
def _spmm(
    start: Any, stop: Any, indptr: Any, indices: Any, values: Any, inside: Any, outside: Any, out: Any
) -> None:
    split, width = len(inside), out.shape[1]
    for i in range(start, stop):
        row = out[i]
        row[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            value = values[e]
            source = inside[j] if j < split else outside[j - split]
            for c in range(width):
                row[c] += value * source[c]


def spmm(indptr: Tensor, indices: Tensor, values: Tensor | None, inside: Tensor, outside: Tensor) -> Tensor:
    """(rows, width) of a CSR matrix times the rows of `inside` and then of `outside`."""
    if values is None:
        values = torch.ones(indices.numel(), dtype=inside.dtype)
    out = torch.empty(indptr.numel() - 1, inside.shape[1], dtype=inside.dtype)
    arrays = _arrays(indptr, indices, values, inside, outside, out)
    parallel.over(len(out), len(indices) * inside.shape[1], _spmm, *arrays)
    return out


@_loop
def _moments(start: Any, stop: Any, z: Any, sums: Any) -> None:
    rows, width = z.shape
    for b in range(start, stop):
        first, last = b * BLOCK, min(rows, (b + 1) * BLOCK)
        for i in range(first, last):
            for c in range(width):
                sums[b, 0, c] += z[i, c]
        # Squares about the block's own mean: no cancellation.
        for i in range(first, last):
            for c in range(width):
                d = z[i, c] - sums[b, 0, c] / (last - first)
                sums[b, 1, c] += d * d


def moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """(width,) mean and (biased) variance of each column."""
    rows, width = z.shape
    sums = np.zeros((-(-rows // BLOCK), 2, width))
    parallel.over(len(sums), z.numel(), _moments, *_arrays(z), sums)
    counts = np.full((len(sums), 1), float(BLOCK))
    counts[-1] = rows - BLOCK * (len(sums) - 1)
    mean = sums[:, 0].sum(0) / rows
    between = (counts * (sums[:, 0] / counts - mean) ** 2).sum(0)
    variance = (sums[:, 1].sum(0) + between) / rows
    return torch.from_numpy(mean).to(z.dtype), torch.from_numpy(variance).to(z.dtype)


@_loop
def _activate(
    start: Any, stop: Any, z: Any, scale: Any, shift: Any, keys: Any, threshold: Any, gain: Any, out: Any
) -> None:
    width = z.shape[1]
    for i in range(start, stop):
        if len(keys) == 0:
            for c in range(width):
                out[i, c] = max(z[i, c] * scale[c] + shift[c], 0)
        else:
            low, high = np.uint32(keys[i]), np.uint32(keys[i] >> np.uint64(32))
            for c in range(width):
                # The mixer of `addressed.columns`.
                h = low ^ np.uint32(np.uint32(c) * np.uint32(0x9E3779B9))
                h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
                h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
                h = np.uint32((h ^ (h >> np.uint32(16))) + high)
                h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
                h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
                h = h ^ (h >> np.uint32(16))
                y = max(z[i, c] * scale[c] + shift[c], 0)
                out[i, c] = y * gain if h >= threshold else 0


def activate(z: Tensor, scale: Tensor, shift: Tensor, keys: NDArray[np.uint64] | None, p: float) -> Tensor:
    """(rows, width) dropout(relu(z * scale + shift)), column by column; no dropout without keys."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    dropout = (_NO_KEYS if keys is None else keys, np.uint32(p * 2.0**32), _gain(z, p))
    parallel.over(len(z), z.numel(), _activate, *_arrays(z, scale, shift), *dropout, *_arrays(out))
    return out


@_loop
def _activated_sums(
    start: Any, stop: Any, derivative: Any, activated: Any, z: Any, gain: Any, sums: Any
) -> None:
    rows, width = z.shape
    for b in range(start, stop):
        for i in range(b * BLOCK, min(rows, (b + 1) * BLOCK)):
            for c in range(width):
                g = derivative[i, c] * gain if activated[i, c] > 0 else 0
                sums[b, 0, c] += g
                sums[b, 1, c] += g * z[i, c]


def activated_sums(derivative: Tensor, activated: Tensor, z: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """(width,) sums over rows of g and of g z, g the derivative before relu and dropout."""
    rows, width = z.shape
    sums = np.zeros((-(-rows // BLOCK), 2, width))
    arrays = _arrays(derivative, activated, z)
    parallel.over(len(sums), z.numel(), _activated_sums, *arrays, _gain(z, p), sums)
    total = torch.from_numpy(sums.sum(0)).to(z.dtype)
    return total[0], total[1]


@_loop
def _activated_pull(
    start: Any,
    stop: Any,
    derivative: Any,
    activated: Any,
    z: Any,
    gain: Any,
    of_g: Any,
    of_z: Any,
    of_1: Any,
    out: Any,
) -> None:
    width = z.shape[1]
    for i in range(start, stop):
        for c in range(width):
            g = derivative[i, c] * gain if activated[i, c] > 0 else 0
            out[i, c] = of_g[c] * g + of_z[c] * z[i, c] + of_1[c]


def activated_pull(
    derivative: Tensor, activated: Tensor, z: Tensor, p: float, of_g: Tensor, of_z: Tensor, of_1: Tensor
) -> Tensor:
    """(rows, width) of_g g + of_z z + of_1, column by column."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    rows, columns = _arrays(derivative, activated, z), _arrays(of_g, of_z, of_1, out)
    parallel.over(len(z), z.numel(), _activated_pull, *rows, _gain(z, p), *columns)
    return out


def _arrays(*tensors: Tensor) -> list[NDArray[Any]]:
    return [tensor.contiguous().numpy() for tensor in tensors]


def _gain(z: Tensor, p: float) -> Any:
    """What dropout multiplies by, in the type of z, so that no loop computes in a wider one."""
    return (np.float32 if z.dtype == torch.float32 else np.float64)(1 / (1 - p))


# -- batches -------------------------------------------------------------------------------------


@_loop
def _slot(keys: Any, node: Any) -> Any:
    """Where a node is, or would be, in a table of open addresses whose size is a power of two."""
    mask = np.uint64(len(keys) - 1)
    h = np.uint64(node) * np.uint64(0x9E3779B97F4A7C15)
    slot = (h >> np.uint64(32)) & mask
    while keys[slot] != node and keys[slot] != -1:
        slot = (slot + np.uint64(1)) & mask
    return slot


@_loop
def _table(members: Any, count: Any, capacity: Any) -> Any:
    keys, places = np.full(capacity, -1, np.int64), np.empty(capacity, np.int64)
    for place in range(count):
        slot = _slot(keys, members[place])
        keys[slot], places[slot] = members[place], place
    return keys, places


@_loop
def _members(indptr: Any, indices: Any, nodes: Any) -> Any:
    count = len(nodes)
    capacity = 1024
    while capacity < 4 * count:
        capacity *= 2
    found = np.empty(capacity // 2, np.int64)
    found[:count] = nodes
    keys, _ = _table(found, count, capacity)
    for node in nodes:
        for e in range(indptr[node], indptr[node + 1]):
            slot = _slot(keys, indices[e])
            if keys[slot] == -1:
                if count == len(found):  # half full: twice the room
                    capacity *= 2
                    larger = np.empty(capacity // 2, np.int64)
                    larger[:count] = found
                    found = larger
                    keys, _ = _table(found, count, capacity)
                    slot = _slot(keys, indices[e])
                keys[slot] = indices[e]
                found[count] = indices[e]
                count += 1
    return found[:count].copy()


def members(indptr: Tensor, indices: Tensor, nodes: Tensor) -> Tensor:
    """(nodes + halo,) int64: `nodes`, then their neighbours outside, in the order of first appearance."""
    return torch.from_numpy(_members(indptr.numpy(), indices.numpy(), nodes.contiguous().numpy()))


@_loop
def _localize(indptr: Any, indices: Any, values: Any, rows: Any, members: Any) -> Any:
    capacity = 1024
    while capacity < 2 * len(members):
        capacity *= 2
    keys, places = _table(members, len(members), capacity)
    total = 0
    for row in rows:
        total += indptr[row + 1] - indptr[row]
    offsets = np.zeros(len(rows) + 1, indptr.dtype)
    columns, weights = np.empty(total, indices.dtype), np.empty(total if len(values) else 0, values.dtype)
    count = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            slot = _slot(keys, indices[e])
            if keys[slot] != -1:
                columns[count] = places[slot]
                if len(values):
                    weights[count] = values[e]
                count += 1
        offsets[i + 1] = count
    if count < total:
        columns, weights = columns[:count].copy(), weights[:count].copy()
    return offsets, columns, weights


def localize(
    indptr: Tensor, indices: Tensor, values: Tensor | None, rows: Tensor, members: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """These rows of a CSR matrix, with the columns that are members, under their places among them."""
    given = np.empty(0, np.float32) if values is None else values.numpy()
    arrays = (t.contiguous().numpy() for t in (rows, members))
    offsets, columns, weights = map(
        torch.from_numpy, _localize(indptr.numpy(), indices.numpy(), given, *arrays)
    )
    return offsets, columns, None if values is None else weights
