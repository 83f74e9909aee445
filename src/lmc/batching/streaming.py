"""Clusters by streaming: rows of the adjacency pass by several times, and memory follows nodes, not edges.

Each pass moves every node to the cluster that scores best (restreaming, as LDG and Fennel do). Scores of the
first passes are noisy, and of later ones less and less so (annealing): without it passes soon find nothing to
move, at a cut that is a fifth larger.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmc import hashed_random
from lmc.sparse import CSR

PASSES = 40
"""Half as many again cut 1 to 2 % fewer edges."""
STILL = 0.1
"""Share of the passes, the last ones, that are without noise."""
NOISE = 3.0
"""At first, in neighbours, for a node of degree one; it grows by the root of the degree."""
MOST_NODES, MOST_EDGES = 1.05, 2.0
"""What a cluster holds at most, in means: METIS leaves 3 times the mean of edges in one of 80 of arxiv."""
NODE_PRICE = 2.0
"""Of a cluster that holds the mean of nodes, in mean degrees."""
EDGE_PRICE = 0.05
"""Of a cluster that holds the mean of edges, for each edge of the node that comes."""


def stream(neighbours: CSR, parts: int, seed: int = 0, passes: int = PASSES) -> NDArray[np.int32]:
    """(nodes,) the cluster of every node, by passes over the rows in their order; none is empty.

    Args:
        neighbours: (nodes, nodes) without its diagonal, perhaps memory-mapped: it is read in consecutive
            pieces. Values are how often two nodes are neighbours.
        parts: how many clusters, at most as many as nodes.
        seed: of the noise.
        passes: how often all rows pass by.

    >>> import torch
    >>> pairs = CSR(torch.arange(5), torch.tensor([2, 3, 0, 1]), None, 4)
    >>> stream(pairs, parts=2).tolist()
    [0, 1, 0, 1]
    """
    from lmc.kernels.restream import ONE, Loads, restream  # which compiles

    nodes, entries = neighbours.shape[0], max(1, neighbours.num_entries)
    clusters = (np.arange(nodes) * parts // nodes).astype(np.int32)
    mean_edges = math.ceil(entries / parts)
    degrees = neighbours.row_lengths().numpy()
    held = np.bincount(clusters, weights=np.minimum(degrees, mean_edges), minlength=parts)
    loads = Loads(
        nodes=np.bincount(clusters, minlength=parts),
        edges=held.astype(np.int64),
        most_nodes=math.floor(MOST_NODES * nodes / parts) + 1,
        most_edges=math.ceil(MOST_EDGES * mean_edges),
        most_of_one=mean_edges,
        node_price=round(NODE_PRICE * ONE * (entries / nodes) * (parts / nodes)),
        edge_price=round(EDGE_PRICE * ONE / mean_edges),
    )
    neighbours_in = np.zeros(parts, dtype=np.int64)
    for number in range(passes):
        noise = NOISE * max(0.0, 1 - number / ((1 - STILL) * passes))
        key = hashed_random.bits(seed, number)[0]
        for part, rows in neighbours.pieces():
            arrays = rows.indptr.numpy(), rows.indices.numpy(), _counts(rows)
            restream(part.start, *arrays, clusters, loads, neighbours_in, noise, key)
    return clusters


def _counts(rows: CSR) -> NDArray[Any]:
    """(entries,), or none where every count is one."""
    return np.empty(0, np.float32) if rows.values is None else rows.values.numpy()
