"""Samplers: what yields the batches of an epoch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks, hashed_random
from lmc.batching.balance import Balance, balanced, label_counts, together
from lmc.batching.choice import LEAST_CLUSTER, Choice, check_shards, choose_batches, too_many
from lmc.batching.descriptors import ClusterDescriptors
from lmc.batching.partition import PartitionMethod, partition
from lmc.data import rules
from lmc.data.batch import Batch
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.sparse import index_dtype

# Addresses of random orders: which clusters meet in a batch, which batch comes when, which clusters are
# offered a change of batches; and all that for large batches, and for each shard.
_GROUPS, _TURNS, _OFFERS, _LARGE, _SHARD = 0, 1, 2, 3, 4


class Sampler(Protocol):
    """What yields the batches of an epoch; they depend on its seed and the epoch alone."""

    @property
    def steps(self) -> int:
        """How many batches an epoch has."""

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, counted from 0; without the first `start` of them."""


@dataclass(frozen=True)
class BatchOptions:
    """How a run makes its batches.

    Attributes:
        parts: into how many clusters the graph is cut; None to choose it by the graph's size.
        parts_per_batch: clusters in a batch; None is 1 where `parts` is given, otherwise it is chosen.
        partition: `"auto"`, `"metis"`, `"stream"` or another method of `lmc.partition`.
        fixed: whether every epoch has the same groups of clusters.
        seed: of the clusters and of their groups.
        balance: `"labels"` for groups with nearly the graph's mix of labels; `"gradients"` for groups whose
            estimates are alike; `"none"` or None: random ones.
        batch_share: which share of the graph's nodes a batch has, instead of `parts_per_batch`.
        choice: what has become of these numbers in a run that goes on; None to choose now.
        shards: into how many sets of as many clusters they are divided; a batch is of one of them.
        clusters: (nodes,) the cluster of every node, where the graph is cut already.
    """

    parts: int | None = None
    parts_per_batch: int | None = None
    partition: PartitionMethod = "auto"
    fixed: bool = False
    seed: int = 0
    balance: Balance | None = "labels"
    batch_share: float | None = None
    choice: Choice | None = None
    shards: int = 1
    clusters: Tensor | None = None

    def check_clusters(self) -> None:
        """Raise ArgumentError where a batch is to have more clusters than there are, or a shard fewer."""
        if self.parts is not None and self.parts_per_batch is not None and self.parts_per_batch > self.parts:
            rule = f"must be at most parts={self.parts}; make parts larger or parts_per_batch smaller"
            raise ArgumentError(f"parts_per_batch={self.parts_per_batch}: {rule}")
        if self.parts is not None:
            check_shards(self.shards, self.parts, self.parts_per_batch)


class LargeBatches(NamedTuple):
    """Which steps have a larger batch, counted from 0 over all epochs: the multiples of `every`.

    Attributes:
        every: steps from one to the next.
        parts: clusters in one.
    """

    every: int
    parts: int


