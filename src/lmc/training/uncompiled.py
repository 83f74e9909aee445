"""torch's optimizers without its compiler, which each of them loads: a second and 145 MB, for nothing."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch.optim import Optimizer


@cache
def uncompiled(kind: type[Optimizer]) -> Any:
    """The same class of optimizers, whose methods do not ask the compiler to leave them alone.

    >>> issubclass(uncompiled(torch.optim.Adam), torch.optim.Adam)
    True
    """
    wrapped = inspect.getmembers(kind, lambda method: hasattr(method, "__wrapped__"))
    methods: dict[str, Any] = {name: inspect.unwrap(method) for name, method in wrapped}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods | {"__module__": __name__})
