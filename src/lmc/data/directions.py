"""A graph's edges without weights, features or types, as they are and the other way round."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from lmc.data.graph import Graph
from lmc.data.set_once import with_arrays
from lmc.sparse import CSR

_known: WeakKeyDictionary[Graph, tuple[Graph, Graph]] = WeakKeyDictionary()


def both_directions(graph: Graph) -> tuple[Graph, Graph]:
    """The graph with plain edges, and the one with every edge reversed; made once, and sharing all nodes.

    >>> import torch
    >>> path = Graph([[0, 1], [1, 2]], torch.eye(3), edge_weight=[5.0, 7.0])
    >>> [each.to_pyg().edge_index.tolist() for each in both_directions(path)]
    [[[0, 1], [1, 2]], [[1, 2], [0, 1]]]
    """
    if graph not in _known:
        given = graph.adjacency
        forward = CSR(given.indptr, given.indices, None, given.num_cols)
        backward = forward.transpose()
        plain = _with_edges(graph, forward)
        _known[graph] = plain, plain if backward is forward else _with_edges(graph, backward)
    return _known[graph]


def _with_edges(graph: Graph, adjacency: CSR) -> Graph:
    other = with_arrays(graph, adjacency=adjacency, edge_attr=None, edge_type=None)  # neighbours are the same
    for known in ("transposed", "numbered_edges", "num_edge_types", "sources"):
        vars(other).pop(known, None)
    return other
