"""The loops of `fast.py` in plain torch: the specification, and what runs where there is no faster form.

Those of a step run on any device of torch's, those that build batches on the host.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import hashed_random
from lmc.device import HOST, copied, widest_type
from lmc.kernels.plain_quantized import put_quantized as put_quantized
from lmc.kernels.plain_quantized import take_quantized as take_quantized
from lmc.kernels.plain_rows import is_symmetric as is_symmetric
from lmc.kernels.plain_rows import weigh as weigh
from lmc.kernels.plain_samples import draw as draw
from lmc.kernels.plain_samples import number as number
from lmc.kernels.plain_samples import pick as pick

GATHERED = 1 << 20
"""Entries of a sparse matrix whose messages are in memory at a time."""
WORD = 2**32 - 1
Keys = NDArray[np.uint64] | None
"""(rows,) what dropout draws from; None for no dropout."""
Told = Tensor | None
"""(rows, width) bool, written to: what relu and dropout let through; None for nobody."""


def wide_type(z: Tensor) -> torch.dtype:
    """In which sums over entries of z are taken, and columns described: float32, but float64 of float64."""
    return torch.float64 if z.dtype == torch.float64 else torch.float32


def spmm(indptr: Tensor, indices: Tensor, values: Tensor | None, inside: Tensor, outside: Tensor) -> Tensor:
    """(rows, width) of a CSR matrix times the rows of `inside` and then of `outside`."""
    dense = (torch.cat([inside, outside]) if len(outside) else inside).to(wide_type(inside))
    if values is None:
        values = torch.ones(indices.numel(), dtype=dense.dtype, device=dense.device)
    shape = (indptr.numel() - 1, len(dense))
    if dense.device.type not in ("cpu", "cuda"):  # torch has these products nowhere else
        return _sums_of_gathered(indptr, indices, values.to(dense.dtype), dense).to(inside.dtype)
    return (torch.sparse_csr_tensor(indptr, indices, values.to(dense.dtype), shape) @ dense).to(inside.dtype)


def _sums_of_gathered(indptr: Tensor, indices: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """(rows, width) of the product, some entries at a time."""
    rows = torch.arange(indptr.numel() - 1, device=dense.device)
    row = rows.repeat_interleave(indptr.diff().long(), output_size=indices.numel())
    out = dense.new_zeros(len(rows), dense.shape[1])
    for first in range(0, indices.numel(), GATHERED):
        part = slice(first, first + GATHERED)
        sent = values[part, None] * dense.index_select(0, indices[part].long())
        out = out.index_add(0, row[part], sent)
    return out


def moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """(width,) mean and (biased) variance of each column."""
    variance, mean = torch.var_mean(z.to(widest_type(z.device)), dim=0, correction=0)
    return mean.to(wide_type(z)), variance.to(wide_type(z))


def sums(derivative: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """(width,) sums over rows of g and of g z, g the derivative."""
    g = derivative.to(widest_type(z.device))
    return g.sum(0).to(wide_type(z)), (g * z).sum(0).to(wide_type(z))


def activate(z: Tensor, scale: Tensor, shift: Tensor, keys: Keys, p: float, passed: Told = None) -> Tensor:
    """(rows, width) dropout(relu(z * scale + shift)), column by column; no dropout without keys."""
    activated = (z * scale + shift).relu()
    if keys is not None:
        activated = activated * kept(keys, z.shape[1], p, z.device) * gain(p)
    activated = activated.to(z.dtype)
    if passed is not None:
        torch.gt(activated, 0, out=passed)
    return activated


def kept(keys: NDArray[np.uint64], width: int, p: float, device: torch.device = HOST) -> Tensor:
    """(rows, width) bool: which entries dropout keeps, each with probability 1 / `gain(p)`."""
    if device == HOST:
        return torch.from_numpy(hashed_random.columns(keys, width) >= threshold(p))
    return _columns(copied(torch.from_numpy(keys.view(np.int64)), device), width) >= int(threshold(p))


def _columns(keys: Tensor, width: int) -> Tensor:
    """(keys, width) int64, as `hashed_random.columns`, on the device of the keys.

    Of a product of two words the lower 32 bits are right, whatever becomes of those above 64.
    """
    low, high = (keys & WORD)[:, None], (keys >> 32 & WORD)[:, None]
    column = torch.arange((width + 1) // 2, device=keys.device)
    z = low ^ (column * 0x9E3779B9 & WORD)
    z = (z ^ z >> 16) * 0x7FEB352D & WORD
    z = (z ^ z >> 15) * 0x846CA68B & WORD
    z = (z ^ z >> 16) + high & WORD
    z = (z ^ z >> 16) * 0x7FEB352D & WORD
    z = (z ^ z >> 15) * 0x846CA68B & WORD
    z = z ^ z >> 16
    return torch.cat([z & 0xFFFF, z >> 16], dim=1)[:, :width]


def threshold(p: float) -> np.uint16:
    """Below which 16 uniform bits mean that an entry is dropped: p to the nearest 1/65536, but never all."""
    return np.uint16(min(round(p * 2**16), 2**16 - 1))


def gain(p: float) -> float:
    """What dropout multiplies the kept entries by, so that means stay what they were."""
    return 2**16 / (2**16 - int(threshold(p)))


def activated_sums(derivative: Tensor, passed: Tensor, z: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """(width,) sums over rows of g and of g z, g the derivative before relu and dropout.

    passed: (rows, width) bool, what relu and dropout let through.
    """
    return sums(derivative.to(wide_type(z)) * passed * gain(p), z)


def activated_vjp(
    derivative: Tensor, passed: Tensor, z: Tensor, p: float, of_g: Tensor, of_z: Tensor, of_1: Tensor
) -> Tensor:
    """(rows, width) the derivative at z: of_g g + of_z z + of_1, column by column."""
    g = derivative.to(wide_type(z)) * passed * gain(p)
    return (of_g * g + of_z * z + of_1).to(z.dtype)


def put_rows(rows: Tensor, values: Tensor, into: Tensor) -> None:
    """Write (rows, width) values to distinct rows of (any, width); rows below zero are left out."""
    there = rows >= 0
    into.index_copy_(0, rows[there], values[there])


def members(indptr: Tensor, indices: Tensor, nodes: Tensor) -> Tensor:
    """(nodes + halo,) int64: `nodes`, then their neighbours outside, in the order of first appearance."""
    found = torch.cat([nodes, _rows(indptr, indices, nodes)[1].long()])
    distinct, place = torch.unique(found, return_inverse=True)
    first = torch.full_like(distinct, found.numel())
    first.scatter_reduce_(0, place, torch.arange(found.numel()), "amin")
    in_order: Tensor = distinct[first.argsort()]
    return in_order


def localize(
    indptr: Tensor, indices: Tensor, values: Tensor | None, rows: Tensor, members: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """These rows of a CSR matrix, with the columns that are members, under their places among them."""
    lengths, columns, where = _rows(indptr, indices, rows)
    ids, local = members.to(columns.dtype).sort()
    place = torch.searchsorted(ids, columns).clamp_(max=max(0, ids.numel() - 1))
    within = ids[place] == columns if ids.numel() else torch.zeros_like(columns, dtype=torch.bool)
    row = torch.arange(len(rows)).repeat_interleave(lengths)[within]
    kept = torch.bincount(row, minlength=len(rows))
    offsets = torch.zeros(len(rows) + 1, dtype=indptr.dtype)
    offsets[1:] = kept.cumsum(0)
    found = local[place[within]].to(indices.dtype)
    return offsets, found, None if values is None else values[where[within]]


def _rows(indptr: Tensor, indices: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many entries each row has, their columns, and where they are stored."""
    start = indptr[rows].long()
    lengths = indptr[rows + 1].long() - start
    ends = lengths.cumsum(0)
    where = torch.arange(int(ends[-1]) if len(rows) else 0) + (start - ends + lengths).repeat_interleave(
        lengths
    )
    return lengths, indices[where], where


