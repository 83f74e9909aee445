"""How many messages each method keeps: the paper's memory table."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from lmc import checks
from lmc.data import rules
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.data.normalization import normalize


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
    check_graph(graph)
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
