"""Whether the state of a run is one that a run of the same options could have written.

A checkpoint may come from a stranger. What it says is compared with what the run itself would say, so that a
wrong value is an error before it is used, and not a crash some steps later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

Tree = Any


def check_state(
    own: dict[str, Tree], given: dict[str, Tree], steps: int, parameters: Sequence[Tensor]
) -> None:
    """Raise ValueError, KeyError or TypeError unless `given` is built as `own`, a state of the run's start.

    Records, optimizer moments and the best weights are not there at the start; each has its own rule.

    Args:
        own: what the run would write now.
        given: what is in the file.
        steps: of an epoch.
        parameters: in the optimizer's order.
    """
    for name in ("epoch", "step", "since_best"):
        if not _is_whole(given[name]):
            raise ValueError(f"{name}={given[name]!r}: must be an integer, 0 or more")
    if given["step"] >= steps:
        raise ValueError(f"step={given['step']}: must be below {steps}")
    for name in ("loss", "seconds"):
        _check_alike(name, 0.0, given[name])
    for number, record in enumerate(given["records"]):
        for key, value in record.items():
            _check_number(f"records[{number}].{key}", value)
    _check_alike("model", own["model"], given["model"])
    if given["best_weights"] is not None:
        _check_alike("best_weights", own["model"], given["best_weights"])
    _check_alike("optimizer", own["optimizer"]["param_groups"], given["optimizer"]["param_groups"])
    _check_moments(parameters, given["optimizer"]["state"])
    _check_alike("scheduler", own["scheduler"], given["scheduler"])
    _check_alike("estimator", own["estimator"], given["estimator"])
    _check_alike("torch", own["torch"], given["torch"])


def _is_whole(value: Tree) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_number(value: Tree) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def _check_number(place: str, value: Tree) -> None:
    """A number, or a table of them."""
    if not all(map(_is_number, value.values() if isinstance(value, dict) else [value])):
        raise ValueError(f"{place}: must be a number")


def _check_alike(place: str, own: Tree, given: Tree) -> None:
    """The same keys, kinds and shapes; a number may be any, or none."""
    if isinstance(own, Tensor):
        if not isinstance(given, Tensor) or given.shape != own.shape or given.dtype != own.dtype:
            raise ValueError(f"{place}: must be a tensor of {own.dtype} and shape {tuple(own.shape)}")
    elif isinstance(own, dict):
        if not isinstance(given, dict) or given.keys() != own.keys():
            raise ValueError(f"{place}: must have the keys {', '.join(map(str, own))}")
        for key, value in own.items():
            _check_alike(f"{place}.{key}", value, given[key])
    elif isinstance(own, (list, tuple)):
        if not isinstance(given, (list, tuple)) or len(given) != len(own):
            raise ValueError(f"{place}: must be {len(own)} values")
        for number, (value, other) in enumerate(zip(own, given, strict=True)):
            _check_alike(f"{place}[{number}]", value, other)
    elif not (_is_number(given) if _is_number(own) else isinstance(given, type(own))):
        raise ValueError(f"{place}={given!r}: must be of the kind of {own!r}")


def _check_moments(parameters: Sequence[Tensor], state: Tree) -> None:
    """What an optimizer keeps for a parameter is as large as it is, one number, or in between."""
    for number, kept in state.items():
        sizes = {*parameters[number].shape, 1}
        for key, value in kept.items():
            if isinstance(value, Tensor):
                if not (value.ndim <= parameters[number].ndim and set(value.shape) <= sizes):
                    raise ValueError(f"optimizer.{number}.{key}: has shape {tuple(value.shape)}")
            else:
                _check_number(f"optimizer.{number}.{key}", value)
