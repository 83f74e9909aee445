"""A ReLU with random slopes that depend on the node, not on what was drawn before."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lmc import hashed_random
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows


class RandomReLU(NodeWise):
    """max(z, 0) + slope min(z, 0): in training, slopes are a hash of (seed, step, place, node, column).

    Args:
        of: torch's, whose bounds and mode this one shares.

    >>> rows = Rows(torch.tensor([4, 7]), (0, 1))
    >>> z = RandomReLU(nn.RReLU(0.25, 0.5))(-torch.ones(2, 3), rows)
    >>> bool(((z <= -0.25) & (z >= -0.5)).all())
    True
    """

    def __init__(self, of: nn.RReLU) -> None:
        super().__init__()
        self.of = of

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, width) to (rows, width)."""
        slope = self._slopes(rows, z) if self.of.training else (self.of.lower + self.of.upper) / 2
        return z.clamp(min=0) + slope * z.clamp(max=0)

    def _slopes(self, rows: Rows, like: Tensor) -> Tensor:
        """(rows, width) uniform between the bounds, to 16 bits."""
        uniform = (hashed_random.columns(rows.keys(), like.shape[1]) + 0.5) / 2**16
        slopes = self.of.lower + (self.of.upper - self.of.lower) * uniform.astype(np.float64)
        return torch.from_numpy(slopes).to(like)
