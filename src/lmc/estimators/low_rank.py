"""Low-rank maps: what comes from outside of a batch, as a linear function of what is inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lmc.device import HOST, copied
from lmc.estimators.placement import in_full
from lmc.nn.module_context import without_autocast
from lmc.sparse import CSR

ROWS = 1 << 14
"""That are computed together."""
LEAST_IN_BATCH = 1e-4
"""Of the squares of a basis over the rows of a batch, for a direction to be told apart there."""


@dataclass(frozen=True)
class LowRank:
    """The matrix left (Q_B root)', applied in O(rows x rank x width).

    Maps of two batches are in memory at a time, so that of Q_B only its place is kept: its rows are taken
    anew for each product.

    Attributes:
        left: (batch * stacked, rank); as in `CSR`, consecutive rows stand side by side in a product.
        basis: (any, rank) Q.
        rows: (batch,) those of Q that are Q_B.
        root: (rank, rank).

    >>> left, q = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [0.0]])
    >>> one = LowRank(left, q, torch.arange(2), torch.eye(1))
    >>> one.add_to(torch.zeros(2, 1), torch.tensor([[1.0], [1.0]])).tolist()
    [[3.0], [6.0]]
    >>> one.add_transposed_to(torch.zeros(2, 1), torch.tensor([[1.0], [1.0]])).tolist()
    [[9.0], [0.0]]
    """

    left: Tensor
    basis: Tensor
    rows: Tensor
    root: Tensor

    @staticmethod
    def fitted(outside: CSR, basis: Tensor, batch: Tensor, halo: Tensor) -> LowRank:
        """A R, with R = argmin ||Q_halo - R Q_B|| = Q_halo pinv(Q_B), the smallest where several fit as well.

        Directions of which a batch has next to nothing are left out of Q: see `inverse_root`.

        Args:
            outside: A, (batch, batch + halo) what the batch receives from the halo alone.
            basis: Q, (nodes, rank).
            batch: (batch,) its rows of Q.
            halo: (halo,) its rows of Q.
        """
        inside = rows_of(basis, batch)
        rank, dtype = inside.shape[1], inside.dtype
        sums = outside.times(inside, rows_of(basis, halo)).view(-1, rank)
        if len(inside) < rank:  # pinv(Q_B) = Q_B' (Q_B Q_B')⁻¹
            root = inverse_root(gram(inside.T), LEAST_IN_BATCH).to(dtype)
            every = torch.arange(len(root))
            return LowRank(sums @ (inside.T @ root), root, every, torch.eye(len(root), dtype=dtype))
        # pinv(Q_B) = (Q_B' Q_B)⁻¹ Q_B', half of it on each side: none is large, and rounding stays small.
        root = inverse_root(gram(inside), LEAST_IN_BATCH).to(dtype)
        return LowRank(sums @ root, basis, batch, root)

    def on(self, device: torch.device) -> LowRank:
        """The same on a device, with the batch's own rows of the basis; itself on the host."""
        if device == HOST:
            return self
        own = replace(self, basis=self.basis.index_select(0, self.rows), rows=torch.arange(len(self.rows)))
        return copied(own, device)

    def add_to(self, sums: Tensor, message: Tensor) -> Tensor:
        """Sums (batch, stacked * width) plus the product with (batch, width); what was given is used up."""
        found = sums.to(self.left.dtype)
        with without_autocast(sums.device):  # large terms cancel out: 16 bits are too few
            product = self.root.T @ (rows_of(self.basis, self.rows).T @ message.to(self.left.dtype))
            found.view(len(self.left), message.shape[1]).addmm_(self.left, product)
        return found.to(sums.dtype)

    def add_transposed_to(self, sums: Tensor, v: Tensor) -> Tensor:
        """The same of the transposed matrix, of each stacked one, with (batch, width)."""
        rank = len(self.root)
        found = sums.to(self.left.dtype)
        with without_autocast(sums.device):
            of_each = self.left.view(len(self.rows), -1).T @ v.to(self.left.dtype)  # (stacked * rank, width)
            side_by_side = of_each.view(-1, rank, v.shape[1]).transpose(0, 1).reshape(rank, -1)
            found.addmm_(rows_of(self.basis, self.rows), self.root @ side_by_side)
        return found.to(sums.dtype)


def rows_of(basis: Tensor, rows: Tensor) -> Tensor:
    """(rows, rank) of a basis, in the type of sums."""
    return in_full(basis.index_select(0, rows))


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


def inverse_root(gram: Tensor, least: float) -> Tensor:
    """(rank, rank) T with T T' = G⁻¹, G of columns, without those that the others nearly give.

    By the Gram-Schmidt process in the inner product G, the column with the largest rest first, until the
    square of a rest is no more than `least` of that of the first; columns of T after that are zero. It goes
    entry by entry, since bits of LAPACK's functions depend on the number of threads.

    >>> inverse_root(torch.tensor([[4.0, 8.0], [8.0, 16.0]]).double(), 1e-10).tolist()
    [[0.0, 0.0], [0.25, 0.0]]
    """
    rank = len(gram)
    rest, root = np.concatenate([gram.numpy(), np.eye(rank)], axis=1), np.zeros((rank, rank))
    largest = rest.diagonal().max()
    for column in range(rank):
        pivot = int(rest.diagonal().argmax())
        if rest[pivot, pivot] <= least * largest:
            break
        row = rest[pivot] / np.sqrt(rest[pivot, pivot])
        rest -= row[:rank, None] * row
        root[:, column] = row[rank:]
    return torch.from_numpy(root)
