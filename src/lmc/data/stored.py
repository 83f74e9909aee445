"""What is made of all edges of a graph that stays on disk: written piece by piece, and read through a map."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from lmc.scratch import ScratchMatrix
from lmc.sparse import CSR, ROWS_AT_ONCE, index_dtype, row_pieces

SORTED_AT_ONCE = 1 << 23
"""Entries of a transpose, each of which takes a look at the whole matrix: the more, the fewer looks."""


def stored(folder: Path, like: CSR, most: int, pieces: Iterator[tuple[slice, CSR]]) -> CSR:
    """The matrix of consecutive rows that come one after the other, on disk.

    Args:
        folder: where there is room.
        like: a matrix of the same shape, and with columns of the same type.
        most: entries there can be.
        pieces: which rows, and the rows themselves; values are None where all of them are one.

    >>> import tempfile
    >>> a = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), torch.tensor([1.0, 2.0, 3.0]), 2)
    >>> stored(Path(tempfile.gettempdir()), a, 3, a.pieces()).to_dense().tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """
    indptr = torch.zeros(like.shape[0] + 1, dtype=index_dtype(max(most, *like.shape)))
    indices = ScratchMatrix(folder, (most,), like.indices.dtype)
    values: ScratchMatrix | None = None
    count = 0
    for part, some in pieces:
        entries = slice(count, count + some.num_entries)
        indices[entries] = some.indices
        if some.values is not None and values is None:
            values = ScratchMatrix(folder, (most,), some.values.dtype)
            _put_ones(values, count)
        if values is not None:
            values[entries] = torch.ones(some.num_entries) if some.values is None else some.values
        indptr[part.start + 1 : part.stop + 1] = count + some.indptr[1:]
        count = entries.stop
    found = None if values is None else values.values[:count]
    return CSR(indptr, indices.values[:count], found, like.num_cols)


def _put_ones(values: ScratchMatrix, count: int) -> None:
    """Write ones in the first places."""
    for start in range(0, count, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, count)
        values[start:stop] = torch.ones(stop - start)


def stored_transpose(folder: Path, matrix: CSR) -> CSR:
    """The transpose of a square matrix, on disk; columns in order, repeated ones as they follow here.

    >>> import tempfile
    >>> a = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]), torch.tensor([1.0, 2.0, 3.0]), 2)
    >>> stored_transpose(Path(tempfile.gettempdir()), a).to_dense().tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """
    lengths = torch.zeros(matrix.num_cols, dtype=torch.int64)
    for _, some in matrix.pieces():
        columns, counts = torch.unique(some.indices, return_counts=True)
        lengths[columns.long()] += counts
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])

    def transposed(part: slice) -> CSR:
        """Some of its rows."""
        found: list[tuple[Tensor, Tensor, Tensor | None]] = []
        for rows, some in matrix.pieces():
            here = (some.indices >= part.start) & (some.indices < part.stop)
            values = None if some.values is None else some.values[here]
            found.append((some.indices[here], rows.start + some.row_ids()[here], values))
        order = torch.cat([columns for columns, _, _ in found]).argsort(stable=True)
        indices = torch.cat([rows for _, rows, _ in found])[order]
        values = None
        if matrix.values is not None:
            values = torch.cat([some for _, _, some in found if some is not None])[order]
        return CSR(ends[part.start : part.stop + 1] - ends[part.start], indices, values, matrix.shape[0])

    parts = row_pieces(ends, 1, SORTED_AT_ONCE, len(lengths))
    return stored(folder, matrix, matrix.num_entries, ((part, transposed(part)) for part in parts))


def stored_range(folder: Path, count: int) -> Tensor:
    """(count,) int64 numbers from 0 on, on disk.

    >>> import tempfile
    >>> stored_range(Path(tempfile.gettempdir()), 3)
    tensor([0, 1, 2])
    """
    numbers = ScratchMatrix(folder, (count,), torch.int64)
    for start in range(0, count, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, count)
        numbers[start:stop] = torch.arange(start, stop)
    return numbers.values


def selected(folder: Path | None, matrix: Tensor, mask: Tensor) -> Tensor:
    """(any, width) the rows of (rows, width) where a mask is True; on disk, unless there is no folder for it.

    >>> selected(None, torch.eye(2), torch.tensor([False, True]))
    tensor([[0., 1.]])
    """
    if folder is None:
        return matrix[mask]
    found = ScratchMatrix(folder, (int(mask.sum()), *matrix.shape[1:]), matrix.dtype)
    count = 0
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        some = matrix[part][mask[part]]
        found[count : count + len(some)] = some
        count += len(some)
    return found.values


def taken(folder: Path, matrix: Tensor, rows: Tensor) -> Tensor:
    """(any, ...) rows of a matrix, in the order that they are given in, on disk.

    >>> import tempfile
    >>> taken(Path(tempfile.gettempdir()), torch.eye(2), torch.tensor([1])).tolist()
    [[0.0, 1.0]]
    """
    found = ScratchMatrix(folder, (len(rows), *matrix.shape[1:]), matrix.dtype)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        found[part] = matrix[rows[part].long()]
    return found.values


def put_rows(into: Tensor | ScratchMatrix, places: Tensor, rows: Tensor) -> None:
    """Write rows to places in rising order; on disk, run by run.

    >>> into = torch.zeros(3, 1)
    >>> put_rows(into, torch.tensor([0, 2]), torch.tensor([[1.0], [2.0]]))
    >>> into.tolist()
    [[1.0], [0.0], [2.0]]
    """
    if isinstance(into, Tensor):
        into[places] = rows
        return
    begins = [0, *((places.diff() != 1).nonzero()[:, 0] + 1).tolist(), len(places)]
    for first, last in pairwise(begins):
        if first < last:
            place = int(places[first])
            into[place : place + last - first] = rows[first:last]
