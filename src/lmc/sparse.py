"""CSR: the one sparse matrix of the library, as three tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lmc import kernels
from lmc.kernels import plain


def index_dtype(largest: int) -> torch.dtype:
    """int32 where it can hold `largest`, else int64: indices are what sparse kernels read most."""
    return torch.int32 if largest <= torch.iinfo(torch.int32).max else torch.int64


ENTRIES_AT_ONCE, ROWS_AT_ONCE = 1 << 20, 1 << 15
"""Of a matrix that may be larger than memory, and is read from its first row to its last."""


with warnings.catch_warnings():
    # torch says once per process that this layout is in beta.
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0], [], [], (0, 0))


@dataclass(frozen=True, eq=False)
class CSR:
    """A sparse matrix in compressed rows.

    Row `i` has the columns `indices[indptr[i]:indptr[i + 1]]`, with the values at the same places. A column
    that is repeated in a row is an entry each time; as a matrix, their values add up.

    Attributes:
        indptr: (rows + 1,) int32 or int64.
        indices: (entries,) of the same type.
        values: (entries,) numbers, or None where every value is one.
        num_cols: the number of columns.
        stacked: how many consecutive rows make one row of a product, in which theirs stand side by side.

    >>> a = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), torch.tensor([1.0, 2.0, 3.0]), 3)
    >>> a.shape, a.to_dense().tolist()
    ((2, 3), [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    >>> (a @ torch.eye(3)).tolist()
    [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    >>> (replace(a, stacked=2) @ torch.eye(3)).tolist()
    [[1.0, 0.0, 2.0, 0.0, 3.0, 0.0]]
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor | None
    num_cols: int
    stacked: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.indptr.numel() - 1, self.num_cols

    @property
    def num_entries(self) -> int:
        """How many entries are stored; an explicit zero counts."""
        return self.indices.numel()

    def row_lengths(self) -> Tensor:
        """(rows,) how many entries each row has."""
        return self.indptr.diff()

    def row_ids(self) -> Tensor:
        """(entries,) the row of every entry, in the order of storage."""
        rows = torch.arange(self.shape[0], dtype=self.indices.dtype, device=self.indices.device)
        return rows.repeat_interleave(self.row_lengths(), output_size=self.num_entries)

    def rows(self, part: slice) -> CSR:
        """The matrix of consecutive rows of a product, sharing memory with this one."""
        start, stop, _ = part.indices(self.shape[0] // self.stacked)
        start, stop = start * self.stacked, stop * self.stacked
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        values = None if self.values is None else self.values[first:last]
        indptr = self.indptr[start : stop + 1] - first
        return replace(self, indptr=indptr, indices=self.indices[first:last], values=values)

    def pieces(self, entries: int | None = None) -> Iterator[tuple[slice, CSR]]:
        """Consecutive rows, about so many entries or `ROWS_AT_ONCE` at a time; and their matrix.

        `entries=None` takes `ENTRIES_AT_ONCE`.

        >>> a = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), None, 3)
        >>> [(part, some.shape) for part, some in a.pieces()]
        [(slice(0, 2, None), (2, 3))]
        """
        for part in row_pieces(self.indptr, self.stacked, entries):
            yield part, self.rows(part)

    def localized(self, places: Tensor, members: Tensor) -> CSR:
        """(places, members) the rows of some members, with the entries whose column is a member.

        Args:
            places: (any,) int64, of the rows among the members.
            members: (any,) int64, each once: their places are the columns.

        >>> a = CSR(torch.tensor([0, 2, 3, 3]), torch.tensor([0, 2, 1]), None, 3)
        >>> a.localized(torch.tensor([1]), torch.tensor([2, 0])).to_dense().tolist()
        [[1.0, 1.0]]
        """
        localize, rows = kernels.kernels_for().localize, members[places]
        if self.stacked > 1:
            rows = (rows[:, None] * self.stacked + torch.arange(self.stacked)).flatten()
        indptr, indices, values = localize(self.indptr, self.indices, self.values, rows, members)
        return CSR(indptr, indices, values, len(members), self.stacked)

    def take(self, rows: Tensor) -> CSR:
        """The matrix of any rows of a product, in the order that they are given in.

        >>> a = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), None, 3)
        >>> a.take(torch.tensor([1, 0])).to_dense().tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
        """
        if self.stacked > 1:
            within = torch.arange(self.stacked, device=rows.device)
            rows = (rows[:, None] * self.stacked + within).flatten()
        lengths = self.indptr[rows + 1] - self.indptr[rows]  # of these alone: the matrix may be large
        indptr = torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)])
        entry = torch.repeat_interleave(self.indptr[rows] - indptr[:-1], lengths)
        entry += torch.arange(len(entry), dtype=entry.dtype, device=entry.device)
        values = None if self.values is None else self.values[entry]
        return replace(self, indptr=indptr, indices=self.indices[entry], values=values)

    def keep(self, mask: Tensor) -> CSR:
        """The matrix of the entries where `mask` (entries,) is True."""
        before = self.indptr.new_zeros(self.num_entries + 1)
        torch.cumsum(mask, 0, out=before[1:])
        values = None if self.values is None else self.values[mask]
        return replace(self, indptr=before[self.indptr], indices=self.indices[mask], values=values)

    def with_values(self, values: Tensor | None) -> CSR:
        """The same entries with other values."""
        return replace(self, values=values)

    def with_columns(self, num_cols: int) -> CSR:
        """The same entries in a matrix with this many columns."""
        return replace(self, num_cols=num_cols)

    def ordered(self) -> CSR:
        """The same entries with the columns of every row in order; repeated ones stay as they follow."""
        matrix = (
            self.to_scipy().tocsc().tocsr()
        )  # two counting sorts, each of which keeps the order of equals
        return replace(_of_scipy(matrix, unweighted=self.values is None), stacked=self.stacked)

    def has_diagonal(self, first: int = 0) -> bool:
        """Whether it has diagonal entries; the first row is that of column `first`."""
        return any(
            bool((some.indices == first + part.start + some.row_ids()).any()) for part, some in self.pieces()
        )

    def without_diagonal(self, first: int = 0) -> CSR:
        """The matrix without its diagonal entries; itself where it has none."""
        return self.keep(self.indices != first + self.row_ids()) if self.has_diagonal(first) else self

    def row_sums(self) -> Tensor:
        """(rows,) float64 sums of the values of each row."""
        if self.values is None:
            return self.row_lengths().double()
        sums = torch.zeros(self.shape[0], dtype=torch.float64)
        return sums.index_add_(0, self.row_ids(), self.values.double())

    def row_counts(self) -> Tensor:
        """(rows,) sums of values that are counts, in the type of `indptr`."""
        return self.row_lengths() if self.values is None else self.row_sums().to(self.indptr.dtype)

    def transpose(self) -> CSR:
        """The transposed matrix, of each stacked one; the same object where it is equal (and in order).

        Columns are in order, and repeated ones follow as they do here.
        """
        if self.is_symmetric():
            return self
        if self.stacked == 1:
            transposed = _of_scipy(self.to_scipy().T.tocsr(), unweighted=self.values is None)
        else:
            row, layer = np.divmod(self.row_ids().numpy(), self.stacked)
            shape = self.num_cols * self.stacked, self.shape[0] // self.stacked
            numbered = CSR.of_entries(self.indices.numpy() * self.stacked + layer, row, shape)
            values = None if self.values is None else self.values[numbered.values]
            transposed = replace(numbered, values=values, stacked=self.stacked)
            return self if transposed.equal(self) else transposed
        return transposed

    def is_symmetric(self) -> bool:
        """Whether its transpose stores the very same entries; found without making it."""
        if self.stacked > 1 or self.shape[0] != self.num_cols:
            return False
        is_symmetric = kernels.kernels_for().is_symmetric
        return bool(is_symmetric(self.indptr, self.indices, self.values))

    def equal(self, other: CSR) -> bool:
        """Whether both store the very same entries."""
        if self.shape != other.shape or (self.values is None) != (other.values is None):
            return False
        return (
            torch.equal(self.indptr, other.indptr)
            and torch.equal(self.indices, other.indices)
            and (self.values is None or torch.equal(self.values, other.values))  # type: ignore[arg-type]
        )

    def is_ordered(self) -> bool:
        """Whether the columns of every row rise, or are repeated."""
        return all(some._every_step(some.indices.diff() >= 0) for _, some in self.pieces())

    def is_canonical(self) -> bool:
        """Whether the columns of every row rise strictly: in order, and none repeated."""
        return all(some._every_step(some.indices.diff() > 0) for _, some in self.pieces())

    def _every_step(self, right: Tensor) -> bool:
        """Whether it is right from every entry to the next one of its row."""
        starts = self.indptr[1:-1]
        starts = starts[(starts > 0) & (starts < self.num_entries)]
        right[starts - 1] = True
        return bool(right.all())

    def to_dense(self) -> Tensor:
        """(rows, columns) dense, in the type of the values: for small matrices and for tests."""
        values = torch.ones(self.num_entries) if self.values is None else self.values
        dense = torch.zeros(self.shape, dtype=values.dtype)
        return dense.index_put_((self.row_ids().long(), self.indices.long()), values, True)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """(rows / stacked, stacked * width) of (columns, width); differentiable in the dense factor."""
        if not (dense.requires_grad and torch.is_grad_enabled()):
            return self.times(dense, dense[:0])
        return self._side_by_side(plain.spmm(self.indptr, self.indices, self.values, dense, dense[:0]))

    def times(self, inside: Tensor, outside: Tensor) -> Tensor:
        """(rows / stacked, stacked * width) of two factors, one above the other, without autograd."""
        spmm = kernels.kernels_for(inside, outside, self.values).spmm
        product: Tensor = spmm(self.indptr, self.indices, self.values, inside, outside)
        return self._side_by_side(product)

    def _side_by_side(self, product: Tensor) -> Tensor:
        """(rows / stacked, stacked * width) of (rows, width)."""
        rows, width = product.shape
        return product if self.stacked == 1 else product.view(rows // self.stacked, self.stacked * width)

    def to_scipy(self) -> sparse.csr_array:
        """The same matrix for scipy, sharing memory."""
        values = torch.ones(self.num_entries) if self.values is None else self.values
        arrays = (values.numpy(), self.indices.numpy(), self.indptr.numpy())
        return sparse.csr_array(arrays, shape=self.shape)

    @staticmethod
    def from_scipy(matrix: sparse.sparray, *, unweighted: bool = False) -> CSR:
        """From any scipy matrix: columns sorted within rows, repeated entries added up."""
        csr = sparse.csr_array(matrix, copy=True)
        csr.sum_duplicates()
        return _of_scipy(csr, unweighted=unweighted)

    @staticmethod
    def of_entries(row: NDArray[Any], column: NDArray[Any], shape: tuple[int, int]) -> CSR:
        """The matrix of entries, each with its number, the place where it is given, as value.

        Columns are in order, and repeated ones follow as they are given.

        >>> a = CSR.of_entries(np.array([1, 0, 1, 1]), np.array([2, 0, 0, 2]), (2, 3))
        >>> a.indptr.tolist(), a.indices.tolist(), a.values.tolist()
        ([0, 1, 4], [0, 0, 2, 2], [1, 2, 0, 3])
        """
        _, by_column = _counting_sort(column, shape[1])
        indptr, by_row = _counting_sort(row[by_column], shape[0])
        number, index = by_column[by_row], index_dtype(max(len(row), *shape))
        starts, columns = (torch.from_numpy(each).to(index) for each in (indptr, column[number]))
        return CSR(starts, columns, torch.from_numpy(number), shape[1])


def row_pieces(
    indptr: Tensor, stacked: int = 1, entries: int | None = None, most_rows: int | None = None
) -> Iterator[slice]:
    """Consecutive rows of products, one or more at a time, as many as have about so many entries."""
    rows, start = (indptr.numel() - 1) // stacked, 0
    ends, most_rows = indptr[::stacked], most_rows or ROWS_AT_ONCE
    while start < rows:
        last = torch.searchsorted(ends, int(ends[start]) + (entries or ENTRIES_AT_ONCE), right=True)
        stop = min(max(int(last) - 1, start + 1), start + most_rows, rows)
        yield slice(start, stop)
        start = stop


def _of_scipy(csr: sparse.csr_array, *, unweighted: bool) -> CSR:
    index = index_dtype(max(csr.nnz, *csr.shape))
    return CSR(
        torch.from_numpy(np.asarray(csr.indptr)).to(index),
        torch.from_numpy(np.asarray(csr.indices)).to(index),
        None if unweighted else torch.from_numpy(csr.data),
        int(csr.shape[1]),
    )


def _counting_sort(keys: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """(count + 1,) where each key below `count` begins, and (keys,) their places in that order; stable."""
    index = np.int32 if max(len(keys), count) <= np.iinfo(np.int32).max else np.int64
    one_in_each_row = (np.ones(len(keys), np.int8), keys.astype(index), np.arange(len(keys) + 1, dtype=index))
    columns = sparse.csr_array(one_in_each_row, shape=(len(keys), count)).tocsc()
    return columns.indptr, columns.indices
