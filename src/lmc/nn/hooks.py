"""What runs when a module is called, and would not run if only its weights were read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from inspect import isfunction
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm


def hooks_of(module: nn.Module) -> list[Any]:
    """Hooks that run with a call: torch's, and those of PyG's message passing.

    >>> linear = nn.Linear(2, 2)
    >>> hook = linear.register_forward_hook(lambda module, given, out: 2 * out)
    >>> len(hooks_of(linear)), len(hooks_of(nn.Linear(2, 2)))
    (1, 0)
    """
    kinds = [name for name in vars(module) if name.endswith("_hooks") and "state_dict" not in name]
    return [hook for name in kinds for hook in vars(module)[name].values()]


def is_changed(module: nn.Module) -> bool:
    """Whether a call of it does something else than its class says, by hooks or methods set on the object."""
    explained = getattr(module, "explain", False) is True  # PyG then multiplies messages by a mask
    return explained or bool(hooks_of(module)) or any(map(partial(_is_own, module), vars(module)))


def _is_own(module: nn.Module, name: str) -> bool:
    """Whether an attribute is a method that is not of the class; PyG has two for the same sums."""
    kind, value = type(module), vars(module)[name]
    known = [getattr(kind, each, None) for each in (name, f"_orig_{name}", f"_jinja_{name}")]
    return isfunction(known[0]) and getattr(value, "__func__", value) not in known


def is_plain(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether it is of one of these very classes, perhaps with parametrised weights, and unchanged.

    >>> is_plain(nn.ReLU(), nn.ReLU), is_plain(nn.ReLU6(), nn.ReLU)
    (True, False)
    """
    return type_before_parametrizations(module) in kinds and not is_changed(module)


def is_linear(module: nn.Module) -> bool:
    """Whether a call of it is x Wᵀ + b, where W may be the norm or the parametrisation of other weights."""
    from torch_geometric.nn import Linear

    of_weights = all(isinstance(hook, (WeightNorm, SpectralNorm)) for hook in hooks_of(module))
    return of_weights and type_before_parametrizations(module) in (nn.Linear, Linear)


def hooked(given: Sequence[nn.Module], called: Sequence[nn.Module]) -> nn.Module | None:
    """The first module of `given` with hooks that is no part of those which are `called`."""
    runs = {part for module in called for part in module.modules()}
    parts = [part for module in given for part in module.modules() if part not in runs]
    return next((part for part in parts if is_changed(part)), None)
