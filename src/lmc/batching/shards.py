"""Shards: sets of clusters, one for each of those that share a run's steps.

The graph of clusters is small: its edges are as heavy as there are edges between two clusters. It is cut so
that each shard has as many clusters, about as many nodes and edges, and few edges to others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lmc.batching.choice import check_shards
from lmc.batching.partition import has_metis, metis
from lmc.data.graph import Graph

UNEVEN = 2.0
"""How much a shard that is off by its own size costs, in shares of all edges between clusters."""
TRIED = 128
"""Clusters of a shard, at most, that are tried for a swap at a time."""
DENSE = 2048
"""Clusters, at most, whose graph is small as a dense matrix, too."""


def cut_into_shards(graph: Graph, clusters: Tensor, shards: int, seed: int = 0) -> Tensor:
    """(clusters,) int64 the shard of every cluster; each has as many.

    Args:
        graph: the graph.
        clusters: (nodes,) the cluster of every node, from 0 without gaps.
        shards: how many; a divisor of the number of clusters.
        seed: of METIS.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=200)
    >>> cut_into_shards(graph, lmc.partition(graph, parts=8), 2).bincount().tolist()
    [4, 4]
    """
    count = int(clusters.max()) + 1
    check_shards(shards, count)
    between = _between(graph, clusters, count)
    nodes = torch.bincount(clusters, minlength=count).double().numpy()
    edges = np.asarray(between.sum(axis=1), dtype=np.float64).ravel()
    between.setdiag(0)
    between.eliminate_zeros()
    sizes = np.stack([each / max(each.sum(), 1.0) for each in (nodes, edges)], axis=1)
    of_cluster = _evened(_first_cut(between, edges, shards, seed), between, shards)
    _swap(of_cluster, between, sizes, shards)
    return torch.from_numpy(of_cluster)


def _between(graph: Graph, clusters: Tensor, count: int) -> sparse.csr_array:
    """(clusters, clusters) how many entries of the adjacency lead from one to the other."""
    sums = sparse.csr_array((count, count), dtype=np.int64)
    for part, rows in graph.neighbours.pieces():
        ends = clusters[part.start + rows.row_ids()].numpy(), clusters[rows.indices].numpy()
        sums += sparse.coo_array((np.ones(len(ends[0]), dtype=np.int64), ends), (count, count)).tocsr()
    return sparse.csr_array(sums)


def _first_cut(
    between: sparse.csr_array, edges: NDArray[np.float64], shards: int, seed: int
) -> NDArray[np.int64]:
    """(clusters,) that of METIS, balanced by edges alone; without METIS, runs of clusters."""
    count = len(edges)
    if shards in (1, count) or not has_metis():
        return np.arange(count) * shards // count
    return metis(between.indptr, between.indices, shards, seed, between.data, 1 + edges).astype(np.int64)


def _evened(of_cluster: NDArray[np.int64], between: sparse.csr_array, shards: int) -> NDArray[np.int64]:
    """The same with as many clusters in each shard: those move for which it costs the fewest edges."""
    of_cluster, wanted = of_cluster.copy(), len(of_cluster) // shards
    while (counts := np.bincount(of_cluster, minlength=shards)).max() > wanted:
        to_shard = between @ np.eye(shards)[of_cluster]  # (clusters, shards)
        gain = to_shard - to_shard[np.arange(len(of_cluster)), of_cluster][:, None]
        gain[counts[of_cluster] <= wanted] = -np.inf
        gain[:, counts >= wanted] = -np.inf
        cluster, shard = divmod(int(gain.argmax()), shards)
        of_cluster[cluster] = shard
    return of_cluster


def _swap(
    of_cluster: NDArray[np.int64], between: sparse.csr_array, sizes: NDArray[np.float64], shards: int
) -> None:
    """Swap clusters of two shards while that makes shards more even, or cuts fewer edges."""
    all_edges = max(1.0, float(between.sum()))
    held = np.stack([sizes[of_cluster == shard].sum(axis=0) for shard in range(shards)])
    to_shard = between @ np.eye(shards)[of_cluster]
    among = between.toarray() if len(of_cluster) <= DENSE else between
    pairs = [(one, other) for one in range(shards) for other in range(one)]
    best_of = dict[tuple[int, int], tuple[float, int, int]]()  # those that no swap has touched since
    for _ in range(4 * len(of_cluster)):
        for one, other in pairs:
            if (one, other) in best_of:
                continue
            mine, theirs = (_some(of_cluster == shard) for shard in (one, other))
            leaving = to_shard[mine, one] - to_shard[mine, other]
            coming = to_shard[theirs, other] - to_shard[theirs, one]
            cut = leaving[:, None] + coming[None] + 2 * _block(among, mine, theirs)
            moved = sizes[mine][:, None] - sizes[theirs][None]  # (mine, theirs, 2)
            # |h - d|^2 + |g + d|^2 - |h|^2 - |g|^2
            uneven = 2 * (moved * (held[other] - held[one] + moved)).sum(axis=2)
            change = 2 * cut / all_edges + UNEVEN * shards**2 * uneven
            place = np.unravel_index(int(change.argmin()), change.shape)
            best_of[one, other] = (float(change[place]), int(mine[place[0]]), int(theirs[place[1]]))
        _, leaves, comes = min([(-1e-9, 0, 0), *best_of.values()])
        if leaves == comes:
            return
        one, other = int(of_cluster[leaves]), int(of_cluster[comes])
        for pair in [pair for pair in best_of if one in pair or other in pair]:
            del best_of[pair]
        for cluster, before, after in ((leaves, one, other), (comes, other, one)):
            of_cluster[cluster] = after
            held[before] -= sizes[cluster]
            held[after] += sizes[cluster]
            row = between[[cluster], :]
            to_shard[row.indices, before] -= row.data
            to_shard[row.indices, after] += row.data


def _block(
    among: sparse.csr_array | NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.int64]:
    found: Any = among[np.ix_(rows, columns)]
    block: NDArray[np.int64] = found.toarray() if sparse.issparse(found) else found
    return block


def _some(which: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Clusters of a shard; of very many, some that are spread over them."""
    found = which.nonzero()[0]
    return found if len(found) <= TRIED else found[np.arange(TRIED) * len(found) // TRIED]
