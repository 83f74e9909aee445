"""Rows: which nodes a node-wise function runs on, and under which address its randomness is found."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lmc import hashed_random


@dataclass(frozen=True)
class Rows:
    """The nodes that the rows of a matrix belong to.

    Attributes:
        nodes: (rows,) the graph's own ids.
        address: what makes the randomness of this call its own: (seed, step, place in the model).
        inside: whether these are batch rows. Only they have a batch norm's statistics of their own,
            and move its running ones.
    """

    nodes: Tensor
    address: tuple[int, ...]
    inside: bool = True

    def within(self, place: int) -> Rows:
        """The same rows for one of several parts at this address, each with its own randomness."""
        return replace(self, address=(*self.address, place))

    def keys(self) -> NDArray[np.uint64]:
        """(rows,) what the randomness of each row depends on: its address and node, not the other rows.

        >>> import torch
        >>> both, one = Rows(torch.tensor([4, 7]), (0, 1)), Rows(torch.tensor([7]), (0, 1))
        >>> bool(both.keys()[1] == one.keys()[0])
        True
        """
        return hashed_random.bits(*self.address, self.nodes.numpy())
