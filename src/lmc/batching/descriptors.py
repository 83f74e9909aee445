"""What steps show of clusters: the part of the last layer's gradient that each of them makes.

The gradient of the last map is Σ v ⊗ r over nodes, of the losses' derivatives v and of what the layer has
received, r, and that of its bias Σ v. Their parts in a cluster, with r projected to a few random directions,
say how a group with that cluster in it is off. A step computes v and r anyway.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import hashed_random
from lmc.data.batch import Batch
from lmc.device import on_host

DIRECTIONS = 8
"""Random ones, to which what the last layer receives is projected."""
WIDEST = 64
"""Derivatives that are wider are projected as well, to half of it."""
DELAY = 2
"""Epochs between what was seen and the groups made of it: the first batch of an epoch is made ahead of it."""


class ClusterDescriptors:
    """Descriptions of clusters, as last seen, and as they were at the ends of the last epochs.

    Args:
        of_node: (nodes,) int32 or int64, the number of each node's cluster.
        count: of clusters.

    Attributes:
        now: (clusters, any) as last seen; None before anything is.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 1, 1], train_mask=[True] * 3)
    >>> seen = ClusterDescriptors(torch.tensor([0, 0, 1]), 2)
    >>> seen.see(path.batch([0, 1, 2]), torch.ones(3, 2), torch.ones(3, 4))
    >>> seen.end_epoch(0)
    >>> seen.before(1) is None, seen.before(2).shape
    (True, (2, 18))
    """

    def __init__(self, of_node: Tensor, count: int) -> None:
        self._of_node, self._count = of_node, count
        self.now: Tensor | None = None
        self._ends: dict[int, Tensor] = {}

    def see(self, batch: Batch, v: Tensor, received: Tensor) -> None:
        """Take in one step.

        Args:
            batch: where.
            v: (batch, width) the derivatives of its losses at the last boundary.
            received: (batch, width) what the last layer received.
        """
        if v.shape[1] > WIDEST:
            v = v @ _directions(v.shape[1], WIDEST // 2, v)
        r = received @ _directions(received.shape[1], DIRECTIONS, received)
        v, r = on_host(v), on_host(r)
        r = torch.cat([r, torch.ones_like(r[:, :1])], dim=1)
        if self.now is None:
            self.now = v.new_zeros(self._count, v.shape[1] * r.shape[1])
        of_row, by_cluster = self._of_node[batch.nodes].long().sort(stable=True)
        clusters, sizes = torch.unique_consecutive(of_row, return_counts=True)
        ends = sizes.cumsum(0)[:-1]
        parts = zip(v[by_cluster].tensor_split(ends), r[by_cluster].tensor_split(ends), strict=True)
        self.now[clusters] = torch.stack([(one.T @ other).flatten() for one, other in parts])

    def end_epoch(self, number: int) -> None:
        """Remember how things are at the end of an epoch, counted from 0."""
        if self.now is not None:
            self._ends[number] = self.now.clone()
        self._ends.pop(number - DELAY, None)

    def before(self, number: int) -> NDArray[np.float64] | None:
        """(clusters, any) what the groups of an epoch are made of; None where nothing was seen in time."""
        known = self._ends.get(number - DELAY)
        return None if known is None else known.double().numpy()

    def state(self) -> dict[str, Tensor]:
        """All that later groups depend on."""
        now = {} if self.now is None else {"now": self.now}
        return now | {str(number): end for number, end in self._ends.items()}

    def load_state(self, state: dict[str, Tensor], width: int, dtype: torch.dtype) -> None:
        """Go on from where `state` was taken; ValueError where no such run wrote it.

        Args:
            state: what `state` gave.
            width: of the last boundary.
            dtype: of what steps compute.
        """
        shape = (self._count, (width if width <= WIDEST else WIDEST // 2) * (DIRECTIONS + 1))
        for name, value in state.items():
            if name != "now" and not name.isdecimal():
                raise ValueError(f"sampler.{name}: must be 'now' or the number of an epoch")
            if not isinstance(value, Tensor) or value.shape != shape or value.dtype != dtype:
                raise ValueError(f"sampler.{name}: must be a tensor of {dtype} and shape {shape}")
        known = {name: value.clone() for name, value in state.items()}  # `see` writes into it
        self.now = known.pop("now", None)
        self._ends = {int(name): value for name, value in known.items()}


def _directions(width: int, count: int, like: Tensor) -> Tensor:
    """(width, count) random signs, so that projections keep lengths on average."""
    signs = 2.0 * (hashed_random.bits(width, count, np.arange(width * count)) & np.uint64(1)) - 1.0
    return torch.from_numpy(signs.reshape(width, count) / math.sqrt(count)).to(like)
