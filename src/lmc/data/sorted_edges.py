"""Edges in any order, larger than memory, as rows of an adjacency: sorted bucket by bucket, on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmc.data.spool import Spool

BUCKET_EDGES = 1 << 20
"""Of a bucket, which is sorted in memory: 8 MB, and several times that while it is."""
MOST_BUCKETS = 512
"""Each is an open file."""


class SortedEdges:
    """Pairs (row, column) in; rows in order, with their columns in order, out.

    Args:
        folder: for what is put aside.
        num_nodes: rows and columns are below it.
        expected: how many pairs there will be, about.
    """

    def __init__(self, folder: Path, num_nodes: int, expected: int) -> None:
        self._spool = Spool(folder, "edges", np.int64)
        buckets = min(MOST_BUCKETS, num_nodes, 1 + expected // BUCKET_EDGES)
        self._bounds = np.arange(buckets + 1) * num_nodes // buckets  # rows
        self._num_nodes = num_nodes

    def add(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> None:
        """Put pairs aside."""
        keys = np.sort(row * self._num_nodes + column)
        cuts = np.searchsorted(keys, self._bounds * self._num_nodes)
        for bucket in np.flatnonzero(np.diff(cuts)).tolist():
            self._spool.add(bucket, keys[cuts[bucket] : cuts[bucket + 1]])

    @property
    def buckets(self) -> int:
        """How many pieces `once` has."""
        return len(self._bounds) - 1

    def once(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Pieces of consecutive rows: how many columns each row has; and the columns, none twice in a row."""
        return self._pieces(np.unique)

    def every(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The same with all pairs, as often as they were added."""
        return self._pieces(np.sort)

    def _pieces(
        self, in_order: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for bucket, (first, last) in enumerate(zip(self._bounds[:-1], self._bounds[1:], strict=True)):
            keys = in_order(self._spool.take(bucket))
            row, column = np.divmod(keys, self._num_nodes)
            yield np.bincount(row - first, minlength=last - first), column
