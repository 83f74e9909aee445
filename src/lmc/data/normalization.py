"""Normalised adjacencies: the weights with which messages are added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lmc import checks
from lmc.data.given import check_graph
from lmc.errors import GraphError
from lmc.sparse import CSR, index_dtype

if TYPE_CHECKING:
    from lmc.data.graph import Graph

Norm = Literal["gcn", "gcn improved", "gcn without loops", "mean", "sum", "plain mean", "plain sum"]

# What a self-loop that is added weighs among weighted edges: PyG's `improved` counts a node twice.
_LOOPS: dict[Norm, float] = {"gcn": 1.0, "gcn improved": 2.0}

Kept = TypeVar("Kept")

_cache: WeakKeyDictionary[Graph, dict[tuple[str, str], Any]] = WeakKeyDictionary()


def normalize(graph: Graph, norm: Norm = "gcn") -> CSR:
    """The normalised adjacency of the whole graph, in the type of its features; computed once.

    - `"gcn"`: D^-1/2 (A + I) D^-1/2, where a self-loop that is there already stands for that of I
      and D is the sum of a row of A + I;
    - `"mean"`: D^-1 A, with D the sum of a row of A;
    - `"sum"`: A;
    - `"gcn improved"`: as `"gcn"`, with 2 I where edges have weights (without any, PyG adds I here too);
    - `"gcn without loops"`: without I;
    - `"plain mean"`, `"plain sum"`: as if every weight were one.

    A row or column whose sum is zero becomes zero.

    >>> import lmc
    >>> pair = lmc.Graph([[0, 1], [1, 0]], torch.ones(2, 1), [0, 1], [True, True])
    >>> normalize(pair, "gcn").to_dense().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    check_graph(graph)
    return _once(graph, norm, "matrix", lambda: normalized(graph.adjacency, norm, graph.x.dtype))


def normalize_transposed(graph: Graph, norm: Norm = "gcn") -> CSR:
    """The transpose of `normalize`, along which derivatives travel; the same object where it is equal.

    >>> import lmc
    >>> pair = lmc.Graph([[0, 1], [1, 0]], torch.ones(2, 1), [0, 1], [True, True])
    >>> normalize_transposed(pair) is normalize(pair)
    True
    """
    return _once(graph, norm, "transposed", lambda: normalize(graph, norm).transpose())


def propagated(graph: Graph, norm: Norm = "gcn") -> Tensor:
    """(nodes, features) A X: what the first layer receives, if nothing comes before it; computed once."""
    x = graph.x
    return _once(graph, norm, "propagated", lambda: normalize(graph, norm).times(x, x[:0]))


def known_sums(graph: Graph, norm: Norm = "gcn") -> Tensor | None:
    """(nodes, features) A X, where it was computed already."""
    return _cache.get(graph, {}).get((str(norm), "propagated"))


def _once(graph: Graph, norm: Norm, what: str, compute: Callable[[], Kept]) -> Kept:
    """What `compute` gives, kept for as long as the graph lives."""
    known = _cache.setdefault(graph, {})
    key = (str(norm), what)
    if key not in known:
        known[key] = compute()
    result: Kept = known[key]
    return result


def normalized(adjacency: CSR, norm: Norm, dtype: torch.dtype) -> CSR:
    """The normalised form of any square adjacency; see `normalize`."""
    checks.one_of("norm", norm, Norm)
    if norm.startswith("plain"):
        adjacency = CSR(adjacency.indptr, adjacency.indices, None, adjacency.num_cols)
    if norm in _LOOPS:
        adjacency = _with_self_loops(adjacency, 1.0 if adjacency.values is None else _LOOPS[norm])
    symmetric = norm.startswith("gcn")
    values = _ones_like(adjacency) if adjacency.values is None else adjacency.values.double()
    if not norm.endswith("sum"):
        degree = adjacency.row_sums()
        negative = degree < 0
        if bool(negative.any()):
            row = int(negative.nonzero()[0, 0])
            rule = f"norm={norm!r} needs sums of zero or more"
            raise GraphError(f"edge_weight: row {row} of the adjacency sums to {degree[row]}; {rule}")
        power = degree.pow(-0.5 if symmetric else -1.0)
        power[degree == 0] = 0.0
        factor = power[adjacency.row_ids()]
        if symmetric:
            factor = factor * power[adjacency.indices]  # first, so that A stays exactly symmetric
        values = values * factor
    return CSR(adjacency.indptr, adjacency.indices, values.to(dtype), adjacency.num_cols)


def _ones_like(matrix: CSR) -> Tensor:
    return torch.ones(matrix.num_entries, dtype=torch.float64)


def _with_self_loops(a: CSR, weight: float) -> CSR:
    """A with a diagonal entry in every row that has none, of this weight if it has any; columns in order."""
    index = index_dtype(a.num_entries + a.shape[0])
    rows = a.row_ids().to(index)
    lacks = torch.ones(a.shape[0], dtype=index)
    lacks[rows[a.indices == rows]] = 0
    added_before = torch.zeros(a.shape[0] + 1, dtype=index)
    torch.cumsum(lacks, 0, out=added_before[1:])
    indptr = a.indptr + added_before
    # An entry moves by the loops of the rows above, and by its own row's loop if that comes first.
    entry = torch.arange(a.num_entries, dtype=index) + added_before[rows]
    entry += torch.where(a.indices > rows, lacks[rows], 0)
    indices = torch.repeat_interleave(torch.arange(a.shape[0], dtype=index), indptr.diff())
    indices[entry] = a.indices
    if a.values is None:
        return CSR(indptr, indices, None, a.num_cols)
    values = torch.full((indices.numel(),), weight, dtype=a.values.dtype)
    values[entry] = a.values
    return CSR(indptr, indices, values, a.num_cols)
