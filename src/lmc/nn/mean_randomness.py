"""A context without chance: what is drawn at random is its mean, so that dropout keeps what it is given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


def _mean_slope(z: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any) -> Tensor:
    return leaky_relu(z, (lower + upper) / 2)


MEANS: dict[Any, Callable[..., Any]] = {
    aten.bernoulli.default: lambda p: p.clone(),
    aten.bernoulli.p: lambda like, p: torch.full_like(like, p),
    aten.bernoulli_.float: lambda out, p=0.5: out.fill_(p),
    aten.bernoulli_.Tensor: lambda out, p: out.copy_(p),
    aten.native_dropout.default: lambda z, p, train: (z, torch.ones_like(z, dtype=torch.bool)),
    aten.rand.default: lambda size, **like: torch.full(size, 0.5, **like),
    aten.rand_like.default: lambda z, **like: torch.full_like(z, 0.5, **like),
    aten.randn.default: lambda size, **like: torch.zeros(size, **like),
    aten.randn_like.default: lambda z, **like: torch.zeros_like(z, **like),
    aten.uniform_.default: lambda out, low=0.0, high=1.0: out.fill_((low + high) / 2),
    aten.normal_.default: lambda out, mean=0.0, std=1.0: out.fill_(mean),
    aten.normal.float_float: lambda mean, std, size, **like: torch.full(size, mean, **like),
    aten.normal.Tensor_float: lambda mean, std=1.0: mean.clone(),
    aten.normal.Tensor_Tensor: lambda mean, std: mean.clone(),
    aten.exponential_.default: lambda out, rate=1.0: out.fill_(1 / rate),
    aten.rrelu_with_noise.default: _mean_slope,
    aten.rrelu_with_noise_.default: lambda z, *given: z.copy_(_mean_slope(z, *given)),
}


class _MeanRandomness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func not in MEANS:
            return func(*args, **given)
        return MEANS[func](*args, **{name: value for name, value in given.items() if name != "generator"})


def mean_randomness() -> AbstractContextManager[Any]:
    """In this context noise is its mean; only whole numbers (`randperm`, `randint`) are still drawn.

    >>> with mean_randomness():
    ...     kept = torch.nn.functional.dropout(torch.ones(4), 0.5)
    >>> kept.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    context: AbstractContextManager[Any] = _MeanRandomness()  # type: ignore[no-untyped-call]
    return context
