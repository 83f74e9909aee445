"""Random graphs, kept beside the plain lists that they were made from."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

import lmc


@dataclass
class Example:
    """A graph, and what an oracle needs to know of it: dense, with no code of the library."""

    graph: lmc.Graph
    dense: np.ndarray  # (nodes, nodes), [target, source]: summed weights
    count: np.ndarray  # (nodes, nodes), [target, source]: how many edges there are
    loop: np.ndarray  # (nodes,) the weight of the last self-loop; 1 where there is none
    edges: list  # (source, target), as given
    weights: list | None

    @property
    def pattern(self):
        """(nodes, nodes) bool: where there is an edge."""
        return self.count > 0

    @property
    def is_symmetric(self):
        """Whether as many edges with the same weights, in the same order, go there and back."""
        lists = {}
        for edge, weight in zip(self.edges, self.weights or [1.0] * len(self.edges), strict=True):
            lists.setdefault(edge, []).append(weight)
        return all(lists.get((j, i)) == weights for (i, j), weights in lists.items())

    @property
    def neighbours(self):
        """(nodes, nodes) how often two nodes are neighbours."""
        return np.maximum(self.count, self.count.T) * ~np.eye(len(self.count), dtype=bool)


@st.composite
def graphs(draw, max_nodes=12):
    """Up to 12 nodes: directed or not, weighted or not, with self-loops, repeats and isolated nodes."""
    n = draw(st.integers(1, max_nodes))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=3 * n))
    weights = [1.0] * len(edges)
    is_weighted = draw(st.booleans())
    if is_weighted:
        # Powers of two add up exactly, whatever the order.
        size = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 4.0])
        weights = draw(st.lists(size, min_size=len(edges), max_size=len(edges)))
    if not draw(st.booleans()):
        both = [(e, w) for e, w in zip(edges, weights, strict=True)]
        both += [((j, i), w) for (i, j), w in both if i != j]
        edges, weights = [e for e, _ in both], [w for _, w in both]
    dense, count, loop = np.zeros((n, n)), np.zeros((n, n), dtype=int), np.ones(n)
    for (source, target), weight in zip(edges, weights, strict=True):
        dense[target, source] += weight
        count[target, source] += 1
        if source == target:
            loop[source] = weight
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    role = torch.randint(0, 4, (n,), generator=generator)
    role[draw(node)] = 0
    graph = lmc.Graph(
        np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        torch.randn(n, 3, generator=generator, dtype=torch.float64),
        torch.randint(0, 3, (n,), generator=generator),
        role == 0,
        role == 1,
        role == 2,
        np.array(weights) if is_weighted else None,
        num_classes=3,
    )
    return Example(graph, dense, count, loop, edges, weights if is_weighted else None)


def clusterings(example, max_clusters=5):
    n = example.graph.num_nodes
    clusters = st.integers(0, min(n, max_clusters) - 1)
    return st.lists(clusters, min_size=n, max_size=n).map(torch.tensor)