class WholeGraph:
    """A sampler with one batch: all nodes.

    >>> import lmc
    >>> [batch.num_nodes for batch in WholeGraph(lmc.synthetic(nodes=200)).epoch(0)]
    [200]
    """

    steps = 1

    def __init__(self, graph: Graph) -> None:
        self._batch = graph.batch(torch.arange(graph.num_nodes))

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The same batch in every epoch, with all that was built for it."""
        return iter([self._batch][start:])


class ClusterSampler:
    """Groups of clusters: every cluster once an epoch.

    Args:
        graph: the graph.
        clusters: (nodes,) the cluster of every node, as from `lmc.partition`.
        parts_per_batch: clusters in a batch; the last batch takes what remains, and its scale,
            clusters in the graph over clusters in the batch, follows.
        seed: of the random groups.
        fixed: whether every epoch keeps the same groups, and only their order changes.
        balance: `"labels"` for groups that have nearly the graph's mix of training labels, `"gradients"` for
            groups whose estimates are alike, as far as steps have shown (`descriptors` is told of them; until
            then, labels), `"none"` (or None) for random ones.

    Attributes:
        descriptors: what steps have shown of clusters; None where groups are not made of it.
        shard: of which it has the clusters; None for those of the whole graph.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=200)
    >>> sampler = ClusterSampler(graph, lmc.partition(graph, parts=8), parts_per_batch=3)
    >>> sampler.steps, [batch.scale for batch in sampler.epoch(0, start=1)]
    (3, [2.6666666666666665, 4.0])
    """

    def __init__(
        self,
        graph: Graph,
        clusters: Any,
        parts_per_batch: int = 1,
        seed: int = 0,
        fixed: bool = False,
        balance: Balance | None = None,
    ) -> None:
        check_graph(graph)
        self.clusters: Tensor = rules.cluster_ids(clusters, graph.num_nodes)
        self.parts_per_batch = checks.whole_number("parts_per_batch", parts_per_batch, 1)
        self._graph, self._fixed = graph, checks.truth("fixed", fixed)
        self._seed = checks.whole_number("seed", seed, 0)
        in_order, by_cluster = self.clusters.sort(stable=True)
        sizes = torch.unique_consecutive(in_order, return_counts=True)[1]
        by_cluster = by_cluster.to(index_dtype(graph.num_nodes))  # kept for the whole run
        self._members = by_cluster.tensor_split(sizes.cumsum(0)[:-1])
        self.choice: Choice | None = None
        self.shard: int | None = None
        self._which: NDArray[np.int64] | None = None
        self._large: LargeBatches | None = None
        self._described: NDArray[np.float64] | None = None
        self.descriptors: ClusterDescriptors | None = None
        by = checks.one_of("balance", balance or "none", Balance)
        if by != "none" and bool(graph.train_mask.any()):
            numbers = torch.empty_like(by_cluster)
            numbers[by_cluster] = torch.arange(len(sizes)).to(numbers.dtype).repeat_interleave(sizes)
            self._described = label_counts(graph, numbers, len(self._members))
            if by == "gradients" and not fixed:
                self.descriptors = ClusterDescriptors(numbers, len(self._members))

    @classmethod
    def cut(cls, graph: Graph, options: BatchOptions) -> ClusterSampler:
        """Of a graph that is cut as the options say, and as is chosen where they do not; `choice` tells.

        Clusters of one or two nodes are worth a warning.
        """
        options.check_clusters()
        given = (options.parts, options.parts_per_batch, options.batch_share)
        made = None if graph.cluster_starts is None else len(graph.cluster_starts) - 1
        choice = options.choice or choose_batches(graph.num_nodes, *given, made=made)
        if made not in (None, choice.parts):
            rule = f"the prepared graph has {made}; the one that the run began with is needed"
            raise ArgumentError(f"the run has {choice.parts} clusters: {rule}")
        if options.parts is None and (made is None or made % options.shards == 0):
            choice = choice.in_shards(graph.num_nodes, options.shards)
        if choice.parts * LEAST_CLUSTER > graph.num_nodes and choice.parts > 1:
            many = f"parts={choice.parts}: clusters of a graph of {graph.num_nodes} nodes have fewer than "
            warnings.warn(
                f"{too_many(graph.num_nodes, *given[:2]) or many + f'{LEAST_CLUSTER} each'}, almost no "
                "neighbours among them; fewer parts make better batches",
                stacklevel=2,
            )
        clusters = options.clusters
        if clusters is None and graph.cluster_starts is not None:
            clusters = torch.arange(choice.parts).repeat_interleave(graph.cluster_starts.diff())
        elif clusters is None:
            clusters = partition(graph, choice.parts, options.partition, options.seed)
        sampler = cls(graph, clusters, choice.parts_per_batch, options.seed, options.fixed, options.balance)
        sampler.choice = choice
        return sampler

    def of_shard(self, shard: int, which: NDArray[np.int64]) -> ClusterSampler:
        """The same of some of its clusters alone, in groups of their own.

        Args:
            shard: its number.
            which: (any,) the clusters.
        """
        part = copy(self)
        part.shard, part._which = shard, which
        part._members = tuple(self._members[i] for i in which)
        part._described = None if self._described is None else self._described[which]
        return part

    def enlarge(self, every: int, large: int | None = None) -> None:
        """Have the batch of every so many-th step, the first included, be one of `large` clusters.

        None for as many as `every` other batches have, or all there are. Large batches take the places of
        others: an epoch has as many steps as before. Every cluster is in as many of them as any other, as far
        as groups of `large` come out even.
        """
        count = len(self._members)
        if large is not None and not self.parts_per_batch <= large <= count:
            rule = f"must be from {self.parts_per_batch}, as other batches have, to {count}, all clusters"
            raise ArgumentError(f"large={large}: {rule}")
        self._large = LargeBatches(every, large or min(every * self.parts_per_batch, count))

    @property
    def largest(self) -> tuple[str, int]:
        """What says how many clusters the largest batch has, and how many."""
        if self._large is None:
            return "parts_per_batch", self.parts_per_batch
        return "large", self._large.parts

    @property
    def in_words(self) -> str | None:
        """How large its batches are, and why; None where the graph was not cut for it."""
        if self.choice is None:
            return None
        large = f"; each {self._large.every} steps one of {self._large.parts:,}" if self._large else ""
        return self.choice.reason + large

    @property
    def steps(self) -> int:
        """How many batches an epoch has."""
        return -(-len(self._members) // self.parts_per_batch)

    @cached_property
    def outside(self) -> Tensor:
        """(any,) the nodes that may be outside of a batch, in its halo."""
        return between_clusters(self._graph, self.clusters)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, counted from 0; without the first `start` of them."""
        number, count = checks.whole_number("epoch", number, 0), len(self._members)
        groups = self._groups(number)

        def build() -> Iterator[Batch]:
            for group in groups[start:]:
                nodes = torch.cat([self._members[i] for i in group]).long()
                yield Batch.of_known(self._graph, nodes, count / len(group), shard=self.shard)

        return build()

    def meeting(self, epoch: int) -> list[NDArray[np.int64]]:
        """The clusters that meet in each batch of an epoch, by their numbers in the graph."""
        groups = self._groups(epoch)
        return groups if self._which is None else [self._which[group] for group in groups]

    def _groups(self, epoch: int) -> list[NDArray[np.int64]]:
        """Clusters that meet in the batches of an epoch, a batch each."""
        of_shard = () if self.shard is None else (_SHARD, self.shard)
        groups = self._cut_into(self.parts_per_batch, epoch, epoch, self._seed, *of_shard)
        if self._fixed:
            turns = hashed_random.permutation(len(groups), self._seed, _TURNS, epoch)
            groups = [groups[i] for i in turns]
        if self._large is not None:
            self._put_large(groups, epoch, *self._large)
        return groups

    def _cut_into(self, size: int, number: int, epoch: int, *seed: int) -> list[NDArray[np.int64]]:
        """All clusters in groups of `size`, by number and seed, made of what was seen before an epoch."""
        count, number = len(self._members), 0 if self._fixed else number
        order = hashed_random.permutation(count, *seed, _GROUPS, number)
        described = self._described
        if described is not None:
            seen = None if self.descriptors is None else self.descriptors.before(epoch)
            if seen is not None:
                seen = seen if self._which is None else seen[self._which]
                described = together(seen, described)
            order = balanced(order, size, described, *seed, _OFFERS, number)
            # Changes begin with the first group; which one comes first is left to chance again.
            whole = order[: count // size * size].reshape(-1, size)
            turns = hashed_random.permutation(len(whole), *seed, _OFFERS, number)
            order = np.concatenate([whole[turns].ravel(), order[whole.size :]])
        return [order[i : i + size] for i in range(0, count, size)]

    def _put_large(self, groups: list[NDArray[np.int64]], epoch: int, every: int, parts: int) -> None:
        """Put large groups in place of those of an epoch's steps that are to have one.

        They come round by round: no cluster is in two of the same round.
        """
        in_round = len(self._members) // parts  # without a last group of fewer
        rounds = cache(lambda number: self._cut_into(parts, number, epoch, self._seed, _LARGE))
        first = epoch * self.steps
        for step in range(-first % every, self.steps, every):
            number, place = divmod((first + step) // every, in_round)
            groups[step] = rounds(number)[place]


def ever_outside(sampler: Sampler) -> Tensor | None:
    """(any,) the nodes that may be outside of its batches, in a halo; None where that is not known."""
    return sampler.outside if isinstance(sampler, ClusterSampler) else None


def clusters_of(sampler: Sampler) -> Tensor | None:
    """(nodes,) the clusters that its batches are groups of; None where they are none."""
    return sampler.clusters if isinstance(sampler, ClusterSampler) else None


def choice_of(sampler: Sampler) -> Choice | None:
    """How the graph was cut for its batches, and why; None where it has no clusters of its own making."""
    return sampler.choice if isinstance(sampler, ClusterSampler) else None


def batches_in_words(sampler: Sampler) -> str | None:
    """How large its batches are, and why; None where it has no clusters of its own making."""
    return sampler.in_words if isinstance(sampler, ClusterSampler) else None


def between_clusters(graph: Graph, clusters: Tensor) -> Tensor:
    """(any,) the nodes with a neighbour in another cluster, the only ones that can be in a halo.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> between_clusters(path, torch.tensor([0, 0, 1])).tolist()
    [1, 2]
    """
    between = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for part, rows in graph.neighbours.pieces():
        row = part.start + rows.row_ids()
        between[row[clusters[rows.indices] != clusters[row]]] = True
    return between.nonzero()[:, 0]


def batches(
    graph: Graph,
    clusters: Any,
    parts_per_batch: int = 1,
    seed: int = 0,
    epoch: int = 0,
    fixed: bool = False,
    balance: Balance | None = None,
) -> Iterator[Batch]:
    """The batches of one epoch: every cluster once, in groups that depend on (seed, epoch) alone.

    Args:
        graph: the graph.
        clusters: (nodes,) the cluster of every node, as from `lmc.partition`.
        parts_per_batch: clusters in a batch; the last batch takes what remains, and its scale,
            clusters in the graph over clusters in the batch, follows.
        seed: of the random groups.
        epoch: each has groups of its own.
        fixed: whether every epoch keeps the same groups, and only their order changes.
        balance: `"labels"` for groups that have nearly the graph's mix of training labels (random ones, where
            there are none), `"none"` or None for random ones.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=200)
    >>> clusters = lmc.partition(graph, parts=8)
    >>> [batch.scale for batch in lmc.batches(graph, clusters, parts_per_batch=3)]
    [2.6666666666666665, 2.6666666666666665, 4.0]
    """
    sampler = ClusterSampler(graph, clusters, parts_per_batch, seed, fixed, balance)
    if parts_per_batch > (count := len(sampler._members)):
        text = f"parts_per_batch={parts_per_batch}: there are {count} clusters, so a batch is the whole graph"
        warnings.warn(text, stacklevel=2)
    return sampler.epoch(epoch)
