"""Where historical values are in a graph of shards: those of own nodes, and of nodes next to them.

A shard has places for its own nodes, and an inbox: places for the nodes of other shards that its own have for
neighbours. Before a step, what the step will read of other shards is copied into the inbox, as it is then.
So all shards of a step read values as they were when it began, although each writes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.batching.shard_sampler import sorted_union
from lmc.data.graph import Graph
from lmc.estimators.history import Remembered

ROWS = 1 << 18
"""Nodes whose edges are looked at together."""


@dataclass(frozen=True)
class Border:
    """What a shard has to do with others.

    Attributes:
        own: (any,) its nodes that may be outside of a batch, in order.
        around: (any,) the nodes of other shards that they have for neighbours, in order.
        reads: by cluster of its own, the nodes of other shards that its nodes have for neighbours, in order.
        shows: by cluster of another shard, its own nodes that are neighbours of that cluster, in order.
    """

    own: Tensor
    around: Tensor
    reads: dict[int, Tensor]
    shows: dict[int, Tensor]

    @staticmethod
    def of(graph: Graph, clusters: Tensor, of_cluster: Tensor, shard: int) -> Border:
        """Found by the edges of the shard's own nodes alone: neighbours are so both ways.

        Args:
            graph: the graph.
            clusters: (nodes,) the cluster of each.
            of_cluster: (clusters,) the shard of each.
            shard: which.
        """
        own, reads, shows = list[Tensor](), list[Tensor](), list[Tensor]()
        for nodes in torch.split((of_cluster[clusters] == shard).nonzero()[:, 0], ROWS):
            rows = graph.neighbours.take(nodes)
            node, other = nodes[rows.row_ids()], rows.indices.long()
            own.append(node[clusters[node] != clusters[other]])
            elsewhere = of_cluster[clusters[other]] != shard
            node, other = node[elsewhere], other[elsewhere]
            reads.append(_pairs(clusters[node], other, graph.num_nodes))
            shows.append(_pairs(clusters[other], node, graph.num_nodes))
        read = _by_cluster(sorted_union(reads), graph.num_nodes)
        return Border(
            sorted_union(own),
            sorted_union(list(read.values())),
            read,
            _by_cluster(sorted_union(shows), graph.num_nodes),
        )

    def read_by(self, group: NDArray[np.int64]) -> Tensor:
        """(any,) the nodes of other shards that a batch of its clusters reads, in order."""
        return sorted_union([self.reads[cluster] for cluster in group.tolist() if cluster in self.reads])

    def shown_to(self, group: NDArray[np.int64]) -> Tensor:
        """(any,) its nodes that a batch of another shard's clusters reads, in order."""
        return sorted_union([self.shows[cluster] for cluster in group.tolist() if cluster in self.shows])


def _pairs(cluster: Tensor, node: Tensor, num_nodes: int) -> Tensor:
    """A number for each pair, once."""
    return sorted_union([cluster * num_nodes + node])


def _by_cluster(pairs: Tensor, num_nodes: int) -> dict[int, Tensor]:
    cluster = pairs // num_nodes
    which, counts = torch.unique_consecutive(cluster, return_counts=True)
    nodes = torch.split(pairs - cluster * num_nodes, counts.tolist())
    return dict(zip(which.tolist(), nodes, strict=False))


class Shown(NamedTuple):
    """What a shard of this process shows to another one.

    Attributes:
        reads: the shard that reads it.
        shows: the shard of this process.
        places: (any,) of it.
    """

    reads: int
    shows: int
    places: Tensor


@dataclass(frozen=True)
class Exchange:
    """What one step copies: rows of own places to inboxes, here and in other processes.

    Attributes:
        parts: what is read here, by the shard that it goes to, and then by that which it is of.
        sent: rows for each process.
        targets: (received,) the places that are written here, by the process they come from.
        received: rows of each process.
    """

    parts: list[Shown]
    sent: list[int]
    targets: Tensor
    received: list[int]

    @cached_property
    def sources(self) -> Tensor:
        """(sent,) all places that are read here."""
        return torch.cat([NOTHING, *(part.places for part in self.parts)])


