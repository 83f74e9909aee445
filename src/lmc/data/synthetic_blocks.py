"""What a synthetic graph is made of, piece by piece: edges, labels, features and split.

Every random value is a hash of what it is for: a piece does not depend on those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lmc import checks, hashed_random
from lmc.errors import ArgumentError

COMMUNITY_SIZE = 100
# How often, out of 1000, an edge stays in its community, in its class; it goes anywhere otherwise.
IN_COMMUNITY, IN_CLASS = 450, 200
LABEL_NOISE = 100  # out of 1000, labels drawn at random
CLASS_SIGNAL, COMMUNITY_SIGNAL = np.float32(0.15), np.float32(0.15)
PIECE = 1 << 18
"""Nodes, edges or features that are made together."""

# The first word of every address: what the random value is for.
_DEGREE, _STUBS, _SCOPE, _PARTNER, _IDS, _LABEL, _NOISY, _CLASS, _COMMUNITY, _FEATURE, _SPLIT = range(11)


class SyntheticBlocks:
    """A degree-corrected block graph, see `lmc.synthetic` for what the sizes mean.

    Nodes stand in the order of their communities, and these in the order of their classes, so that a
    community or a class is a range; `ids` are the numbers that nodes have in the graph, which is shuffled.
    """

    def __init__(self, nodes: int, degree: float, classes: int, features: int, seed: int) -> None:
        self.nodes, self.seed = checks.whole_number("nodes", nodes, 2), checks.whole_number("seed", seed, 0)
        self.classes = checks.whole_number("classes", classes, 1)
        self.features = checks.whole_number("features", features, 1)
        if not 0 <= degree < nodes:
            raise ArgumentError(f"degree={degree}: must be 0 or more, and less than nodes={nodes}")
        if classes > nodes:
            raise ArgumentError(f"classes={classes}: must not exceed nodes={nodes}")
        self.communities = max(classes, nodes // COMMUNITY_SIZE)
        self.num_edges = round(nodes * degree / 2)
        """One direction each, before those that are repeated are merged."""

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """(nodes,)."""
        return hashed_random.permutation(self.nodes, _IDS, self.seed)

    def community(self, node: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of nodes in their order before the shuffle, as for all methods but `label` and `x`."""
        return node * self.communities // self.nodes

    def class_of(self, community: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of communities."""
        return community * self.classes // self.communities

    def edges(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Pieces of sources and targets, before the shuffle: a node's share of both is its weight."""
        cumulative = self._cumulative_weights()
        total, before = int(cumulative[-1]), 0
        at_once = max(1, PIECE * self.nodes // max(1, self.num_edges))
        for start in range(0, self.nodes, at_once):
            node = np.arange(start, min(start + at_once, self.nodes))
            weight = np.diff(cumulative[start : start + at_once + 1])
            # The weight's share of all edges, rounded at random to a whole number.
            stubs = weight * self.num_edges + hashed_random.below(total, _STUBS, self.seed, node)
            source = np.repeat(node, stubs // total)
            edge = np.arange(before, before + len(source))
            yield source, self._partners(source, edge, cumulative)
            before += len(source)

    def _cumulative_weights(self) -> NDArray[np.int64]:
        """(nodes + 1,)."""
        cumulative = np.zeros(self.nodes + 1, np.int64)
        for start in range(0, self.nodes, PIECE):
            node = np.arange(start, min(start + PIECE, self.nodes))
            # 1 / sqrt(uniform) has density 2 w^-3: the power law. 16 levels between whole numbers are enough.
            bits = hashed_random.bits(_DEGREE, self.seed, node) >> np.uint64(32)
            uniform = (bits + 1).astype(np.float64) / 2.0**32
            cumulative[node + 1] = np.minimum(16 / np.sqrt(uniform), 16 * np.sqrt(self.nodes))
        return np.cumsum(cumulative, out=cumulative)

    def _partners(
        self, source: NDArray[np.int64], edge: NDArray[np.int64], cumulative: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Drawn by weight from a range of nodes: the community, the class or the whole."""
        scope = hashed_random.below(1000, _SCOPE, self.seed, edge)
        community = self.community(source)
        class_of = self.class_of(community)
        near, near_class = scope < IN_COMMUNITY, scope < IN_COMMUNITY + IN_CLASS
        low = np.where(near_class, self._start_of_class(class_of), 0)
        high = np.where(near_class, self._start_of_class(class_of + 1), self.nodes)
        low = np.where(near, self._start(community), low)
        high = np.where(near, self._start(community + 1), high)
        width = cumulative[high] - cumulative[low]
        ticket = cumulative[low] + hashed_random.below(width, _PARTNER, self.seed, edge)
        return np.searchsorted(cumulative, ticket, side="right") - 1

    def _start(self, community: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first node of communities."""
        return -(-community * self.nodes // self.communities)

    def _start_of_class(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._start(-(-number * self.communities // self.classes))

    def labels(self, first: int, community: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of consecutive nodes of the graph, the first of which is given, in these communities."""
        node = np.arange(first, first + len(community))
        random = hashed_random.below(self.classes, _LABEL, self.seed, node)
        noisy = hashed_random.below(1000, _NOISY, self.seed, node) < LABEL_NOISE
        return np.where(noisy, random, self.class_of(community))

    def x(self, community: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        """Pieces of features, for the communities of all nodes of the graph.

        The signs of class and community, weakly, plus noise of variance one.
        """
        column = np.arange(self.features)
        of_class = self._signs(_CLASS, self.classes)
        of_community = self._signs(_COMMUNITY, self.communities)
        at_once = max(1, PIECE // self.features)
        for start in range(0, self.nodes, at_once):
            row = np.arange(start, min(start + at_once, self.nodes))[:, None]
            of_rows = community[start : start + at_once]
            yield (
                CLASS_SIGNAL * of_class[self.class_of(of_rows)]
                + COMMUNITY_SIGNAL * of_community[of_rows]
                + hashed_random.roughly_normal(_FEATURE, self.seed, row, column)
            )

    def _signs(self, kind: int, count: int) -> NDArray[np.int8]:
        """(count, features) of +1 and -1."""
        signs, column = np.empty((count, self.features), np.int8), np.arange(self.features)
        at_once = max(1, PIECE // self.features)
        for start in range(0, count, at_once):
            number = np.arange(start, min(start + at_once, count))[:, None]
            bit = hashed_random.bits(kind, self.seed, number, column) & np.uint64(1)
            signs[start : start + at_once] = 2 * bit.astype(np.int8) - 1
        return signs

    def masks(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Half of the nodes train, a fifth validates, the rest tests."""
        turn = hashed_random.permutation(self.nodes, _SPLIT, self.seed)
        half, fifth = self.nodes // 2, self.nodes * 7 // 10
        return turn < half + 1, (turn > half) & (turn <= fifth), (turn > half) & (turn > fifth)
