"""Whether edges go both ways, without a copy of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lmc.kernels.compilation import loop
from lmc.kernels.fast_samples import _mixed


@loop
def hashed_both_ways(first: Any, indptr: Any, indices: Any) -> Any:
    """Sums, modulo 2^64, of hashes of (row, column), and of (column, row), over consecutive rows.

    Args:
        first: the number of the first row.
        indptr: (rows + 1,) where rows begin in `indices`.
        indices: (entries,) columns.
    """
    there, back, start = np.uint64(0), np.uint64(0), np.uint64(0)
    for row in range(len(indptr) - 1):
        of_row = _mixed(start, first + row)
        for e in range(indptr[row], indptr[row + 1]):
            there += _mixed(of_row, indices[e])
            back += _mixed(_mixed(start, indices[e]), first + row)
    return there, back