NOTHING = torch.zeros(0, dtype=torch.int64)


class ShardPlaces(Remembered):
    """The places of the shards of one process.

    Args:
        graph: the graph.
        clusters: (nodes,) the cluster of each.
        of_cluster: (clusters,) the shard of each.
        of_process: the shards of each process.
        rank: which of them this is.

    Attributes:
        mine: the shards of this process.
        own: the range of places of each of these shards' own nodes.
        inboxes: that of the nodes of other shards which they have for neighbours.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> places = ShardPlaces(path, torch.arange(4), torch.tensor([0, 0, 1, 1]), [range(2)])
    >>> len(places), places.places(torch.arange(4), 0).tolist(), places.places(torch.arange(4), 1).tolist()
    (6, [0, 1, 4, -1], [-1, 5, 2, 3])
    >>> step = places.exchange([np.array([1]), np.array([3])])  # node 1 reads node 2
    >>> step.sources.tolist(), step.targets.tolist()
    ([2], [4])
    """

    def __init__(
        self, graph: Graph, clusters: Tensor, of_cluster: Tensor, of_process: Sequence[range], rank: int = 0
    ) -> None:
        self.mine = of_process[rank]
        self._of_node, self._of_process = of_cluster[clusters], of_process
        self._border = {shard: Border.of(graph, clusters, of_cluster, shard) for shard in self.mine}
        self.own: dict[int, range] = {}
        self._known: dict[int | None, tuple[Tensor, Tensor]] = {}
        self.inboxes: dict[int, range] = {}
        end = 0
        for shard, border in self._border.items():
            self.own[shard] = range(end, end := end + len(border.own))
        for shard, border in self._border.items():
            self.inboxes[shard] = range(end, end := end + len(border.around))
        own, inboxes = (
            [torch.arange(each.start, each.stop) for each in ranges.values()]
            for ranges in (self.own, self.inboxes)
        )
        for (shard, border), *places in zip(self._border.items(), own, inboxes, strict=True):
            self._known[shard] = _in_order([border.own, border.around], places)
        self._known[None] = _in_order([border.own for border in self._border.values()], own)
        self._count = end

    @property
    def members(self) -> Tensor:
        """(any,) all nodes that batches of these shards have, within or outside, in order."""
        here = torch.isin(self._of_node, torch.tensor([*self.mine]))
        return sorted_union([here.nonzero()[:, 0], *(border.around for border in self._border.values())])

    def places(self, nodes: Tensor, shard: int | None = None) -> Tensor:
        """(nodes,) int64 where a shard reads and writes them; None for where they are at home."""
        known, places = self._known[shard]
        if len(known) == 0:
            return torch.full_like(nodes, -1)
        at = torch.searchsorted(known, nodes).clamp_max(len(known) - 1)
        return torch.where(known[at] == nodes, places[at], -1)

    def exchange(self, groups: Sequence[NDArray[np.int64]]) -> Exchange:
        """What the step copies whose batches are these clusters, of all shards.

        Both ends know it without a word: it follows from the clusters, by the edges of own nodes alone.
        """
        parts, sent, targets, received = list[Shown](), list[int](), list[Tensor](), list[int]()
        read = {shard: self._border[shard].read_by(groups[shard]) for shard in self.mine}
        for peers in self._of_process:
            going = [
                Shown(reads, shows, self.places(self._border[shows].shown_to(groups[reads]), shows))
                for reads in peers
                for shows in self.mine
                if shows != reads
            ]
            coming = [
                self.places(read[reads][self._of_node[read[reads]] == shows], reads)
                for reads in self.mine
                for shows in peers
                if shows != reads
            ]
            parts, targets = parts + going, targets + coming
            sent.append(sum(len(each.places) for each in going))
            received.append(sum(map(len, coming)))
        return Exchange(parts, sent, torch.cat([NOTHING, *targets]), received)


def _in_order(nodes: list[Tensor], places: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Nodes in order, and the place of each."""
    nodes_of_all, order = torch.cat(nodes).sort()
    return nodes_of_all, torch.cat(places)[order]
