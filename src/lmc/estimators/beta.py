"""β: how much of what is new but incomplete a halo row takes. Fixed, or found by least squares.

It can be found without a search, from what every batch shows of itself.

A batch row is a node whose truth is known now: all that it receives is there. Its history is known as well,
and so is the part that comes from within the batch. So at every step some rows tell, for each layer and
direction, which mix of the two would have been closest, by the share x of their neighbours inside:

    β(x) = argmin Σ ‖(1 - β) old + β incomplete - truth‖²
         = Σ ⟨truth - old, incomplete - old⟩ / Σ ‖incomplete - old‖²

Halo rows take the β of their own x; with x = 1 nothing is incomplete, and β is 1. Where parameters rest,
histories are right and β goes to zero: the mix is then exact. This is for sums, from which the parameters of
now make values. Of values themselves, which carry the parameters of then, the mix that is closest is not the
one whose gradient is closest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lmc.device import HOST, widest_type

Beta = Callable[[Tensor], Tensor]
"""From (rows,) shares of neighbours in reach to (rows, 1) β."""
Score = Literal["x^2", "2x^2", "2x-x^2", "x", "1", "sin"]

SCORES: dict[Score, Callable[[Tensor], Tensor]] = {
    "x^2": torch.square,
    "2x^2": lambda x: (2 * x.square()).clamp_max(1),
    "2x-x^2": lambda x: 2 * x - x.square(),
    "x": torch.clone,
    "1": torch.ones_like,
    "sin": torch.sin,
}

BINS = 10
"""Of the share x, which is from 0 to 1."""
MEMORY = 0.9
"""How much of what was found before counts at a step."""
NEARBY = 0.05
"""How much what a tenth was told counts for the next one, and for each one further on again."""
ROUNDING = 8
"""A row whose incomplete sum is its history, but for so many units in the last place, tells nothing."""
NEGLIGIBLE = 0.05
"""A smaller β is taken for zero: those rows need not be computed."""


@dataclass(frozen=True)
class FixedBeta:
    """β = alpha score(x).

    >>> FixedBeta(0.5, SCORES["x^2"])(torch.tensor([1.0, 0.5])).tolist()
    [[0.5], [0.125]]
    """

    alpha: float
    score: Callable[[Tensor], Tensor]

    def __call__(self, share: Tensor) -> Tensor:
        """(rows, 1) of rows with these shares."""
        return self.alpha * self.score(share)[:, None]


class FoundBeta:
    """β of one layer and direction, by tenths of x.

    Args:
        prior: from (any,) shares to the β of tenths that no row has told anything of yet.
        device: of the steps.

    Attributes:
        sums: (BINS, 2) Σ ⟨truth - old, incomplete - old⟩ and Σ ‖incomplete - old‖², in float64 where the
            device has it.

    >>> beta = FoundBeta(torch.square)
    >>> round(float(beta(torch.tensor([0.81]))), 4)
    0.7225
    >>> beta.learn(torch.tensor([0.81]), torch.ones(1, 2), torch.zeros(1, 2), 4 * torch.ones(1, 2))
    >>> float(beta(torch.tensor([0.81])))
    0.25
    """

    def __init__(self, prior: Callable[[Tensor], Tensor], device: torch.device = HOST) -> None:
        exact = widest_type(device)
        self.sums = torch.zeros(BINS, 2, dtype=exact, device=device)
        self._prior = prior((torch.arange(BINS, dtype=exact) + 0.5) / BINS).to(device)

    def __call__(self, share: Tensor) -> Tensor:
        """(rows, 1) how much of incomplete sums rows with these shares take, in the shares' type."""
        return torch.where(share < 1, self.by_tenths.to(share.dtype)[_bin(share)], 1)[:, None]

    @property
    def by_tenths(self) -> Tensor:
        """(BINS,) float64 what is taken of rows whose shares are below 1.

        Tenths of which nothing was told for long follow those beside them.
        """
        place = torch.arange(BINS, device=self.sums.device)
        nearby = NEARBY ** (place[:, None] - place).abs().to(self.sums.dtype)
        along, squares = (nearby @ self.sums).unbind(1)
        found = torch.where(squares > 0, (along / squares).clamp(0, 1), self._prior)
        return torch.where(found < NEGLIGIBLE, 0, found)

    def learn(self, share: Tensor, truth: Tensor, old: Tensor, incomplete: Tensor) -> None:
        """Take in what some batch rows show.

        Args:
            share: (rows,) of their neighbours that are in the batch, below 1.
            truth: (rows, width) what they have received.
            old: (rows, width) their history.
            incomplete: (rows, width) what has come from the batch.
        """
        ahead = incomplete - old
        rows = torch.stack([((truth - old) * ahead).sum(1), ahead.square().sum(1)], dim=1).to(self.sums.dtype)
        rounding = ROUNDING * torch.finfo(old.dtype).eps
        tells = rows[:, 1] > rounding**2 * old.to(self.sums.dtype).square().sum(1)
        self.sums *= MEMORY
        self.sums.index_add_(0, _bin(share[tells]), rows[tells])


def _bin(share: Tensor) -> Tensor:
    """(rows,) int64, the tenth of each share."""
    return (share * BINS).long().clamp(0, BINS - 1)
