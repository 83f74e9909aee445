"""Loops that draw messages: which neighbours a node hears, and where those stand in a matrix.

What is drawn for a node depends on its key and its own row alone: results do not depend on the number of
threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.kernels import parallel
from lmc.kernels.compilation import loop
from lmc.kernels.fast_batches import _slot, _table
from lmc.kernels.plain_samples import SCANNED

AHEAD = 64
"""Rows that are fetched together."""


@loop
def _mixed(key: Any, place: Any) -> Any:
    """64 uniform bits, as `hashed_random.bits` would continue a key by a place."""
    z = (key ^ np.uint64(place)) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@loop
def _fetch(start: Any, stop: Any, indptr: Any, indices: Any, rows: Any) -> Any:
    """Bring rows that lie far apart into the processor's cache: none of these reads waits for another.

    What it returns says nothing, but must be stored, or a compiler would see that nothing need be read.
    """
    read = 0
    for i in range(start, stop):
        if indptr[rows[i]] < indptr[rows[i] + 1]:
            read ^= indices[indptr[rows[i]]]
    return read


@loop
def _draw(
    start: Any,
    stop: Any,
    indptr: Any,
    indices: Any,
    nodes: Any,
    keys: Any,
    offsets: Any,
    columns: Any,
    factors: Any,
) -> None:
    for i in range(start, stop):
        if (i - start) % AHEAD == 0:
            columns[offsets[i]] = _fetch(i, min(i + AHEAD, stop), indptr, indices, nodes)
        first, place = indptr[nodes[i]], offsets[i]
        degree, wanted = indptr[nodes[i] + 1] - first, offsets[i + 1] - offsets[i] - 1
        columns[place], factors[place] = nodes[i], 1.0
        for w in range(place + 1, place + 1 + wanted):
            factors[w] = degree / wanted
        if wanted * wanted > SCANNED * degree:
            left = wanted
            for e in range(degree):
                if left == 0:
                    break
                # Each of those that remain is as likely as the others to be among those still wanted.
                if _mixed(keys[i], e) % np.uint64(degree - e) < np.uint64(left):
                    place += 1
                    columns[place] = indices[first + e]
                    left -= 1
        else:
            # Floyd's: of the first `last + 1` neighbours one more, the last where that one is in already.
            begin = place + 1
            for last in range(degree - wanted, degree):
                chosen = np.int64(_mixed(keys[i], last) % np.uint64(last + 1))
                at = begin
                while at <= place and columns[at] < chosen:
                    at += 1
                place += 1
                if at < place and columns[at] == chosen:
                    columns[place] = last  # above all that are in
                else:
                    for w in range(place, at, -1):
                        columns[w] = columns[w - 1]
                    columns[at] = chosen
            for w in range(begin, place + 1):
                columns[w] = indices[first + columns[w]]


def draw(
    indptr: Tensor, indices: Tensor, nodes: Tensor, keys: NDArray[np.uint64], most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """For each node itself and `most` of its neighbours (-1 for all), drawn without replacement.

    Args:
        indptr: of a CSR matrix whose rows have distinct columns, none of them the row itself.
        indices: its columns.
        nodes: (rows,) int64.
        keys: (rows,) what each draw depends on.
        most: neighbours to draw.

    Returns:
        CSR of as many rows: offsets, columns, the node first, and (float64) how many each stands for.
    """
    degrees = (indptr[nodes + 1] - indptr[nodes]).long()
    wanted = degrees if most < 0 else degrees.clamp(max=most)
    offsets = torch.zeros(len(nodes) + 1, dtype=torch.int64)
    torch.cumsum(wanted + 1, 0, out=offsets[1:])
    total = int(offsets[-1])
    columns, factors = torch.empty(total, dtype=torch.int64), torch.empty(total, dtype=torch.float64)
    arrays = (indptr.numpy(), indices.numpy(), nodes.numpy(), keys)
    out = (offsets.numpy(), columns.numpy(), factors.numpy())
    parallel.over(len(nodes), int(degrees.sum()), _draw, *arrays, *out)
    return offsets, columns, factors


@loop
def _number(nodes: Any, columns: Any, found: Any, places: Any) -> Any:
    keys, numbers = _table(nodes, 2 * (len(nodes) + len(columns)))
    count = len(nodes)
    for e in range(len(columns)):
        slot = _slot(keys, columns[e])
        if keys[slot] == -1:
            keys[slot], numbers[slot] = columns[e], count
            found[count] = columns[e]
            count += 1
        places[e] = numbers[slot]
    return count


def number(nodes: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """`nodes` and then other columns in the order of first appearance; and each column's place among them."""
    found, places = torch.empty(len(nodes) + len(columns), dtype=torch.int64), torch.empty_like(columns)
    found[: len(nodes)] = nodes
    count = _number(nodes.numpy(), columns.numpy(), found.numpy(), places.numpy())
    return found[:count].clone(), places


@loop
def _first(indices: Any, low: Any, high: Any, column: Any) -> Any:
    """Where the entries of a column begin between two places, or would; quick where it is near the first."""
    stride, top = 1, low
    while top < high and indices[top] < column:
        low, top, stride = top + 1, top + stride, 2 * stride
    high = min(top, high)
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low


@loop
def _pick(
    start: Any,
    stop: Any,
    indptr: Any,
    indices: Any,
    rows: Any,
    stacked: Any,
    offsets: Any,
    columns: Any,
    starts: Any,
    counts: Any,
    entry: Any,
    which: Any,
) -> None:
    """Count what is there; find it as well, as far as there is room before the next row starts."""
    for i in range(start, stop):
        if (i - start) % AHEAD == 0:
            counts[i] = _fetch(i, min(i + AHEAD, stop), indptr, indices, rows)
        count, low, high = 0, indptr[rows[i]], indptr[rows[i] + 1]
        begin, end = offsets[i // stacked], offsets[i // stacked + 1]
        for w in range(begin, end):
            if w > begin and columns[w] < columns[w - 1]:
                low = indptr[rows[i]]
            low = _first(indices, low, high, columns[w])
            while low < high and indices[low] == columns[w]:
                if starts[i] + count < starts[i + 1]:
                    entry[starts[i] + count], which[starts[i] + count] = low, w
                count += 1
                low += 1
        counts[i] = count


def pick(
    indptr: Tensor, indices: Tensor, rows: Tensor, stacked: int, offsets: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Where some entries of a CSR matrix are.

    Args:
        indptr: of the matrix, with columns in order.
        indices: its columns.
        rows: (rows,) which rows.
        stacked: how many of them, one after the other, want the same columns.
        offsets: (rows / stacked + 1,) where the columns of each begin.
        columns: wanted columns, each once for a row.

    Returns:
        (rows + 1,) where the entries of each row begin; (entries,) their places in the matrix; (entries,)
        their places in `columns`.
    """
    arrays = (indptr.numpy(), indices.numpy(), rows.numpy(), stacked, offsets.numpy(), columns.numpy())
    # Mostly every column that is wanted is there once.
    ends = offsets if stacked == 1 else torch.zeros(len(rows) + 1, dtype=torch.int64)
    while True:
        counts = torch.zeros(len(rows), dtype=torch.int64)
        entry, which = torch.empty(2, int(ends[-1]), dtype=torch.int64)
        found = (ends.numpy(), counts.numpy(), entry.numpy(), which.numpy())
        parallel.over(len(rows), len(columns) * stacked, _pick, *arrays, *found)
        if torch.equal(counts, ends.diff()):
            return ends, entry, which
        ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
