"""Parts of a graph: the edges among some nodes, and the nodes that some others can hear of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lmc import kernels
from lmc.data import rules
from lmc.data.graph import Graph
from lmc.data.ids import numbered
from lmc.data.set_once import with_arrays
from lmc.data.splits import MASKS
from lmc.sparse import CSR


def subgraph(graph: Graph, nodes: Any) -> Graph:
    """The graph of some nodes, in the order that they are given in, and of the edges among them.

    Args:
        graph: the graph.
        nodes: (nodes,) its node numbers, each once.

    >>> path = Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], id=["a", "b", "c"])
    >>> part = subgraph(path, [2, 1])
    >>> part.adjacency.to_dense().tolist(), part.id.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], ['c', 'b'])
    """
    nodes = rules.node_set(numbered(graph, nodes), graph.num_nodes, "subgraph")
    of_edges = graph.edge_attr is not None or graph.edge_type is not None
    matrix = graph.numbered_edges if of_edges else graph.adjacency
    localize = kernels.kernels_for().localize
    indptr, indices, values = localize(matrix.indptr, matrix.indices, matrix.values, nodes, nodes)
    adjacency = CSR(indptr, indices, values, len(nodes)).ordered()
    edge_attr = edge_type = None
    if of_edges:
        number = adjacency.values
        known_of_edges = (graph.edge_weight, graph.edge_attr, graph.edge_type)
        weight, edge_attr, edge_type = (None if array is None else array[number] for array in known_of_edges)
        adjacency = adjacency.with_values(weight)
    part = with_arrays(
        graph,
        adjacency=adjacency,
        edge_attr=edge_attr,
        edge_type=edge_type,
        **{name: getattr(graph, name)[nodes] for name in ("x", "y", *MASKS)},
        id=None if graph.id is None else graph.id[nodes.numpy()],
    )
    part.scratch = None
    for known in ("transposed", "neighbours", "degrees", "numbered_edges", "num_edge_types"):  # of all edges
        vars(part).pop(known, None)
    return part


def heard(graph: Graph, nodes: Tensor, hops: int, most: int) -> Tensor | None:
    """(any,) int64, ascending: the nodes whose messages reach one of `nodes` in so many hops, these included.

    None where they are more than `most`.

    >>> path = Graph([[0, 1, 2], [1, 2, 3]], torch.eye(4))
    >>> heard(path, torch.tensor([3]), hops=2, most=4)
    tensor([1, 2, 3])
    """
    members = kernels.kernels_for().members
    found: Tensor = torch.unique(nodes)
    for _ in range(hops):
        before, found = len(found), members(graph.adjacency.indptr, graph.adjacency.indices, found)
        if len(found) > most:
            return None
        if len(found) == before:
            break
    return found.sort().values
