"""Rows: which nodes a node-wise function runs on, and under which address its randomness is found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmc import addressed


@dataclass(frozen=True)
class Rows:
    """The nodes behind the rows of a matrix.

    Attributes:
        nodes: (rows,) the graph's own ids.
        address: what makes the randomness of this call its own: (seed, step, place in the model).
        inside: whether these are batch rows. Only they move the running statistics of a batch norm.
    """

    nodes: Tensor
    address: tuple[int, ...]
    inside: bool = True

    def keep_mask(self, width: int, p: float) -> Tensor:
        """(rows, width) bool: which entries dropout keeps, each with probability 1 - p.

        A hash of (address, node, column): the mask of a node does not depend on the other rows.

        >>> both = Rows(torch.tensor([4, 7]), (0, 1))
        >>> one = Rows(torch.tensor([7]), (0, 1))
        >>> torch.equal(both.keep_mask(8, 0.5)[1:], one.keep_mask(8, 0.5))
        True
        """
        key = addressed.bits(*self.address, self.nodes.numpy())
        draw = addressed.columns(key, width)
        return torch.from_numpy(draw >= np.uint32(min(p * 2.0**32, 2.0**32 - 1)))
