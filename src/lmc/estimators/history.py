"""History stores: where historical values live between steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from lmc import kernels


class History(Protocol):
    """One vector per node, as it was when the node was last written; zero before that."""

    def pull(self, nodes: Tensor) -> Tensor:
        """(nodes, width) what was last written, in the type of storage."""

    def push(self, nodes: Tensor, values: Tensor) -> None:
        """Write (nodes, width); nodes are distinct."""

    def snapshot(self) -> Tensor:
        """(all nodes, width) everything, for a checkpoint; it may be what is in use, not a copy."""

    def restore(self, values: Tensor) -> None:
        """Take the values of a snapshot."""


MakeHistory = Callable[[int, int, torch.dtype], History]
"""From nodes, width and type of storage to a history."""


class MemoryHistory:
    """A history in memory.

    >>> history = MemoryHistory(3, 2, torch.float16)
    >>> history.push(torch.tensor([1]), torch.ones(1, 2))
    >>> history.pull(torch.tensor([0, 1])).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, num_nodes: int, width: int, dtype: torch.dtype) -> None:
        self.values = torch.zeros(num_nodes, width, dtype=dtype)

    def pull(self, nodes: Tensor) -> Tensor:
        """(nodes, width) what was last written, in the type of storage."""
        return self.values.index_select(0, nodes)

    def push(self, nodes: Tensor, values: Tensor) -> None:
        """Write (nodes, width); what is too large for the type of storage becomes its largest number."""
        if self.values.dtype != values.dtype:
            limit = torch.finfo(self.values.dtype).max
            values = values.clamp(-limit, limit).to(self.values.dtype)
        kernels.kernels_for(self.values).put_rows(nodes, values, self.values)

    def snapshot(self) -> Tensor:
        """(all nodes, width) what is in use."""
        return self.values

    def restore(self, values: Tensor) -> None:
        """Take the values of a snapshot."""
        self.values.copy_(values)
