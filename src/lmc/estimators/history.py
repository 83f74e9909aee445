"""History stores: where historical values live between steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from lmc.device import HOST, copied
from lmc.errors import ArgumentError
from lmc.estimators.stored_rows import rows_of


class History(Protocol):
    """One vector per place, as it was when it was last written; zero before that.

    `Remembered` says which node has which place.
    """

    def pull(self, places: Tensor) -> Tensor:
        """(places, width) what was last written, as exactly as it is stored."""

    def push(self, places: Tensor, values: Tensor) -> None:
        """Write (places, width); places are distinct, and those below zero are left out."""

    def expect(self, places: Tensor) -> None:
        """Be told, perhaps by another thread, what will be pulled soon; this may do nothing."""

    def snapshot(self) -> Tensor:
        """All that is needed to restore it, for a checkpoint; it may be what is in use, not a copy."""

    def restore(self, values: Tensor) -> None:
        """Take the values of a snapshot."""


MakeHistory = Callable[[int, int, torch.dtype], History]
"""From the number of places, width and type of storage to a history."""


class Remembered:
    """Which nodes have a place in histories: those that may be outside of a batch.

    Args:
        num_nodes: nodes in the graph.
        outside: (any,) the nodes that may be outside of a batch, in the order of their places; None for all.

    >>> some = Remembered(4, torch.tensor([1, 3]))
    >>> len(some), some.places(torch.tensor([0, 1, 3])).tolist()
    (2, [-1, 0, 1])
    """

    def __init__(self, num_nodes: int, outside: Tensor | None = None) -> None:
        self._count = num_nodes if outside is None else outside.numel()
        self._place: Tensor | None = None
        if outside is not None and not torch.equal(outside, torch.arange(num_nodes)):
            self._place = torch.full((num_nodes,), -1)
            self._place[outside] = torch.arange(self._count)

    def __len__(self) -> int:
        return self._count

    def places(self, nodes: Tensor, shard: int | None = None) -> Tensor:
        """(nodes,) int64, -1 for those that are not remembered; here, a shard has them where all have."""
        return nodes if self._place is None else self._place.index_select(0, nodes)

    def halo_places(self, halo: Tensor, shard: int | None = None) -> Tensor:
        """(halo,) int64; ArgumentError for a node that was never to be outside of a batch."""
        places = self.places(halo, shard)
        if places is not halo and bool((places < 0).any()):
            node = int(halo[places < 0][0])
            rule = "the estimator was bound for other clusters; bind(model, graph) remembers all nodes"
            raise ArgumentError(f"batch: node {node} is outside of it and has no history: {rule}")
        return places


class MemoryHistory:
    """A history in memory, of the host or of the device that steps are on.

    >>> history = MemoryHistory(3, 2, torch.float16)
    >>> history.push(torch.tensor([1]), torch.ones(1, 2))
    >>> history.pull(torch.tensor([0, 1])).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, num_places: int, width: int, dtype: torch.dtype, device: torch.device = HOST) -> None:
        self._rows = rows_of(width, dtype)
        self.values = torch.zeros(num_places, self._rows.entries, dtype=self._rows.dtype, device=device)

    def pull(self, places: Tensor) -> Tensor:
        """(places, width) what was last written, as exactly as it is stored."""
        return self._rows.take(self.values, copied(places, self.values.device))

    def push(self, places: Tensor, values: Tensor) -> None:
        """Write (places, width); what is too large for the type of storage becomes its largest number."""
        self._rows.put(copied(places, self.values.device), values, self.values)

    def expect(self, places: Tensor) -> None:
        """Nothing: all is at hand."""

    def snapshot(self) -> Tensor:
        """(all places, entries) what is in use."""
        return self.values

    def restore(self, values: Tensor) -> None:
        """Take the values of a snapshot."""
        self.values.copy_(values)
