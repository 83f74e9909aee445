"""What may happen to a gradient between the estimate and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from lmc.kernels.fixed_sums import total

GradientHook = Callable[[Sequence[nn.Parameter]], None]
"""Changes the parameters' `.grad` in place."""


@dataclass(frozen=True)
class ClipNorm:
    """Scales the gradient down to a norm, if it is larger.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> ClipNorm(1.0)([weight])
    >>> round(float(weight.grad.norm()), 4)
    1.0
    """

    largest: float

    def __call__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Scale the parameters' `.grad`."""
        squares = [total(p.grad.square()) for p in parameters if p.grad is not None]
        norm = torch.stack(squares).sum().sqrt() if squares else torch.zeros(())
        torch.nn.utils.clip_grads_with_norm_(parameters, self.largest, norm)