def swap_between_groups(
    order: NDArray[np.int64], size: int, described: NDArray[np.float64], steps: NDArray[np.int64]
) -> None:
    """Swap items of different groups while the squared deviations of the groups' sums from their mean fall.

    Args:
        order: (items,) int64, changed in place; a group is `size` consecutive ones.
        size: of a group.
        described: (any, columns) float64, what is summed up, by item.
        steps: (sweeps, tries) how far behind an item those are that it may be swapped with; of these the best
            is taken.
    """
    # A group's deviation differs from its sum by the same vector for all groups, which cancels out below.
    sums = described[order].reshape(-1, size, described.shape[1]).sum(axis=1)
    for tried in steps:
        swaps = 0
        for one in range(len(order)):
            others = (one + tried) % len(order)
            group, groups = one // size, others // size
            # d moves from the one group to the other: |g - d|^2 + |h + d|^2 - |g|^2 - |h|^2, halved
            d = described[order[one]] - described[order[others]]
            change = np.where(groups == group, 0.0, (d * (sums[groups] - sums[group] + d)).sum(axis=1))
            best = int(change.argmin())
            if change[best] < -1e-9:
                sums[group] -= d[best]
                sums[groups[best]] += d[best]
                order[[one, others[best]]] = order[[others[best], one]]
                swaps += 1
        if swaps == 0:
            return
