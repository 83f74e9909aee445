"""The loops of `fast_rows.py` in plain torch: the specification."""

from __future__ import annotations

import torch
from torch import Tensor


def is_symmetric(indptr: Tensor, indices: Tensor, values: Tensor | None) -> bool:
    """Whether the transpose of a square CSR matrix, its columns in order, stores the very same entries."""
    count, order = len(indptr) - 1, indices.argsort(stable=True)
    rows = torch.arange(count).repeat_interleave(indptr.diff())
    return (
        torch.equal(torch.bincount(indices, minlength=count), indptr.diff().long())
        and torch.equal(rows[order], indices.long())
        and (values is None or torch.equal(values[order], values))
    )


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
    """Some rows of a CSR matrix, normalised; see `fast_rows.weigh`."""
    count = len(indptr) - 1
    rows = torch.arange(count).repeat_interleave(indptr.diff())
    columns = indices.long()
    weights = torch.ones(len(columns)).double() if values is None else values.double()
    if loop is not None:
        is_loop = columns == places[rows]
        follows = torch.zeros_like(is_loop)  # whether the next entry is a loop of the same row
        follows[:-1] = is_loop[1:] & (rows[1:] == rows[:-1])
        kept = ~(is_loop & follows)
        lacks = torch.ones(count, dtype=torch.bool)
        lacks[rows[is_loop]] = False
        added = lacks.nonzero()[:, 0]
        rows, columns = torch.cat([rows[kept], added]), torch.cat([columns[kept], places[added]])
        weights = torch.cat([weights[kept], weights.new_full((len(added),), loop)])
    sources, nodes = columns, places
    if members is not None:
        sources, nodes = members[columns], members[places]
    ones = torch.ones(1 + max([0, *sources.tolist(), *nodes.tolist()])).double()
    factor = (ones if to is None else to)[nodes[rows]] * (ones if of is None else of)[sources]
    order = sources.argsort(stable=True)
    order = order[rows[order].argsort(stable=True)]
    ends = torch.zeros(count + 1, dtype=indptr.dtype)
    ends[1:] = torch.bincount(rows, minlength=count).cumsum(0)
    return ends, columns[order].to(indices.dtype), (weights * factor)[order].to(dtype)
