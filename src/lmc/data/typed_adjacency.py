"""The adjacencies of the types of edges, stacked: one sparse matrix, one row for each node and type."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from lmc.data import rules
from lmc.sparse import CSR

TypedNorm = Literal["typed mean", "typed sum"]
TYPED = get_args(TypedNorm)


def typed_adjacency(adjacency: CSR, edge_type: Tensor, num_types: int, norm: str, dtype: torch.dtype) -> CSR:
    """(nodes * types, nodes), row i * types + t: what node i receives along edges of type t; stacked.

    Every message weighs one, or one over how many of its type its target receives.

    Args:
        adjacency: (nodes, nodes); its values are not read.
        edge_type: (edges,) in its order.
        num_types: of which they are.
        norm: `"typed mean"` or `"typed sum"`.
        dtype: of the values.

    >>> pair = CSR(torch.tensor([0, 0, 3]), torch.tensor([0, 0, 1]), None, 2)
    >>> matrix = typed_adjacency(pair, torch.tensor([1, 1, 0]), 2, "typed mean", torch.float32)
    >>> matrix.to_dense().tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    >>> (matrix @ torch.tensor([[2.0], [3.0]])).tolist()
    [[0.0, 0.0], [3.0, 2.0]]
    """
    rules.fits_dense(f"edge_type: {num_types} types of edges", (adjacency.shape[0], num_types), 8)
    row = adjacency.row_ids().long() * num_types + edge_type
    shape = (adjacency.shape[0] * num_types, adjacency.num_cols)
    stacked = replace(CSR.of_entries(row.numpy(), adjacency.indices.numpy(), shape), stacked=num_types)
    if norm == "typed sum":
        return stacked.with_values(torch.ones(stacked.num_entries, dtype=dtype))
    count = stacked.row_lengths()
    share = count.double().reciprocal().to(dtype)
    return stacked.with_values(share.repeat_interleave(count, output_size=stacked.num_entries))
