"""Edges as they are given, merged into one adjacency."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lmc.data import rules
from lmc.errors import GraphError
from lmc.sparse import CSR, index_dtype


def from_ends(
    edge_index: Tensor, edge_weight: Any, edge_attr: Any, num_nodes: int
) -> tuple[CSR, Tensor | None]:
    """The adjacency of (2, edges) node ids, and the features of its edges in its order."""
    ends = rules.edge_index("edge_index", edge_index, num_nodes)
    weight = _weight(edge_weight, ends.shape[1])
    source, target = ends.to(index_dtype(num_nodes)).numpy()
    values = np.ones(len(source), np.float32) if weight is None else weight.numpy()
    edges = sparse.coo_array((values, (target, source)), shape=(num_nodes, num_nodes))
    adjacency = _merged(edges, weighted=weight is not None)
    return adjacency, _attr(edge_attr, source, target, adjacency)


def from_rows(
    indptr: Tensor, indices: Tensor, edge_weight: Any, edge_attr: Any, num_nodes: int
) -> tuple[CSR, Tensor | None]:
    """The same of rows of in-neighbours."""
    indptr, indices = rules.csr(indptr, indices, num_nodes)
    index = index_dtype(max(num_nodes, indices.numel()))
    weight = _weight(edge_weight, indices.numel())
    given = CSR(indptr.to(index), indices.to(index), weight, num_nodes)
    if given.is_canonical():  # then it is taken as it is, and stays on disk if it is there
        return given, None if edge_attr is None else _checked_attr(edge_attr, given.num_entries)
    adjacency = _merged(given.to_scipy(), weighted=weight is not None)
    return adjacency, _attr(edge_attr, given.indices.numpy(), given.row_ids().numpy(), adjacency)


def _weight(edge_weight: Any, num_edges: int) -> Tensor | None:
    """(edges,) finite, or None."""
    if edge_weight is None:
        return None
    return rules.edge_weight(rules.tensor("edge_weight", edge_weight), num_edges)


def _checked_attr(edge_attr: Any, num_edges: int) -> Tensor:
    """(edges, columns) finite."""
    return rules.edge_attr(rules.tensor("edge_attr", edge_attr), num_edges)


def _attr(edge_attr: Any, source: NDArray[Any], target: NDArray[Any], adjacency: CSR) -> Tensor | None:
    """The features of the edges, in the order of the adjacency that was made of them."""
    if edge_attr is None:
        return None
    checked = _checked_attr(edge_attr, len(source))
    order = np.lexsort((source, target))
    if adjacency.num_entries < len(source):
        source, target = source[order], target[order]
        twice = int(((np.diff(source) == 0) & (np.diff(target) == 0)).argmax())
        edge = f"{source[twice]} -> {target[twice]}"
        rule = "edges with features must not repeat; merge them, or leave edge_attr out"
        raise GraphError(f"edge_attr: the edge {edge} is there twice; {rule}")
    return checked[torch.from_numpy(order)]


def _merged(edges: sparse.sparray, *, weighted: bool) -> CSR:
    """CSR of edges whose repetitions are added up; without values if every weight turns out to be 1."""
    adjacency = CSR.from_scipy(edges)
    if adjacency.values is None or (not weighted and adjacency.num_entries == edges.nnz):
        return pattern_of(adjacency)
    rules.finite("edge_weight, added up", adjacency.values, "edge weights must be finite")
    return adjacency


def pattern_of(matrix: CSR) -> CSR:
    """The pattern of a matrix: every value one."""
    return CSR(matrix.indptr, matrix.indices, None, matrix.num_cols)


def in_both_directions(
    source: NDArray[np.int64], target: NDArray[np.int64], weight: NDArray[Any] | None, num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]:
    """Every edge once in each direction, with the same weight: the larger, where both are given.

    Weights of an edge that is repeated in one direction are added up, as everywhere.

    >>> ends = np.array([0, 1, 2]), np.array([1, 0, 0])
    >>> in_both_directions(*ends, np.array([1.0, 3.0, 5.0]), 3)
    (array([0, 1, 2, 0]), array([1, 0, 0, 2]), array([3., 3., 5., 5.]))
    """
    given = np.ones(len(source), np.float32) if weight is None else weight
    edges, number = np.unique(source * num_nodes + target, return_inverse=True)
    added_up = np.bincount(number, given, len(edges)).astype(given.dtype)
    source, target = np.divmod(edges, max(num_nodes, 1))
    reverse = np.searchsorted(edges, target * num_nodes + source).clip(max=max(len(edges) - 1, 0))
    has_reverse = edges[reverse] == target * num_nodes + source
    added_up = np.where(has_reverse, np.maximum(added_up, added_up[reverse]), added_up)
    ends = np.concatenate([source, target[~has_reverse]]), np.concatenate([target, source[~has_reverse]])
    both = np.concatenate([added_up, added_up[~has_reverse]])
    return *ends, None if weight is None and bool((both == 1).all()) else both
