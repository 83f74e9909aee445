"""Whether the state of a run is one that a run of the same options could have written.

A checkpoint may come from a stranger. What it says is compared with what the run itself would say, so that a
wrong value is an error before it is used, and not a crash some steps later.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lmc.data.graph import Graph

LARGEST = 1e38
"""Of a number that is not infinite: what fits into the floats that it meets."""
MAY_LACK = ("train", "val", "test")

Tree = Any


def check_state(own: Mapping[str, Tree], given: Mapping[str, Tree], steps: int) -> None:
    """Raise ValueError, LookupError, TypeError or AttributeError unless `given` is built as `own` is.

    Args:
        own: what the run would write now, its optimizer's moments included.
        given: what is in the file; before the first step there are no moments in it.
        steps: of an epoch.
    """
    for name in ("epoch", "step", "since_best"):
        _check_whole(name, given[name])
    if given["step"] > steps:  # all of them, where the run was stopped before the epoch's end was
        raise ValueError(f"step={given['step']}: must be at most {steps}")
    for name in ("loss", "seconds"):
        _check_number(name, given[name], sys.float_info.max)
    for place, record in enumerate(given["records"]):
        _check_record(f"records[{place}]", record)
    for name in ("model", "scheduler", "estimator", "torch"):
        _check_alike(name, own[name], given[name])
    if given["best_weights"] is not None:
        _check_alike("best_weights", own["model"], given["best_weights"])
    for mine, other in zip(own["optimizer"]["param_groups"], given["optimizer"]["param_groups"], strict=True):
        _check_alike("optimizer", mine, other)
        for key, value in mine.items():
            may_change = isinstance(value, (int, float, tuple, Tensor)) and not isinstance(value, bool)
            if not may_change and value != other[key]:
                raise ValueError(f"optimizer.{key}={other[key]!r}: must be {value!r}")
    known, kept = own["optimizer"]["state"], given["optimizer"]["state"]
    if known:  # nothing is known of an optimizer that was made for other parameters than those it was given
        _check_alike("optimizer.state", {key: known[key] for key in kept}, kept)


def fingerprint(graph: Graph) -> str:
    """Of the edges, the labels and who trains: a run does not go on with others."""
    digest = hashlib.blake2b(graph.task.encode(), digest_size=16)
    for array in (graph.adjacency.indptr, graph.adjacency.indices, graph.y, graph.train_mask):
        digest.update(array.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _check_record(place: str, record: Mapping[str, Tree]) -> None:
    _check_whole(f"{place}.epoch", record["epoch"])
    for key, value in record.items():
        if key == "gradient_error":
            for part, error in (value or {}).items():
                _check_number(f"{place}.{key}.{part}", error, sys.float_info.max)
        elif value is not None or key not in MAY_LACK:
            _check_number(f"{place}.{key}", value, sys.float_info.max)


def _check_whole(place: str, value: Tree) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{place}={value!r}: must be an integer, 0 or more")


def _check_number(place: str, value: Tree, largest: float = LARGEST) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or largest < abs(value) < float("inf"):
        raise ValueError(f"{place}={value!r}: must be a number")


def _check_alike(place: str, own: Tree, given: Tree) -> None:
    """The same keys, kinds and shapes; a number may be any."""
    if isinstance(own, Tensor):
        if not isinstance(given, Tensor) or given.shape != own.shape or given.dtype != own.dtype:
            raise ValueError(f"{place}: must be a tensor of {own.dtype} and shape {tuple(own.shape)}")
    elif isinstance(own, dict):
        if not isinstance(given, dict) or given.keys() != own.keys():
            raise ValueError(f"{place}: must have the keys {', '.join(map(str, own))}")
        for key, value in own.items():
            _check_alike(f"{place}.{key}", value, given[key])
    elif isinstance(own, (list, tuple)):
        if not isinstance(given, type(own)) or len(given) != len(own):
            raise ValueError(f"{place}: must be {len(own)} values")
        for number, (value, other) in enumerate(zip(own, given, strict=True)):
            _check_alike(f"{place}[{number}]", value, other)
    elif isinstance(own, (int, float)) and not isinstance(own, bool):
        _check_number(place, given)
    elif own is None:
        if given is not None:
            _check_number(place, given)
    elif type(given) is not type(own):
        raise ValueError(f"{place}={given!r}: must be of the kind of {own!r}")
