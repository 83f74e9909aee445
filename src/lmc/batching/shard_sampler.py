"""Batches of a graph that is cut into shards: a step takes one of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.batching.samplers import ClusterSampler
from lmc.data.batch import Batch


class Turn(NamedTuple):
    """What a step takes.

    Attributes:
        batches: one of each shard that this process has, in their order; it may make them as they are asked
            for.
        groups: the clusters of each shard's batch, of all shards.
        scale: clusters in the graph over clusters in all these batches.
        then: the groups of the next step of the epoch; None at its end.
    """

    batches: Iterable[Batch]
    groups: Sequence[NDArray[np.int64]]
    scale: float
    then: Sequence[NDArray[np.int64]] | None = None


class ShardedSampler(ClusterSampler):
    """Groups of clusters, each within a shard: every cluster once an epoch.

    The scale of a batch is clusters in its shard over clusters in the batch, so that the sum over shards
    stands for the graph. All shards have as many clusters, and all batches of a step have.

    Args:
        whole: groups of clusters of the whole graph.
        of_cluster: (clusters,) the shard of each.
        mine: the shards of this process; None for all.

    Attributes:
        shards: how many there are.
        mine: those of this process.
        of_cluster: (clusters,) the shard of each.

    >>> import lmc
    >>> from lmc.batching.shards import cut_into_shards
    >>> graph = lmc.synthetic(nodes=200)
    >>> clusters = lmc.partition(graph, parts=8)
    >>> sampler = ShardedSampler(ClusterSampler(graph, clusters, 2), cut_into_shards(graph, clusters, 2))
    >>> [(batch.shard, batch.scale) for batch in sampler.epoch(0)]
    [(0, 2.0), (1, 2.0), (0, 2.0), (1, 2.0)]
    >>> sampler.steps, [len(turn.groups) for turn in sampler.turns(0)]
    (2, [2, 2])
    """

    def __init__(self, whole: ClusterSampler, of_cluster: Tensor, mine: range | None = None) -> None:
        vars(self).update(vars(whole))  # the same clusters
        self.of_cluster = of_cluster
        self.shards = int(of_cluster.max()) + 1
        self.mine = range(self.shards) if mine is None else mine
        numbers = of_cluster.numpy()
        self._each = [whole.of_shard(shard, (numbers == shard).nonzero()[0]) for shard in range(self.shards)]
        self._meeting = lru_cache(2)(self._meeting_in)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return self._each[0].steps

    @property
    def of_node(self) -> Tensor:
        """(nodes,) the shard of each."""
        return self.of_cluster[self.clusters]

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch that are of this process, a step after the other."""
        each = [self._each[shard].epoch(number, start) for shard in self.mine]
        for of_step in zip(*each, strict=True):
            yield from of_step

    def turn(self, coming: Iterator[Batch], epoch: int, step: int) -> Turn:
        """What a step takes out of the batches that `epoch` has made."""
        groups, *later = self._meeting(epoch)[step : step + 2]
        scale = len(self.of_cluster) / sum(map(len, groups))
        return Turn(islice(coming, len(self.mine)), groups, scale, *later)

    def turns(self, epoch: int) -> Iterator[Turn]:
        """What all steps of an epoch take."""
        coming = self.epoch(epoch)
        for step in range(self.steps):
            turn = self.turn(coming, epoch, step)
            yield turn._replace(batches=list(turn.batches))

    def _meeting_in(self, epoch: int) -> list[tuple[NDArray[np.int64], ...]]:
        return list(zip(*(each.meeting(epoch) for each in self._each), strict=True))


def shards_of(rank: int, processes: int, shards: int) -> range:
    """The shards that a process has: runs of them.

    >>> shards_of(1, 2, 8)
    range(4, 8)
    """
    each = shards // processes
    return range(rank * each, (rank + 1) * each)


def sorted_union(parts: Sequence[Tensor]) -> Tensor:
    """(any,) int64 what is in one or more of them, in order.

    >>> sorted_union([torch.tensor([3, 5]), torch.tensor([1, 3])]).tolist()
    [1, 3, 5]
    """
    union: Tensor = torch.unique(torch.cat([torch.zeros(0, dtype=torch.int64), *parts]))
    return union
