"""Normalised adjacencies: the weights with which messages are added up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lmc import checks
from lmc.data.given import check_graph
from lmc.data.stored import put_rows, stored
from lmc.data.typed_adjacency import TYPED, TypedNorm, typed_adjacency
from lmc.data.weighed_rows import Messages, WeighedRows
from lmc.device import copied
from lmc.errors import GraphError
from lmc.scratch import ScratchMatrix
from lmc.sparse import CSR, ROWS_AT_ONCE, index_dtype

if TYPE_CHECKING:
    from lmc.data.graph import Graph

AnyEdges = Literal[
    "gcn",
    "gcn improved",
    "gcn without loops",
    "mean",
    "sum",
    "plain mean",
    "plain sum",
    "chebyshev sym",
    "chebyshev rw",
    "chebyshev",
]
NamedNorm = Literal[AnyEdges, TypedNorm]

OF_SUMS: tuple[NamedNorm, ...] = (
    "gcn",
    "gcn improved",
    "gcn without loops",
    "mean",
    "sum",
    "plain mean",
    "plain sum",
)
"""Those whose entries follow from the sums of two rows, that of the target and that of the source."""

OF_ALL_EDGES: tuple[NamedNorm, ...] = ("chebyshev sym", "chebyshev rw", "chebyshev")
"""Those whose row needs more than what the row's own sources receive: what they send, or all degrees."""


class DerivedNorm(ABC):
    """A normalisation made of others, equal to one of the same making; see `derived_norms.py`."""

    @abstractmethod
    def of(self, adjacency: CSR, dtype: torch.dtype) -> CSR:
        """The normalised form of any square adjacency."""


Norm = NamedNorm | DerivedNorm

# What a self-loop that is added weighs among weighted edges: PyG's `improved` counts a node twice.
_LOOPS: dict[NamedNorm, float] = {"gcn": 1.0, "gcn improved": 2.0}

Kept = TypeVar("Kept")

_cache: WeakKeyDictionary[Graph, dict[tuple[str, str], Any]] = WeakKeyDictionary()


