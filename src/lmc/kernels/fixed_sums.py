"""Sums in an order that does not depend on the number of threads.

Of a sum over one dimension, torch gives each thread whole columns, or whole rows: that order is fixed. A sum
over everything it cuts into as many pieces as there are threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

BLOCK = 1024  # entries that are added up by one thread, in order


def total(values: Tensor) -> Tensor:
    """() the sum of all entries.

    >>> import torch
    >>> float(total(torch.ones(3, 1000)))
    3000.0
    """
    rest = values.reshape(-1)
    while rest.numel() > BLOCK:
        rest = pad(rest, (0, -rest.numel() % BLOCK)).view(-1, BLOCK).sum(1)
    return rest.sum()


class _Spread(Function):
    """One entry, as often as a shape has places."""

    @staticmethod
    def forward(ctx: Any, entry: Tensor, shape: tuple[int, ...]) -> Tensor:
        ctx.shape = entry.shape
        return entry.reshape(()).expand(shape)

    @staticmethod
    def backward(ctx: Any, derivative: Tensor) -> tuple[Tensor, None]:
        return total(derivative).reshape(ctx.shape), None


_spread: Callable[..., Tensor] = _Spread.apply


def spread(entry: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor of one entry in another shape, whose derivative is summed up in a fixed order.

    >>> import torch
    >>> spread(torch.tensor([2.0]), (2, 3)).tolist()
    [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
    """
    return _spread(entry, shape)
