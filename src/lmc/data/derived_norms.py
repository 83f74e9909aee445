"""Normalisations made of others: each takes an adjacency to the weights of its messages.

They are put together like functions: `Averaged(Looped("plain sum"))` is D^-1 (A + I), as if every weight were
one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lmc.data.normalization import DerivedNorm, Norm, normalized, with_self_loops
from lmc.sparse import CSR


@dataclass(frozen=True)
class Plain(DerivedNorm):
    """As if every weight were one.

    >>> import lmc
    >>> pair = lmc.Graph([[1, 0], [0, 1]], torch.eye(2), edge_weight=[5.0, 7.0])
    >>> lmc.normalize(pair, Plain("gcn")).to_dense().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    norm: Norm

    def of(self, adjacency: CSR, dtype: torch.dtype) -> CSR:
        """The normalised form of the pattern."""
        pattern = CSR(adjacency.indptr, adjacency.indices, None, adjacency.num_cols)
        return normalized(pattern, self.norm, dtype)


@dataclass(frozen=True)
class Looped(DerivedNorm):
    """With a self-loop of weight one at every node that has none.

    >>> import lmc
    >>> pair = lmc.Graph([[1], [0]], torch.eye(2))
    >>> lmc.normalize(pair, Looped("plain sum")).to_dense().tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """

    norm: Norm

    def of(self, adjacency: CSR, dtype: torch.dtype) -> CSR:
        """The normalised form of A + I."""
        return normalized(with_self_loops(adjacency, 1.0), self.norm, dtype)


@dataclass(frozen=True)
class Averaged(DerivedNorm):
    """The weights of a row over their number: the mean of the messages, where they would be added up.

    >>> import lmc
    >>> pair = lmc.Graph([[0, 1], [0, 0]], torch.eye(2), edge_weight=[5.0, 7.0])
    >>> lmc.normalize(pair, Averaged("sum")).to_dense().tolist()
    [[2.5, 3.5], [0.0, 0.0]]
    """

    norm: Norm

    def of(self, adjacency: CSR, dtype: torch.dtype) -> CSR:
        """The normalised form, every row of it divided."""
        summed = normalized(adjacency, self.norm, torch.float64)
        assert summed.values is not None  # a normalised form has weights
        values = summed.values / summed.row_lengths()[summed.row_ids()]
        return CSR(summed.indptr, summed.indices, values.to(dtype), summed.num_cols)


@dataclass(frozen=True)
class WithDiagonal(DerivedNorm):
    """With its own diagonal, so many times, added to it.

    >>> import lmc
    >>> pair = lmc.Graph([[0, 1, 0], [0, 0, 1]], torch.eye(2))
    >>> lmc.normalize(pair, WithDiagonal("mean", 0.5)).to_dense().tolist()
    [[0.75, 0.5], [1.0, 0.0]]
    """

    norm: Norm
    times: float

    def of(self, adjacency: CSR, dtype: torch.dtype) -> CSR:
        """The normalised form, diagonal entries of it multiplied."""
        before = normalized(adjacency, self.norm, torch.float64)
        assert before.values is not None  # a normalised form has weights
        on_diagonal = before.indices == before.row_ids()
        values = torch.where(on_diagonal, (1 + self.times) * before.values, before.values)
        return CSR(before.indptr, before.indices, values.to(dtype), before.num_cols)