def normalize(graph: Graph, norm: Norm = "gcn") -> CSR:
    """The normalised adjacency of the whole graph, in the type of its features; computed once.

    - `"gcn"`: D^-1/2 (A + I) D^-1/2, where a self-loop that is there already (of several, the last) stands
      for that of I and D is the sum of a row of A + I;
    - `"mean"`: D^-1 A, with D the sum of a row of A;
    - `"sum"`: A;
    - `"gcn improved"`: as `"gcn"`, with 2 I where edges have weights (without any, PyG adds I here too);
    - `"gcn without loops"`: without I;
    - `"plain mean"`, `"plain sum"`: as if every weight were one;
    - `"typed mean"`, `"typed sum"`: the same for each type of edges, stacked; see `typed_adjacency`;
    - `"chebyshev sym"`, `"chebyshev rw"`, `"chebyshev"`: 2 L / m - I, with the Laplacian
      L = I - D^-1/2 A D^-1/2, I - A D^-1 or D - A, where A has no self-loops, D is the sum of a *column*
      of A, as in PyG's `get_laplacian`, and m is twice the largest entry of L.

    A row or column whose sum is zero becomes zero.

    >>> import lmc
    >>> pair = lmc.Graph([[0, 1], [1, 0]], torch.ones(2, 1), [0, 1], [True, True])
    >>> normalize(pair, "gcn").to_dense().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    check_graph(graph)
    return _once(graph, norm, "matrix", lambda: _normalized_graph(graph, norm))


def keep_normalized(graph: Graph, norm: Norm, matrix: CSR) -> None:
    """Have `normalize` and `messages` give this matrix: weights may follow from nodes that are not there."""
    for what in ("matrix", "rows"):
        _once(graph, norm, what, lambda: matrix)


def normalize_transposed(graph: Graph, norm: Norm = "gcn") -> CSR:
    """The transpose of `normalize`, along which derivatives travel; the same object where it is equal.

    >>> import lmc
    >>> pair = lmc.Graph([[0, 1], [1, 0]], torch.ones(2, 1), [0, 1], [True, True])
    >>> normalize_transposed(pair) is normalize(pair)
    True
    """
    return _once(graph, norm, "transposed", lambda: normalize(graph, norm).transpose())


def messages(graph: Graph, norm: Norm = "gcn") -> Messages:
    """What gives the rows of `normalize`: that matrix; of a graph on disk, what its weights follow from."""
    if graph.scratch is None or norm not in OF_SUMS:
        return normalize(graph, norm)
    return _once(graph, norm, "rows", lambda: _weighed_rows(graph.adjacency, norm, graph.x.dtype))


def messages_back(graph: Graph, norm: Norm = "gcn") -> Messages:
    """The same of `normalize_transposed`."""
    forth = messages(graph, norm)
    if isinstance(forth, CSR):
        return normalize_transposed(graph, norm)
    if graph.is_undirected and forth.to is forth.of:
        return forth
    back = graph.transposed if forth.edges.values is not None else graph.transposed.with_values(None)
    return _once(graph, norm, "rows back", lambda: forth.transposed(back))


def propagated(graph: Graph, norm: Norm = "gcn", hops: int = 1) -> Tensor:
    """(nodes, features) Aᴷ X, of K hops; each power is computed once.

    A X is what the first layer receives, if nothing comes before it. Of `graph.within`, where there is such,
    the rows of these nodes alone are made.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1], [1, 2]], torch.tensor([[1.0], [0.0], [0.0]]))
    >>> propagated(path, "sum", hops=2).flatten().tolist()
    [0.0, 0.0, 1.0]
    """
    return _propagated(graph, norm, hops, graph.within if hops == 1 else None)


def propagated_to(graph: Graph, norm: Norm, nodes: Tensor) -> Tensor:
    """(all, features) A X, right in the rows of these nodes; where `graph.within` lacks one, all are made."""
    if graph.within is not None and not bool(torch.isin(nodes, graph.within).all()):
        graph.within = None
    return propagated(graph, norm)


def _propagated(graph: Graph, norm: Norm, hops: int, within: Tensor | None = None) -> Tensor:
    """The same; of some nodes alone, if they are given: other rows are of no use."""
    if hops == 0:
        return graph.x

    def compute() -> Tensor:
        lower = _propagated(graph, norm, hops - 1)
        if graph.scratch is None:
            return normalize(graph, norm).times(lower, lower[:0])
        sums = ScratchMatrix(graph.scratch, tuple(lower.shape), lower.dtype)
        if within is None:
            for part, rows in messages(graph, norm).pieces():
                sums[part] = rows.times(lower, lower[:0])
        else:
            for some in torch.split(within, ROWS_AT_ONCE):
                put_rows(sums, some, messages(graph, norm).take(some).times(lower, lower[:0]))
        return sums.values

    return _once(graph, norm, _power(graph, hops) + ("" if within is None else ", some"), compute)


def sums_of(graph: Graph, norm: Norm, message: Tensor, part: slice) -> Tensor:
    """(part, width) what consecutive nodes receive of (nodes, width) messages, where those are.

    Of the features themselves, A X is taken where it was computed already.
    """
    known: Tensor | None = _cache.get(graph, {}).get((str(norm), _power(graph, 1)))
    if message is graph.x and known is not None:
        return known[part]
    return copied(messages(graph, norm).rows(part), message.device) @ message


def _power(graph: Graph, hops: int) -> str:
    """Its name; features that somebody has changed in place are others."""
    return f"propagated {hops}, {0 if graph.x.is_inference() else graph.x._version}"


def _once(graph: Graph, norm: Norm, what: str, compute: Callable[[], Kept]) -> Kept:
    """What `compute` gives, kept for as long as the graph lives."""
    known = _cache.setdefault(graph, {})
    key = (str(norm), what)
    if key not in known:
        known[key] = compute()
    result: Kept = known[key]
    return result


def _normalized_graph(graph: Graph, norm: Norm) -> CSR:
    if norm in TYPED:
        types = graph.num_edge_types
        assert graph.edge_type is not None  # which the line above refuses
        return typed_adjacency(graph.adjacency, graph.edge_type, types, str(norm), graph.x.dtype)
    if graph.scratch is not None and norm in OF_SUMS:
        most = graph.num_edges + graph.num_nodes  # with every self-loop
        return stored(graph.scratch, graph.adjacency, most, messages(graph, norm).pieces())
    return normalized(graph.adjacency, norm, graph.x.dtype)


def _weighed_rows(adjacency: CSR, norm: Norm, dtype: torch.dtype) -> WeighedRows:
    """What the rows of `normalized` follow from; norm is one of `OF_SUMS`."""
    assert isinstance(norm, str)
    edges = adjacency.with_values(None) if norm.startswith("plain") else adjacency
    loop = _LOOPS.get(norm)
    rows = WeighedRows(edges, None, None, 1.0 if loop and edges.values is None else loop, dtype)
    if norm.endswith("sum"):
        return rows
    sums = torch.zeros(edges.shape[0], dtype=torch.float64)
    for part, some in replace(rows, dtype=torch.float64).pieces():
        sums[part] = some.row_sums()
    symmetric = norm.startswith("gcn")
    power = _inverse(sums, 0.5 if symmetric else 1.0, norm, "row")
    return replace(rows, to=power, of=power if symmetric else None)


def normalized(adjacency: CSR, norm: Norm, dtype: torch.dtype) -> CSR:
    """The normalised form of any square adjacency, but by types; see `normalize`."""
    if isinstance(norm, DerivedNorm):
        return norm.of(adjacency, dtype)
    checks.one_of("norm", norm, NamedNorm)
    if norm in OF_ALL_EDGES:
        return _chebyshev(adjacency.without_diagonal(), norm, dtype)
    if norm.startswith("plain"):
        adjacency = adjacency.with_values(None)
    if norm in _LOOPS:
        adjacency = with_self_loops(adjacency, 1.0 if adjacency.values is None else _LOOPS[norm])
    symmetric = norm.startswith("gcn")
    values = _ones_like(adjacency) if adjacency.values is None else adjacency.values.double()
    if not norm.endswith("sum"):
        power = _inverse(adjacency.row_sums(), 0.5 if symmetric else 1.0, norm, "row")
        factor = power[adjacency.row_ids()]
        if symmetric:
            factor = factor * power[adjacency.indices]  # first, so that A stays exactly symmetric
        values = values * factor
    return CSR(adjacency.indptr, adjacency.indices, values.to(dtype), adjacency.num_cols)


def _inverse(degree: Tensor, power: float, norm: Norm, what: str) -> Tensor:
    """degree^-power, and 0 for a degree of zero."""
    negative = degree < 0
    if bool(negative.any()):
        place = int(negative.nonzero()[0, 0])
        rule = f"norm={norm!r} needs sums of zero or more"
        raise GraphError(f"edge_weight: {what} {place} of the adjacency sums to {degree[place]}; {rule}")
    inverse = degree.pow(-power)
    inverse[degree == 0] = 0.0
    return inverse


def _chebyshev(a: CSR, norm: Norm, dtype: torch.dtype) -> CSR:
    """2 L / m - I of an adjacency without self-loops; see `normalize`."""
    sources, rows = a.indices.long(), a.row_ids()
    weight = _ones_like(a) if a.values is None else a.values.double()
    degree = torch.zeros(a.num_cols, dtype=torch.float64).index_add_(0, sources, weight)
    diagonal = torch.ones_like(degree)
    if norm == "chebyshev":
        diagonal = degree
    elif norm == "chebyshev rw":
        weight = weight * _inverse(degree, 1.0, norm, "column")[sources]
    else:
        power = _inverse(degree, 0.5, norm, "column")
        weight = weight * (power[rows] * power[sources])  # first, so that it stays exactly symmetric
    largest = torch.cat([diagonal, -weight]).max()
    scale = 1 / largest if largest > 0 else torch.zeros_like(largest)  # of 2 L / m, with m = 2 largest
    diagonal = scale * diagonal - 1
    off = CSR(a.indptr, a.indices, (-scale * weight).to(dtype), a.num_cols)
    return off if not bool(diagonal.any()) else _with_diagonal(off, diagonal.to(dtype))


def _ones_like(matrix: CSR) -> Tensor:
    return torch.ones(matrix.num_entries, dtype=torch.float64)


def _with_diagonal(a: CSR, diagonal: Tensor) -> CSR:
    """A, which has no diagonal entries, with these."""
    filled = with_self_loops(a, 0.0)
    on = filled.indices == filled.row_ids()
    assert filled.values is not None
    return CSR(filled.indptr, filled.indices, filled.values.masked_scatter(on, diagonal), a.num_cols)


def with_self_loops(a: CSR, weight: float) -> CSR:
    """A with one diagonal entry in every row: its last, or of this weight; columns kept in order."""
    index = index_dtype(a.num_entries + a.shape[0])
    rows = a.row_ids().to(index)
    loops = a.indices == rows
    lacks = torch.ones(a.shape[0], dtype=index)
    lacks[rows[loops]] = 0
    if int(loops.sum()) > a.shape[0] - int(lacks.sum()):  # some row has several, one after the other
        loops[:-1] &= loops[1:] & (rows[:-1] == rows[1:])
        loops[-1] = False
        return with_self_loops(a.keep(~loops), weight)
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
