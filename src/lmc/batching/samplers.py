"""From clusters to the batches of an epoch, and how many messages they keep."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from lmc import checks, hashed_random
from lmc.data import rules
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.data.normalization import Norm, normalize

Item = TypeVar("Item")

# Addresses of the two random orders: which clusters meet in a batch, and which batch comes when.
_GROUPS, _TURNS = 0, 1


def batches(
    graph: Graph,
    clusters: Any,
    parts_per_batch: int = 1,
    seed: int = 0,
    epoch: int = 0,
    fixed: bool = False,
    norm: Norm | None = "gcn",
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
        norm: the normalisation whose block is built before a batch is handed over; None for none.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=200)
    >>> clusters = lmc.partition(graph, parts=8)
    >>> [batch.scale for batch in lmc.batches(graph, clusters, parts_per_batch=3)]
    [2.6666666666666665, 2.6666666666666665, 4.0]
    """
    by_cluster, ends = _nodes_by_cluster(graph, clusters)
    parts_per_batch = checks.whole_number("parts_per_batch", parts_per_batch, 1)
    seed, epoch = checks.whole_number("seed", seed, 0), checks.whole_number("epoch", epoch, 0)
    num_clusters = len(ends)
    order = hashed_random.permutation(num_clusters, seed, _GROUPS, 0 if fixed else epoch)
    groups = [order[i : i + parts_per_batch] for i in range(0, num_clusters, parts_per_batch)]
    if fixed:
        groups = [groups[i] for i in hashed_random.permutation(len(groups), seed, _TURNS, epoch)]
    members = by_cluster.tensor_split(ends[:-1])

    def build() -> Iterator[Batch]:
        for group in groups:
            nodes = torch.cat([members[i] for i in group])
            batch = Batch.of_known(graph, nodes, num_clusters / len(group))
            if norm is not None:
                batch.block(norm)
            yield batch

    return build()


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, the next one made in a background thread while the current one is used.

    >>> list(prefetch("abc"))
    ['a', 'b', 'c']
    """
    name = "lmc-prefetch"
    with ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_step_aside) as background:
        source, end = iter(items), object()
        following = background.submit(next, source, end)
        while (item := following.result()) is not end:
            following = background.submit(next, source, end)
            yield item  # type: ignore[misc]


def _step_aside() -> None:
    """Let this thread have only what others leave: a step whose threads share the work waits for the last."""
    if sys.platform.startswith("linux"):  # elsewhere, the priority would be that of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


class Reserved(NamedTuple):
    """The share of the adjacency's entries that take part in each direction, from 0 to 1."""

    forward: float
    backward: float


def reserved_messages(graph: Graph, clusters: Any, parts_per_batch: int = 1) -> dict[str, Reserved]:
    """The share of messages, self-loops included, that each method keeps: the paper's memory table.

    The mean over all random groups, in closed form: a message within a cluster is always inside its
    batch, one between two clusters as often as these two meet.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=200)
    >>> shares = lmc.reserved_messages(graph, lmc.partition(graph, parts=8), parts_per_batch=8)
    >>> shares["ClusterGCN"]
    Reserved(forward=1.0, backward=1.0)
    """
    parts_per_batch = checks.whole_number("parts_per_batch", parts_per_batch, 1)
    of_node = rules.cluster_ids(clusters, graph.num_nodes)
    adjacency = normalize(graph, "gcn")
    same_cluster = of_node[adjacency.row_ids()] == of_node[adjacency.indices]
    within = float(same_cluster.double().mean())
    inside = within + (1 - within) * _chance_to_meet(len(torch.unique(of_node)), parts_per_batch)
    return {
        "ClusterGCN": Reserved(inside, inside),
        "GAS": Reserved(1.0, inside),
        "LMC": Reserved(1.0, 1.0),
    }


def _chance_to_meet(num_clusters: int, parts_per_batch: int) -> float:
    """How likely two given clusters are in the same group."""
    full, last = divmod(num_clusters, parts_per_batch)
    pairs = full * parts_per_batch * (parts_per_batch - 1) + last * (last - 1)
    return pairs / max(1, num_clusters * (num_clusters - 1))


def _nodes_by_cluster(graph: Graph, clusters: Any) -> tuple[Tensor, list[int]]:
    """(nodes,) node ids, cluster after cluster, and where each cluster that is not empty ends."""
    of_node = rules.cluster_ids(clusters, graph.num_nodes)
    sizes = torch.unique(of_node, return_counts=True)[1]
    return of_node.argsort(stable=True), sizes.cumsum(0).tolist()
