"""Batches of training nodes, for methods that draw what those hear."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lmc import checks, hashed_random
from lmc.data.batch import Batch
from lmc.data.graph import Graph

_ORDER = 0


@dataclass(frozen=True, eq=False)
class TargetBatch(Batch):
    """Nodes with losses; what they hear is drawn later, and depends on the address.

    Attributes:
        address: (seed, epoch, step).
    """

    address: tuple[int, ...] = field(kw_only=True)


class TargetSampler:
    """Groups of training nodes: each once an epoch, in an order that depends on (seed, epoch) alone.

    Args:
        graph: the graph.
        batch_size: nodes in a batch; the last one of an epoch takes what remains.
        seed: of the order, and of all that is drawn later.

    >>> import lmc
    >>> sampler = TargetSampler(lmc.synthetic(nodes=200), 48)
    >>> sampler.steps, [batch.num_nodes for batch in sampler.epoch(0, start=1)]
    (3, [48, 5])
    """

    def __init__(self, graph: Graph, batch_size: int, seed: int = 0) -> None:
        self._graph, self._seed = graph, checks.whole_number("seed", seed, 0)
        self._size = checks.whole_number("batch_size", batch_size, 1)
        self._targets: Tensor = graph.train_mask.nonzero()[:, 0]

    @property
    def steps(self) -> int:
        """How many batches an epoch has."""
        return -(-len(self._targets) // self._size)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, counted from 0; without the first `start` of them."""
        number, count = checks.whole_number("epoch", number, 0), len(self._targets)
        order = torch.from_numpy(hashed_random.permutation(count, self._seed, _ORDER, number))
        for step in range(start, self.steps):
            nodes = self._targets[order[step * self._size : (step + 1) * self._size]]
            scale, address = count / len(nodes), (self._seed, number, step)
            yield TargetBatch(self._graph, nodes, nodes[:0], scale, address=address)


class CandidateSampler:
    """All training nodes at every step, for methods that draw some of them by what is known only then.

    Args:
        graph: the graph.
        steps: of an epoch; also the scale of a batch, so that the mean over an epoch's batches counts.
        seed: of all that is drawn later.

    >>> import lmc
    >>> sampler = CandidateSampler(lmc.synthetic(nodes=200), 3)
    >>> [(batch.num_nodes, batch.address) for batch in sampler.epoch(0, start=1)]
    [(101, (0, 0, 1)), (101, (0, 0, 2))]
    """

    def __init__(self, graph: Graph, steps: int, seed: int = 0) -> None:
        self._graph, self.steps, self._seed = graph, steps, checks.whole_number("seed", seed, 0)
        self._targets: Tensor = graph.train_mask.nonzero()[:, 0]

    def epoch(self, number: int, start: int = 0) -> Iterator[TargetBatch]:
        """The batches of one epoch, counted from 0; without the first `start` of them."""
        for step in range(start, self.steps):
            address = (self._seed, checks.whole_number("epoch", number, 0), step)
            nodes = self._targets
            yield TargetBatch(self._graph, nodes, nodes[:0], float(self.steps), address=address)
