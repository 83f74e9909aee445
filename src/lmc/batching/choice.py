"""How many clusters, and how many of them a batch has, where nobody says it.

A batch of many small clusters is closer to the graph's mix than one of a few large ones, and other nodes meet
in every epoch; but the smaller a cluster, the more of its nodes' neighbours are in others.
"""

from __future__ import annotations

from typing import NamedTuple

from lmc import checks
from lmc.checks import counted
from lmc.errors import ArgumentError

LARGE_SHARE = 1 / 16
"""Of a large graph's nodes that a batch has."""
LEAST_BATCH = 4_000
"""Nodes of a batch, as far as the graph has them: smaller batches make steps of a bad gradient."""
MOST_SHARE = 1 / 2
"""Of a small graph's nodes that a batch has: more than one step an epoch is left."""
CLUSTERS_PER_BATCH = 80
"""The most clusters of a batch: more make it hardly more like the graph, and cut more edges."""
LEAST_NODES = 64
"""Of a cluster that is one of many, so that it keeps messages."""
FEW_CLUSTERS = 16
"""Of a batch: with fewer of them, clusters rather have fewer nodes than LEAST_NODES."""
LEAST_NODES_OF_FEW = 16
"""Of a cluster that is one of FEW_CLUSTERS; below, a batch has fewer of them."""
LEAST_CLUSTER = 3
"""Nodes of a cluster that can be called one."""


class Choice(NamedTuple):
    """How a graph is cut, and why.

    Attributes:
        parts: clusters in the graph.
        parts_per_batch: clusters in a batch.
        reason: both in words, and where they come from.
    """

    parts: int
    parts_per_batch: int
    reason: str

    def in_shards(self, num_nodes: int, shards: int) -> Choice:
        """The same with clusters that make as many equal shards, each with a batch or more.

        >>> choose_batches(169_343).in_shards(169_343, 3)[:2]
        (1281, 80)
        """
        parts = self.parts + -self.parts % shards
        per_batch = min(self.parts_per_batch, parts // shards)
        if (parts, per_batch) == self[:2]:
            return self
        why = f"in {shards} shards; {self.reason.partition(': ')[2]}"
        return Choice(parts, per_batch, f"{_in_words(num_nodes, parts, per_batch)}: {why}")


def choose_batches(
    num_nodes: int,
    parts: int | None = None,
    parts_per_batch: int | None = None,
    batch_share: float | None = None,
    made: int | None = None,
) -> Choice:
    """Numbers that are given stay as they are, up to that of the nodes; the others follow from them and it.

    Args:
        num_nodes: of the graph.
        parts: into how many clusters it is cut; None to choose it.
        parts_per_batch: clusters in a batch; None is 1 where `parts` is given and `batch_share` is not.
        batch_share: which share of the nodes a batch has; None to choose it.
        made: how many clusters the graph has been cut into already, in a prepared folder; None where it has
            not: then no other number can be asked for.

    >>> choose_batches(169_343).reason
    '80 of 1,280 clusters each (6.25 % of the graph, 132 nodes a cluster): a share for large graphs'
    >>> choose_batches(169_343, parts=80, parts_per_batch=40)[:2], choose_batches(169_343, parts=80)[:2]
    ((80, 40), (80, 1))
    >>> choose_batches(169_343, batch_share=0.25)[:2], choose_batches(2000, parts=40, batch_share=0.25)[:2]
    ((320, 80), (40, 10))
    """
    check_sizes(parts_per_batch, batch_share)
    share, why = (batch_share, f"batch_share={batch_share:g}") if batch_share else _share_of(num_nodes)
    if made is not None:
        if parts not in (None, made):
            rule = f"the prepared graph has {counted(made, 'cluster')}; leave it out, or prepare anew"
            raise ArgumentError(f"parts={parts}: {rule}")
        parts = made
        per_batch = min(made, parts_per_batch or max(1, round(parts * share)))
        why = why if parts_per_batch is None else "as prepared"
    elif parts is None:
        per_batch = _clusters_of(round(num_nodes * share)) if parts_per_batch is None else parts_per_batch
        wanted = round(per_batch / share)
        parts = max(per_batch, min(wanted, num_nodes // LEAST_CLUSTER))
        why = why if parts >= wanted else "smaller clusters are not made"
    elif batch_share is not None:
        per_batch = max(1, round(parts * batch_share))
    else:
        per_batch, why = 1 if parts_per_batch is None else parts_per_batch, "as given"
    why = too_many(num_nodes, parts, per_batch) or why
    parts, per_batch = min(parts, num_nodes), min(per_batch, num_nodes)
    return Choice(parts, per_batch, f"{_in_words(num_nodes, parts, per_batch)}: {why}")


def too_many(num_nodes: int, parts: int | None, parts_per_batch: int | None) -> str | None:
    """What is said where more clusters are asked for than there are nodes.

    >>> too_many(300, 1000, 1), too_many(300, 300, 1)
    ('parts=1000: the graph has 300 nodes, each a cluster of its own', None)
    """
    for name, asked in (("parts_per_batch", parts_per_batch), ("parts", parts)):
        if asked is not None and asked > num_nodes:
            return f"{name}={asked}: the graph has {counted(num_nodes, 'node')}, each a cluster of its own"
    return None


def check_sizes(parts_per_batch: int | None, batch_share: float | None) -> None:
    """Raise ArgumentError where the size of a batch is no share, or is given twice."""
    if batch_share is None:
        return
    if not 0 < checks.real("batch_share", batch_share) <= 1:
        raise ArgumentError(f"batch_share={checks.shown(batch_share)}: must be above 0 and at most 1")
    if parts_per_batch is not None:
        rule = f"parts_per_batch={parts_per_batch} also says how large a batch is; give one of them"
        raise ArgumentError(f"batch_share={batch_share:g}: {rule}")


def check_shards(shards: int, parts: int, parts_per_batch: int | None = None) -> None:
    """Raise ArgumentError unless so many clusters make so many equal shards, each with a batch or more.

    >>> check_shards(2, 80, 40)
    """
    if parts % shards:
        least = max(shards, parts // shards * shards)
        rule = f"must be a multiple of shards={shards}, such as {least}"
        raise ArgumentError(f"parts={parts}: {rule}")
    if parts_per_batch is not None and parts_per_batch > parts // shards:
        rule = f"must be at most {parts // shards}, the clusters of one of {shards} shards"
        raise ArgumentError(f"parts_per_batch={parts_per_batch}: {rule}")


def _share_of(num_nodes: int) -> tuple[float, str]:
    """Which share of a graph a batch has, and why."""
    needed = LEAST_BATCH / num_nodes
    if needed >= MOST_SHARE:
        return MOST_SHARE, "half of a small graph"
    if needed > LARGE_SHARE:
        return needed, f"about {LEAST_BATCH:,} nodes a batch"
    return LARGE_SHARE, "a share for large graphs"


def _clusters_of(batch_nodes: int) -> int:
    """How many clusters a batch of so many nodes has."""
    few = min(FEW_CLUSTERS, batch_nodes // LEAST_NODES_OF_FEW)
    return max(1, few, min(CLUSTERS_PER_BATCH, batch_nodes // LEAST_NODES))


def _in_words(num_nodes: int, parts: int, per_batch: int) -> str:
    share, nodes = 100 * per_batch / parts, counted(round(num_nodes / parts), "node")
    return (
        f"{per_batch:,} of {counted(parts, 'cluster')} each ({share:.3g} % of the graph, {nodes} a cluster)"
    )
