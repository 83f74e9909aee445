"""The edges of a graph, and what follows from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from lmc.data.edges import in_either_direction
from lmc.data.stored import stored_range, stored_transpose
from lmc.errors import GraphError
from lmc.sparse import CSR


class Topology:
    """Who sends messages to whom; what is made of it is made when it is first asked for, and kept."""

    adjacency: CSR
    """(nodes, nodes), row i: the sources of the messages that node i receives."""
    edge_attr: Tensor | None
    """(edges, columns) in the order of `adjacency`, or None."""
    edge_type: Tensor | None
    """(edges,) int32 or int64 in the order of `adjacency`, or None."""
    cluster_starts: Tensor | None = None
    """(clusters + 1,) of a graph in the order of its clusters: where each begins, and the last ends."""
    shards: int = 1
    """Of a graph in the order of its clusters: into how many runs of as many clusters it was cut, too."""
    within: Tensor | None = None
    """(any,) of a graph on disk that processes share: the nodes, in order, that batches of this one have.

    None for all."""
    files: Mapping[int, Path] = {}
    """Of arrays that are read through a map, by where that is, the files, which have just the same bytes."""
    scratch: Path | None = None
    """Of a graph that stays on disk: the folder for what is made of all its edges or features; else None."""

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self.adjacency.shape[0]

    @property
    def num_edges(self) -> int:
        """How many messages one aggregation sends: an undirected edge counts twice."""
        return self.adjacency.num_entries

    @property
    def edge_index(self) -> Tensor:
        """(2, edges) int64, sources above targets, in the order of `adjacency`; made anew each time.

        >>> import lmc
        >>> lmc.Graph([[2, 0], [0, 1]]).edge_index.tolist()
        [[2, 0], [0, 1]]
        """
        return torch.stack([self.adjacency.indices.long(), self.adjacency.row_ids().long()])

    @property
    def edge_weight(self) -> Tensor | None:
        """(edges,) in the order of `adjacency`, or None where every weight is one."""
        return self.adjacency.values

    @cached_property
    def transposed(self) -> CSR:
        """(nodes, nodes), row j: the targets of node j's messages; `adjacency` itself if undirected."""
        if self.scratch is None or self.adjacency.is_symmetric():
            return self.adjacency.transpose()
        return stored_transpose(self.scratch, self.adjacency)

    @property
    def is_undirected(self) -> bool:
        """Whether every edge has its reverse, with the same weight."""
        return self.transposed is self.adjacency

    @cached_property
    def numbered_edges(self) -> CSR:
        """(nodes, nodes) the adjacency with the number of each edge, its place in `edge_attr`, as value."""
        if self.scratch is None:
            return self.adjacency.with_values(torch.arange(self.num_edges))
        return self.adjacency.with_values(stored_range(self.scratch, self.num_edges))

    @cached_property
    def num_edge_types(self) -> int:
        """One more than the largest of `edge_type`; GraphError where edges have no type."""
        if self.edge_type is None:
            raise GraphError("edge_type: the graph has none; convolutions of typed edges need it")
        return int(self.edge_type.max()) + 1 if self.num_edges else 1

    @cached_property
    def neighbours(self) -> CSR:
        """(nodes, nodes), row i: the other nodes that send to i or receive from it.

        Values are how often they do, the more frequent of the two; None where it is always once.
        """
        return in_either_direction(self.adjacency, self.transposed, self.scratch)

    @cached_property
    def sources(self) -> CSR:
        """(nodes, nodes), row i: the other nodes that send to i; values as in `neighbours`."""
        if self.is_undirected:
            return self.neighbours
        return in_either_direction(self.adjacency, self.adjacency, self.scratch)

    @cached_property
    def degrees(self) -> Tensor:
        """(nodes,) how many neighbours each node has, each counted as often as `neighbours` says."""
        return self.neighbours.row_counts()
