"""CSR: the one sparse matrix of the library, as three tensors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lmc import kernels
from lmc.kernels import plain


def index_dtype(largest: int) -> torch.dtype:
    """int32 where it can hold `largest`, else int64: indices are what sparse kernels read most."""
    return torch.int32 if largest <= torch.iinfo(torch.int32).max else torch.int64


with warnings.catch_warnings():
    # torch says once per process that this layout is in beta.
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0], [], [], (0, 0))


@dataclass(frozen=True, eq=False)
class CSR:
    """A sparse matrix in compressed rows.

    Row `i` has the columns `indices[indptr[i]:indptr[i + 1]]`, with the values at the same places.

    Attributes:
        indptr: (rows + 1,) int32 or int64.
        indices: (entries,) of the same type.
        values: (entries,) numbers, or None where every value is one.
        num_cols: the number of columns.

    >>> a = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), torch.tensor([1.0, 2.0, 3.0]), 3)
    >>> a.shape, a.to_dense().tolist()
    ((2, 3), [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    >>> (a @ torch.eye(3)).tolist()
    [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor | None
    num_cols: int

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
        rows = torch.arange(self.shape[0], dtype=self.indices.dtype)
        return rows.repeat_interleave(self.row_lengths(), output_size=self.num_entries)

    def rows(self, part: slice) -> CSR:
        """The matrix of consecutive rows, sharing memory with this one."""
        start, stop, _ = part.indices(self.shape[0])
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        values = None if self.values is None else self.values[first:last]
        return CSR(self.indptr[start : stop + 1] - first, self.indices[first:last], values, self.num_cols)

    def take(self, rows: Tensor) -> CSR:
        """The matrix of any rows, in the order that they are given in.

        >>> a = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), None, 3)
        >>> a.take(torch.tensor([1, 0])).to_dense().tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
        """
        lengths = self.row_lengths()[rows]
        indptr = torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)])
        entry = torch.repeat_interleave(self.indptr[rows] - indptr[:-1], lengths)
        entry += torch.arange(len(entry), dtype=entry.dtype)
        values = None if self.values is None else self.values[entry]
        return CSR(indptr, self.indices[entry], values, self.num_cols)

    def keep(self, mask: Tensor) -> CSR:
        """The matrix of the entries where `mask` (entries,) is True."""
        before = torch.zeros(self.num_entries + 1, dtype=self.indptr.dtype)
        torch.cumsum(mask, 0, out=before[1:])
        values = None if self.values is None else self.values[mask]
        return CSR(before[self.indptr], self.indices[mask], values, self.num_cols)

    def with_columns(self, num_cols: int) -> CSR:
        """The same entries in a matrix with this many columns."""
        return CSR(self.indptr, self.indices, self.values, num_cols)

    def ordered(self) -> CSR:
        """The same entries with the columns of every row in order."""
        return CSR.from_scipy(self.to_scipy(), unweighted=self.values is None)

    def without_diagonal(self) -> CSR:
        """The matrix without its diagonal entries; itself where it has none."""
        off_diagonal = self.indices != self.row_ids()
        return self if bool(off_diagonal.all()) else self.keep(off_diagonal)

    def row_sums(self) -> Tensor:
        """(rows,) float64 sums of the values of each row."""
        if self.values is None:
            return self.row_lengths().double()
        sums = torch.zeros(self.shape[0], dtype=torch.float64)
        return sums.index_add_(0, self.row_ids(), self.values.double())

    def transpose(self) -> CSR:
        """The transposed matrix; the same object where it is equal (and in order)."""
        transposed = CSR.from_scipy(self.to_scipy().T, unweighted=self.values is None)
        return self if transposed.equal(self) else transposed

    def equal(self, other: CSR) -> bool:
        """Whether both store the very same entries."""
        if self.shape != other.shape or (self.values is None) != (other.values is None):
            return False
        return (
            torch.equal(self.indptr, other.indptr)
            and torch.equal(self.indices, other.indices)
            and (self.values is None or torch.equal(self.values, other.values))  # type: ignore[arg-type]
        )

    def is_canonical(self) -> bool:
        """Whether the columns of every row rise strictly."""
        rising = self.indices.diff() > 0
        starts = self.indptr[1:-1]
        starts = starts[(starts > 0) & (starts < self.num_entries)]
        rising[starts - 1] = True
        return bool(rising.all())

    def to_dense(self) -> Tensor:
        """(rows, columns) dense, in the type of the values: for small matrices and for tests."""
        values = torch.ones(self.num_entries) if self.values is None else self.values
        dense = torch.zeros(self.shape, dtype=values.dtype)
        return dense.index_put_((self.row_ids().long(), self.indices.long()), values, True)

    def __matmul__(self, dense: Tensor) -> Tensor:
        """(rows, width) of (columns, width); differentiable in the dense factor."""
        if not (dense.requires_grad and torch.is_grad_enabled()):
            return self.times(dense, dense[:0])
        return plain.spmm(self.indptr, self.indices, self.values, dense, dense[:0])

    def times(self, inside: Tensor, outside: Tensor) -> Tensor:
        """(rows, width) of two factors, one above the other, without autograd."""
        spmm = kernels.kernels_for(inside, outside, self.values).spmm
        product: Tensor = spmm(self.indptr, self.indices, self.values, inside, outside)
        return product

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
        index = index_dtype(max(csr.nnz, *csr.shape))
        return CSR(
            torch.from_numpy(np.asarray(csr.indptr)).to(index),
            torch.from_numpy(np.asarray(csr.indices)).to(index),
            None if unweighted else torch.from_numpy(csr.data),
            int(csr.shape[1]),
        )
