"""Whether the state of a run is one that a run of the same options could have written.

A checkpoint may come from a stranger. What it says is compared with what the run itself would say, so that a
wrong value is an error before it is used, and not a crash some steps later.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lmc import checks, typed
from lmc.data.graph import Graph

LARGEST = 1e38
"""The largest finite number: it fits into every float that it may be combined with."""

Tree = Any


def check_state(own: Mapping[str, Tree], given: Mapping[str, Tree], steps: int) -> None:
    """Raise ValueError, LookupError, TypeError or AttributeError unless `given` is built as `own` is.

    Args:
        own: what the run would write now, its optimizer's moments included.
        given: what is in the file; before the first step there are no moments in it.
        steps: of an epoch.
    """
    # `step` may be all of them: the run was stopped before the end of its epoch was recorded.
    for name, most in (("epoch", checks.MOST_WHOLE), ("step", steps), ("since_best", checks.MOST_WHOLE)):
        number = typed.read(name, given[name], int, ValueError)
        checks.whole_number(name, number, 0, most, ValueError)
    for name in ("loss", "seconds"):
        typed.read(name, given[name], float, ValueError)
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
    if known:  # an optimizer that ignores the parameters it is given tells nothing about its moments
        _check_alike("optimizer.state", {key: known[key] for key in kept}, kept)


def fingerprint(graph: Graph) -> str:
    """A hash of all that a graph holds: a run does not go on with another."""
    digest = hashlib.blake2b(graph.task.encode(), digest_size=16)
    ends = graph.adjacency.indptr, graph.adjacency.indices
    of_edges = (*ends, graph.edge_weight, graph.edge_attr, graph.edge_type)
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    for array in (*of_edges, graph.x, graph.y, *masks):
        if array is None:
            continue
        file = graph.files.get(array.data_ptr())
        if file is None:
            digest.update(array.contiguous().numpy().data)
        else:  # plain reads: a map would hold all of it
            with open(file, "rb") as opened:
                while piece := opened.read(1 << 22):
                    digest.update(piece)
    return digest.hexdigest()


def _check_number(place: str, value: Tree) -> None:
    number: float = typed.read(place, value, float, ValueError)
    if LARGEST < abs(number) < math.inf:
        raise ValueError(f"{place}={number}: must be at most {LARGEST:g}")


def _check_alike(place: str, own: Tree, given: Tree) -> None:
    """The same keys, types and shapes; numbers may differ."""
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
        raise ValueError(f"{place}={given!r}: must be of the same type as {own!r}")
