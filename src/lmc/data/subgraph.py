"""Parts of a graph: the edges among some nodes, and the nodes that some others can hear of."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from lmc import kernels
from lmc.data import rules
from lmc.data.graph import Graph
from lmc.data.ids import numbered
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
    part = copy.copy(graph)
    part.scratch = None
    for known in ("transposed", "neighbours", "degrees", "numbered_edges", "num_edge_types"):  # of all edges
        vars(part).pop(known, None)
    of_edges = graph.edge_attr is not None or graph.edge_type is not None
    matrix = graph.numbered_edges if of_edges else graph.adjacency
    localize = kernels.kernels_for().localize
    indptr, indices, values = localize(matrix.indptr, matrix.indices, matrix.values, nodes, nodes)
    part.adjacency = CSR(indptr, indices, values, len(nodes)).ordered()
    if of_edges:
        number = part.adjacency.values
        known_of_edges = (graph.edge_weight, graph.edge_attr, graph.edge_type)
        weight, part.edge_attr, part.edge_type = (
            None if array is None else array[number] for array in known_of_edges
        )
        part.adjacency = part.adjacency.with_values(weight)
    for name in ("x", "y", *MASKS):
        setattr(part, name, getattr(graph, name)[nodes])
    part.id = None if graph.id is None else graph.id[nodes.numpy()]
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
