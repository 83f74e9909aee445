"""Optimizers and schedulers by name, and their groups of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

from lmc import checks
from lmc.errors import ArgumentError
from lmc.files import one_line
from lmc.nn.model import Model
from lmc.training.uncompiled import uncompiled

MakeOptimizer = Callable[..., Optimizer]
"""From parameter groups and `lr=` to an optimizer, as torch's classes are."""
MakeScheduler = Callable[[Optimizer], LRScheduler]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
}
SCHEDULERS = ("cosine", "plateau")
_NOTHING_TO_FOLLOW = "scheduler: the graph has no validation nodes whose metric it could follow"


def make_optimizer(
    kind: str | MakeOptimizer,
    model: Model,
    lr: float,
    weight_decay: float | None,
    head_weight_decay: float | None,
) -> Optimizer:
    """An optimizer of the model's parameters, in groups with a weight decay each; None is the optimizer's."""
    return _made(kind, parameter_groups(model, weight_decay, head_weight_decay), lr)


def _made(kind: str | MakeOptimizer, groups: list[dict[str, Any]], lr: float) -> Optimizer:
    if isinstance(kind, str):
        kind = OPTIMIZERS[checks.one_of("optimizer", kind, OPTIMIZERS)]
    given: object = kind
    if isinstance(given, Optimizer):
        rule = f"give its class, torch.optim.{type(given).__name__}, or a function of parameters and lr"
        raise ArgumentError(f"optimizer: is made already, for parameters that fit chooses itself; {rule}")
    try:
        made: object = _without_compiler(kind)(groups, lr=lr)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"optimizer={checks.shown(kind)}: cannot be made ({one_line(error)})") from None
    if not isinstance(made, Optimizer):
        rule = "must be one of torch's classes, or a function that gives a torch.optim.Optimizer"
        raise ArgumentError(f"optimizer: gives {checks.shown(made)}; {rule}")
    return made


def _without_compiler(kind: MakeOptimizer) -> MakeOptimizer:
    is_of_torch = isinstance(kind, type) and issubclass(kind, Optimizer) and "torch.optim." in kind.__module__
    return uncompiled(kind) if is_of_torch else kind


def moments_after_a_step(
    kind: str | MakeOptimizer,
    model: Model,
    lr: float,
    weight_decay: float | None,
    head_weight_decay: float | None,
) -> dict[int, Any]:
    """What such an optimizer keeps for each parameter, found by one step on copies of them."""
    groups = parameter_groups(model, weight_decay, head_weight_decay)
    for group in groups:
        group["params"] = [nn.Parameter(p.detach().clone(), p.requires_grad) for p in group["params"]]
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer = _made(kind, groups, lr)
    optimizer.step()
    moments: dict[int, Any] = optimizer.state_dict()["state"]
    return moments


def make_scheduler(
    kind: str | MakeScheduler | None, optimizer: Optimizer, epochs: int, higher_is_better: bool | None
) -> LRScheduler | None:
    """`"cosine"` falls to zero over all epochs; `"plateau"` halves after 10 evaluations without progress.

    `higher_is_better` is said of the validation metric; None where there is none to follow.
    """
    if kind is None:
        return None
    mode: Literal["min", "max"] = "max" if higher_is_better else "min"
    if callable(kind):
        rule = "give a function that makes one of an optimizer"
        try:
            made: object = kind(optimizer)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"scheduler={checks.shown(kind)}: cannot be made ({one_line(error)}); {rule}"
            ) from None
        if not isinstance(made, LRScheduler):
            raise ArgumentError(f"scheduler: gives {checks.shown(made)}, which is none of torch's; {rule}")
        if isinstance(made, ReduceLROnPlateau) and higher_is_better is None:
            raise ArgumentError(_NOTHING_TO_FOLLOW)
        if isinstance(made, ReduceLROnPlateau) and made.mode != mode:
            better = "higher" if higher_is_better else "lower"
            rule = f"its steps follow the validation metric, of which {better} is better: mode={mode!r}"
            raise ArgumentError(f"scheduler: ReduceLROnPlateau has mode={made.mode!r}; {rule}")
        return made
    if checks.one_of("scheduler", kind, SCHEDULERS) == "cosine":
        return CosineAnnealingLR(optimizer, T_max=max(1, epochs))
    if higher_is_better is None:
        raise ArgumentError(_NOTHING_TO_FOLLOW)
    return ReduceLROnPlateau(optimizer, mode=mode, factor=0.5)


def parameter_groups(
    model: Model, weight_decay: float | None, head_weight_decay: float | None
) -> list[dict[str, Any]]:
    """Two groups: the layers, and what comes before and after them.

    If nothing comes after the layers, the last layer is the head, as in the paper's configurations.

    >>> import lmc
    >>> [len(group["params"]) for group in parameter_groups(lmc.GCN(4, 8, 2, layers=3), 0.1, 0.0)]
    [4, 2]
    """
    ends = list(dict.fromkeys([*model.encoder.parameters(), *model.head.parameters()]))
    if not any(True for _ in model.head.parameters()):
        ends += list(model.layers[-1].parameters())
    apart = set(ends)
    layers = [p for p in model.parameters() if p not in apart]
    decays = ((layers, weight_decay), (ends, head_weight_decay))
    return [
        {"params": parameters} | ({} if decay is None else {"weight_decay": decay})
        for parameters, decay in decays
        if parameters
    ]
