"""The loop that moves nodes between clusters, one after the other, as their rows come along."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmc.kernels.compilation import loop
from lmc.kernels.fast_samples import _mixed

ONE = 1 << 32
"""A neighbour, in the fixed-point numbers that scores are: their sums are the same on every machine."""
_NOISE_BITS = 20


class Loads(NamedTuple):
    """What clusters hold, in whole numbers; both arrays change as nodes move.

    Attributes:
        nodes: (clusters,) int64.
        edges: (clusters,) int64; a node counts as many as it has, up to `most_of_one`.
        most_nodes, most_edges: a cluster that holds them takes no more.
        most_of_one: the mean of clusters; what a hub has beyond it no cluster could balance.
        node_price, edge_price: what a cluster's nodes, and its edges for each edge of the node that comes,
            take off its score; in parts of ONE.
    """

    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]
    most_nodes: int
    most_edges: int
    most_of_one: int
    node_price: int
    edge_price: int


@loop
def restream(
    first: Any,
    indptr: Any,
    indices: Any,
    counts: Any,
    clusters: Any,
    loads: Any,
    neighbours_in: Any,
    noise: Any,
    key: Any,
) -> Any:
    """Take the nodes of consecutive rows out of their clusters, one by one, to where each scores best.

    A node may go to the clusters of its neighbours, to one drawn at random, or back. The score of a cluster
    is the neighbours there, less the prices of what it holds, plus a random number below `noise` times the
    root of the node's degree. The last node of a cluster stays. Returns how many moved.

    Args:
        first: the node of the first row.
        indptr: (rows + 1,) where rows begin in `indices`.
        indices: (entries,) neighbours.
        counts: (entries,) how often they are; or none, for once each.
        clusters: (all nodes,) int32; changes.
        loads: `Loads`; changes.
        neighbours_in: (clusters,) int64 zeros, before and after.
        noise: in neighbours.
        key: uint64, the beginning of the addresses of random values.
    """
    parts, moved = len(neighbours_in), 0
    candidates = np.empty(parts + 2, np.int32)
    for row in range(len(indptr) - 1):
        node = first + row
        old, degree = clusters[node], indptr[row + 1] - indptr[row]
        if loads.nodes[old] == 1:
            continue
        size, node_key = min(np.int64(degree), loads.most_of_one), _mixed(key, node)
        loads.nodes[old] -= 1
        loads.edges[old] -= size
        candidates[0], candidates[1] = old, node_key % np.uint64(parts)
        found = 2
        for e in range(indptr[row], indptr[row + 1]):
            cluster = clusters[indices[e]]
            if neighbours_in[cluster] == 0:
                candidates[found] = cluster
                found += 1
            neighbours_in[cluster] += np.int64(counts[e]) if len(counts) else 1

        best, best_score = old, np.iinfo(np.int64).min
        spread = np.int64(np.sqrt(np.float64(degree)) * noise * (ONE >> _NOISE_BITS))
        for c in range(found):
            cluster = candidates[c]
            if loads.nodes[cluster] >= loads.most_nodes or loads.edges[cluster] + size > loads.most_edges:
                continue
            score = neighbours_in[cluster] * ONE - loads.nodes[cluster] * loads.node_price
            score -= loads.edges[cluster] * size * loads.edge_price
            score += np.int64(_mixed(node_key, cluster) >> np.uint64(64 - _NOISE_BITS)) * spread
            if score > best_score:
                best, best_score = cluster, score
        for c in range(found):
            neighbours_in[candidates[c]] = 0
        moved += best != old
        clusters[node] = best
        loads.nodes[best] += 1
        loads.edges[best] += size
    return moved
