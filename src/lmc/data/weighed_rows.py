"""A normalised adjacency that is not stored: edges, and a number per node that weights follow from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lmc import kernels
from lmc.sparse import CSR, row_pieces


@dataclass(frozen=True, eq=False)
class WeighedRows:
    """(nodes, nodes) a_ij = to_i of_j w_ij, whose rows are made when they are asked for.

    They are, to the bit, those of the matrix that `normalize` gives.

    Attributes:
        edges: (nodes, nodes) w; its columns are in order.
        to: (nodes,) float64, or None for ones.
        of: (nodes,) float64, or None for ones.
        loop: what a self-loop weighs that is added where there is none; None where none is added.
        dtype: of the weights.

    >>> pair = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, 2)
    >>> half = torch.full((2,), 0.5).double()
    >>> WeighedRows(pair, half, None, 1.0, torch.float32).rows(slice(0, 1)).to_dense().tolist()
    [[0.5, 0.5]]
    """

    edges: CSR
    to: Tensor | None
    of: Tensor | None
    loop: float | None
    dtype: torch.dtype

    def rows(self, part: slice) -> CSR:
        """(part, nodes) consecutive rows."""
        start, stop, _ = part.indices(self.edges.shape[0])
        return self._weighed(self.edges.rows(part), torch.arange(start, stop), None)

    def take(self, rows: Tensor) -> CSR:
        """(rows, nodes) any rows, in the order that they are given in."""
        return self._weighed(self.edges.take(rows), rows, None)

    def localized(self, places: Tensor, members: Tensor) -> CSR:
        """(places, members) rows and columns of members; see `CSR.localized`."""
        return self._weighed(self.edges.localized(places, members), places, members)

    def pieces(self) -> Iterator[tuple[slice, CSR]]:
        """All rows, some at a time; see `CSR.pieces`."""
        for part in row_pieces(self.edges.indptr):
            yield part, self.rows(part)

    def transposed(self, edges: CSR) -> WeighedRows:
        """a_ji, of transposed edges."""
        return replace(self, edges=edges, to=self.of, of=self.to)

    def _weighed(self, some: CSR, places: Tensor, members: Tensor | None) -> CSR:
        given = (some.indptr, some.indices, some.values, places, members)
        weigh = kernels.kernels_for().weigh
        indptr, indices, values = weigh(*given, self.to, self.of, self.loop, self.dtype)
        return CSR(indptr, indices, values, some.num_cols)


Messages = CSR | WeighedRows
"""What gives rows of a normalised adjacency."""
