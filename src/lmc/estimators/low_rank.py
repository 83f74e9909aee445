"""Low-rank maps: what comes from outside of a batch, as a linear function of what is inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmc.sparse import CSR

ROWS = 1 << 14
"""That are computed together."""


@dataclass(frozen=True)
class LowRank:
    """The matrix left right', applied in O(rows x rank x width).

    Attributes:
        left: (batch * stacked, rank); as in `CSR`, consecutive rows stand side by side in a product.
        right: (batch, rank).

    >>> one = LowRank(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [0.0]]))
    >>> one.add_to(torch.zeros(2, 1), torch.tensor([[1.0], [1.0]])).tolist()
    [[3.0], [6.0]]
    >>> one.add_transposed_to(torch.zeros(2, 1), torch.tensor([[1.0], [1.0]])).tolist()
    [[9.0], [0.0]]
    """

    left: Tensor
    right: Tensor

    @staticmethod
    def fitted(outside: CSR, inside: Tensor, beyond: Tensor) -> LowRank:
        """A R, where R = argmin ||Q_halo - R Q_B||² + λ ||R||² = Q_halo (Q_B' Q_B + λ I)⁻¹ Q_B'.

        λ is as small as rounding allows, see `inverse_root`: it is there for batches that are smaller than
        the rank, or do not tell columns of the basis apart; R is then the smallest of all that fit.

        Args:
            outside: A, (batch, batch + halo) what the batch receives from the halo alone.
            inside: Q_B, (batch, rank).
            beyond: Q_halo, (halo, rank).
        """
        root = inverse_root(gram(inside), inside.dtype)  # half of the inverse on each side: rounding is less
        return LowRank(outside.times(inside, beyond).view(-1, inside.shape[1]) @ root, inside @ root)

    def add_to(self, sums: Tensor, message: Tensor) -> Tensor:
        """Add the product with (batch, width) to sums (batch, stacked * width), in place."""
        sums.view(len(self.left), message.shape[1]).addmm_(self.left, self.right.T @ message)
        return sums

    def add_transposed_to(self, sums: Tensor, v: Tensor) -> Tensor:
        """Add the product of the transposed matrix, of each stacked one, with (batch, width), in place."""
        rows, rank = self.right.shape
        of_each = self.left.view(rows, -1).T @ v  # (stacked * rank, width)
        side_by_side = of_each.view(-1, rank, v.shape[1]).transpose(0, 1).reshape(rank, -1)
        return sums.addmm_(self.right, side_by_side)


def gram(columns: Tensor) -> Tensor:
    """(rank, rank) float64, Q' Q of (rows, rank)."""
    rank = columns.shape[1]
    found = torch.zeros(rank, rank, dtype=torch.float64)
    for part in pieces(len(columns)):
        some = columns[part].double()
        found += some.T @ some
    return found


def pieces(rows: int) -> Iterator[slice]:
    """Consecutive rows that are computed together.

    >>> [(part.start, part.stop) for part in pieces(20000)]
    [(0, 16384), (16384, 20000)]
    """
    for start in range(0, rows, ROWS):
        yield slice(start, min(start + ROWS, rows))


def inverse_root(gram: Tensor, dtype: torch.dtype) -> Tensor:
    """(rank, rank) T with T T' = (G + λ I)⁻¹, in a type of which λ is the rounding error to the power 2/3.

    Relative to the largest entry of the diagonal: what λ costs and what rounding costs are then of one size.
    T is the transposed inverse of G's Cholesky factor, by elimination in [G + λ I, I], entry by entry:
    bits of LAPACK's functions depend on the number of threads.

    >>> root = inverse_root(torch.tensor([[4.0, 0.0], [0.0, 0.0]]).double(), torch.float64)
    >>> bool(((root @ root.T)[0] - torch.tensor([0.25, 0.0])).abs().max() < 1e-10)
    True
    """
    rank = len(gram)
    ridge = torch.finfo(dtype).eps ** (2 / 3) * (float(gram.diagonal().max()) or 1.0)
    both = np.concatenate([gram.numpy() + ridge * np.eye(rank), np.eye(rank)], axis=1)
    for k in range(rank):
        both[k] /= np.sqrt(both[k, k])
        both[k + 1 :] -= both[k, k + 1 : rank, None] * both[k]
    return torch.from_numpy(both[:, rank:].T.copy()).to(dtype)
