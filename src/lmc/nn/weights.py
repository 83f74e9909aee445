"""The weights of a module by their names, as files have them."""

from __future__ import annotations

from torch import Tensor, nn


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and kept buffer by its name, not copied: `state_dict()`, where that has them all.

    PyG's Linear writes its `weight`, and not what that is computed from if it is parametrised.

    >>> from torch.nn.utils.parametrizations import weight_norm
    >>> from torch_geometric.nn import Linear
    >>> sorted(weights_of(weight_norm(Linear(2, 3, bias=False))))
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    own: dict[str, Tensor] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        nn.Module._save_to_state_dict(part, own, f"{name}." if name else "", keep_vars=False)
    written = dict(module.state_dict())
    return written if written.keys() == own.keys() else own
