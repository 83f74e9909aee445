"""The weights of a module by their names, as files have them."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and kept buffer by its name, not copied: `state_dict()`, where that has them all.

    PyG's Linear writes its `weight` even if that is computed from others, which it leaves out.

    >>> from torch.nn.utils.parametrizations import weight_norm
    >>> from torch_geometric.nn import Linear
    >>> weights = weights_of(weight_norm(Linear(2, 3, bias=False)))
    >>> sorted(weights)
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    >>> any(weight.requires_grad for weight in weights.values())
    False
    """
    pyg = sys.modules.get("torch_geometric.nn")  # slow to import; where nobody has, no part is one of PyG's
    parts = [] if pyg is None else [part for part in module.modules() if isinstance(part, pyg.Linear)]
    if all("weight" in part._parameters for part in parts):
        return dict(module.state_dict())
    weights: dict[str, Tensor] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        nn.Module._save_to_state_dict(part, weights, f"{name}." if name else "", keep_vars=False)
    return weights


def weight_type(module: nn.Module) -> torch.dtype | None:
    """Of which type all its weights are, or None."""
    types = {parameter.dtype for parameter in module.parameters()}
    return types.pop() if len(types) == 1 else None
