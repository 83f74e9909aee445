"""Edges as they are given, in the order of one adjacency."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks
from lmc.data import rules
from lmc.data.stored import stored
from lmc.sparse import CSR, index_dtype


class GraphEdges(NamedTuple):
    """The arrays of `Graph` that have a row per edge, in the order of targets, sources, and as given."""

    adjacency: CSR
    attr: Tensor | None
    type: Tensor | None


class GivenEdges(NamedTuple):
    """What is known of edges beside their ends, see the arguments of `Graph`; each may be None."""

    weight: Any
    attr: Any
    type: Any

    def from_ends(self, edge_index: Tensor, num_nodes: int) -> GraphEdges:
        """Of (2, edges) node ids. A repeated edge is an entry of its own."""
        ends = rules.edge_index("edge_index", edge_index, num_nodes)
        source, target = ends.to(index_dtype(num_nodes)).numpy()
        numbered = CSR.of_entries(target, source, (num_nodes, num_nodes))
        return self._checked(len(source))._in_order_of(numbered)

    def from_rows(self, indptr: Tensor, indices: Tensor, num_nodes: int) -> GraphEdges:
        """Of rows of in-neighbours."""
        indptr, indices = rules.csr(indptr, indices, num_nodes)
        index = index_dtype(max(num_nodes, indices.numel()))
        weight, attr, kind = checked = self._checked(indices.numel())
        given = CSR(indptr.to(index), indices.to(index), weight, num_nodes)
        if given.is_ordered():  # then it is taken as it is, and stays on disk if it is there
            return GraphEdges(given, attr, kind)
        ends = given.row_ids().numpy(), given.indices.numpy()
        return checked._in_order_of(CSR.of_entries(*ends, given.shape))

    def _checked(self, num_edges: int) -> GivenEdges:
        """As tensors; GraphError where a rule is broken."""
        known = (
            (rules.edge_weight, "edge_weight", self.weight),
            (rules.edge_attr, "edge_attr", self.attr),
            (rules.edge_type, "edge_type", self.type),
        )
        return GivenEdges(
            *(
                None if given is None else rule(rules.tensor(name, given), num_edges)
                for rule, name, given in known
            )
        )

    def _in_order_of(self, numbered: CSR) -> GraphEdges:
        """In the order of an adjacency whose values are the numbers of the edges."""
        number = numbered.values
        weight, attr, kind = (None if array is None else array[number] for array in self)
        return GraphEdges(numbered.with_values(weight), attr, kind)


def counted(matrix: CSR) -> CSR:
    """How often each entry of an ordered matrix is there; without values where none is repeated."""
    pattern = matrix.with_values(None)
    return pattern if pattern.is_canonical() else CSR.from_scipy(pattern.to_scipy())


def in_either_direction(adjacency: CSR, transposed: CSR, scratch: Path | None = None) -> CSR:
    """The neighbours of every node, itself not among them; the values are how often, if not always once.

    Two nodes are neighbours as often as the one sends to the other, or the other to the one, if that is more.
    With a folder for it, what has to be stored is stored there.
    """
    if scratch is None:
        return _rows_in_either_direction(0, adjacency, transposed)
    symmetric = transposed is adjacency
    if symmetric and not adjacency.has_diagonal() and adjacency.is_canonical():
        return adjacency.with_values(None)

    def pieces() -> Iterator[tuple[slice, CSR]]:
        for part, rows in adjacency.pieces():
            back = rows if symmetric else transposed.rows(part)
            yield part, _rows_in_either_direction(part.start, rows, back)

    return stored(scratch, adjacency, (1 if symmetric else 2) * adjacency.num_entries, pieces())


def _rows_in_either_direction(first: int, adjacency: CSR, transposed: CSR) -> CSR:
    """The same of consecutive rows, from the first of them on."""
    once = counted(adjacency.without_diagonal(first))
    if transposed is adjacency:
        return once
    either = once.to_scipy().maximum(counted(transposed.without_diagonal(first)).to_scipy())
    neighbours = CSR.from_scipy(either)
    assert neighbours.values is not None
    return neighbours.with_values(None) if bool((neighbours.values == 1).all()) else neighbours


def in_both_directions(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    weight: NDArray[Any] | None,
    num_nodes: int,
    kind: NDArray[Any] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None, NDArray[Any] | None]:
    """Every edge once in each direction, with the same weight: the larger, where both are given.

    An edge from i to j and one from j to i are the same one, given twice; if it is repeated, the first and
    the first, and so on. Those of another kind are other edges. Other weights there and back are worth a
    warning, and so are repeated ones, which are more often a mistake than parallel edges.

    >>> ends = np.array([0, 1, 2]), np.array([1, 0, 0])
    >>> in_both_directions(*ends, np.array([3.0, 3.0, 5.0]), 3)[:3]
    (array([0, 1, 2, 0]), array([1, 0, 0, 2]), array([3., 3., 5., 5.]))
    """
    given = np.ones(len(source), np.float32) if weight is None else weight
    of_kind = np.zeros(len(source), np.int64) if kind is None else kind.astype(np.int64)
    order = np.argsort((of_kind * num_nodes + source) * num_nodes + target, kind="stable")
    source, target, given, of_kind = source[order], target[order], given[order], of_kind[order]
    edges = (of_kind * num_nodes + source) * num_nodes + target
    back = (of_kind * num_nodes + target) * num_nodes + source
    first, behind = (np.searchsorted(edges, back, side) for side in ("left", "right"))
    turn = np.arange(len(edges)) - np.searchsorted(edges, edges)  # 0 for the first of equals
    has_reverse = turn < behind - first
    back_given = np.where(has_reverse, given[np.where(has_reverse, first + turn, 0)], given)
    if differing := int((back_given != given).sum()) // 2:
        text = f"{differing} edges have another weight there than back; the larger one is taken for both"
        warnings.warn(text, stacklevel=3)
    if repeated := int((turn > 0).sum()):
        repeat = "repeats" if repeated == 1 else "repeat"
        rows = f"{checks.counted(repeated, 'row')} {repeat} an edge in the same direction"
        warnings.warn(f"{rows}: each is one more edge between the same nodes", stacklevel=3)
    given = np.maximum(given, back_given)
    lacks = ~has_reverse
    # Parallel edges come in the same order there and back.
    order = np.lexsort([np.concatenate([each, each[lacks]]) for each in (turn, of_kind)])
    ends = ((source, target), (target, source), (given, given), (of_kind, of_kind))
    both = [np.concatenate([one, other[lacks]])[order] for one, other in ends]
    return both[0], both[1], None if weight is None else both[2], None if kind is None else both[3]
