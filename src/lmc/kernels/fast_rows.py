"""Loops over all rows of a matrix that may be larger than memory: what they keep is a number per node."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmc.kernels.compilation import loop


@loop
def _is_symmetric(indptr: Any, indices: Any, values: Any) -> Any:
    following = indptr[:-1].copy()  # where the next entry of each row of the transpose would be
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            place = following[indices[e]]
            if place == indptr[indices[e] + 1] or indices[place] != i:
                return False
            if len(values) and values[place] != values[e]:
                return False
            following[indices[e]] = place + 1
    return True


def is_symmetric(indptr: Tensor, indices: Tensor, values: Tensor | None) -> bool:
    """Whether the transpose of a square CSR matrix, its columns in order, stores the very same entries."""
    known = np.empty(0, np.float32) if values is None else values.numpy()
    return bool(_is_symmetric(indptr.numpy(), indices.numpy(), known))


@loop
def _weigh(
    indptr: Any,
    indices: Any,
    values: Any,
    places: Any,
    members: Any,
    to: Any,
    of: Any,
    loops: Any,
    weight_of_loop: Any,
    columns: Any,
    weights: Any,
) -> Any:
    ends = np.zeros(len(indptr), indptr.dtype)
    count = 0
    for i in range(len(indptr) - 1):
        place = places[i]
        node = members[place] if len(members) else place
        receiving = to[node] if len(to) else 1.0
        lacks_loop = loops
        for e in range(indptr[i], indptr[i + 1]):
            column = indices[e]
            source = members[column] if len(members) else column
            if loops and source == node:
                if e + 1 < indptr[i + 1] and indices[e + 1] == column:
                    continue  # of several loops, the last one stays
                lacks_loop = False
            elif lacks_loop and source > node:
                columns[count] = place
                weights[count] = weight_of_loop * (receiving * (of[node] if len(of) else 1.0))
                count += 1
                lacks_loop = False
            columns[count] = column
            factor = receiving * (of[source] if len(of) else 1.0)  # first, so that A stays exactly symmetric
            weights[count] = values[e] * factor if len(values) else factor
            count += 1
        if lacks_loop:
            columns[count] = place
            weights[count] = weight_of_loop * (receiving * (of[node] if len(of) else 1.0))
            count += 1
        ends[i + 1] = count
    return ends


def weigh(
    indptr: Tensor,
    indices: Tensor,
    values: Tensor | None,
    places: Tensor,
    members: Tensor | None,
    to: Tensor | None,
    of: Tensor | None,
    loop: float | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Some rows of a CSR matrix, normalised: each entry times a factor of its row and one of its column.

    Args:
        indptr: (rows + 1,).
        indices: (entries,) in the order of the nodes that they stand for.
        values: (entries,), or None for ones.
        places: (rows,) which column each row is.
        members: (columns,) which node each column is; None where it is its own number.
        to: (nodes,) float64, the factor of a row; None for one.
        of: (nodes,) float64, the factor of a column; None for one.
        loop: what a diagonal entry weighs that is added to a row without one; of several, the last stays.
            None where they stay as they are.
        dtype: of the values.
    """
    rows, none = len(indptr) - 1, np.empty(0)
    most = len(indices) + (0 if loop is None else rows)
    columns, weights = torch.empty(most, dtype=indices.dtype), torch.empty(most, dtype=dtype)
    known = none if values is None else values.numpy()
    factors = none if to is None else to.numpy(), none if of is None else of.numpy()
    numbers = np.empty(0, np.int64) if members is None else members.numpy()
    loops = loop is not None, 1.0 if loop is None else loop
    edges = indptr.numpy(), indices.numpy(), known
    columns_of = places.numpy(), numbers
    made = columns.numpy(), weights.numpy()
    ends = torch.from_numpy(_weigh(*edges, *columns_of, *factors, *loops, *made))
    count = int(ends[-1])
    if count < most:
        columns, weights = columns[:count].clone(), weights[:count].clone()
    return ends, columns, weights
