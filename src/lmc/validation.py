"""The door of the library: every rule a graph's arrays obey, each checked once and vectorised."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from lmc.errors import ArgumentError, GraphError

Task = Literal["multiclass", "multilabel", "regression"]


def tensor(name: str, array: Any) -> Tensor:
    """A detached CPU tensor of any array, without a copy where possible."""
    if isinstance(array, np.ndarray):
        array = np.require(array, requirements=["C", "W"])  # what torch can share
    try:
        return torch.as_tensor(array).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise GraphError(f"{name}: {type(array).__name__} is not an array ({reason})") from None


def first(mask: Tensor) -> tuple[int, ...]:
    """The first place where `mask` is True, in order of storage."""
    flat = int(mask.flatten().to(torch.uint8).argmax())
    return tuple(int(i) for i in np.unravel_index(flat, mask.shape))


def _reject(name: str, array: Tensor, wrong: Tensor, rule: str) -> None:
    """Raise GraphError at the first `wrong` place of `array`, if there is one."""
    if bool(wrong.any()):
        at = first(wrong)
        place = ", ".join(map(str, at))
        raise GraphError(f"{name}[{place}] = {array[at].item()}: {rule}")


def _require_shape(name: str, array: Tensor, right: bool, rule: str) -> None:
    if not right:
        raise GraphError(f"{name} has shape {tuple(array.shape)}: {rule}")


def _require_finite(name: str, array: Tensor, rule: str) -> None:
    # A finite sum proves every term finite, and takes no memory; the rest is for the message.
    if not bool(torch.isfinite(array.sum())):
        _reject(name, array, ~torch.isfinite(array), rule)


def _require_integers(name: str, array: Tensor, rule: str) -> None:
    if array.dtype == torch.bool or array.is_floating_point() or array.is_complex():
        raise GraphError(f"{name} has type {array.dtype}: {rule}")


def check_ids(name: str, ids: Tensor, num_nodes: int) -> None:
    """Node ids are integers in 0 .. num_nodes - 1."""
    _require_integers(name, ids, "node ids must be integers")
    if ids.numel():
        low, high = torch.aminmax(ids)
        if low < 0 or high >= num_nodes:
            rule = f"node ids must be in 0..{num_nodes - 1}, for {num_nodes} nodes"
            _reject(name, ids, (ids < 0) | (ids >= num_nodes), rule)


def check_edge_index(edge_index: Tensor, num_nodes: int) -> None:
    """(2, edges) node ids, sources above targets."""
    right = edge_index.ndim == 2 and edge_index.shape[0] == 2
    _require_shape("edge_index", edge_index, right, "must be (2, edges), sources above targets")
    check_ids("edge_index", edge_index, num_nodes)


def check_csr(indptr: Tensor, indices: Tensor, num_nodes: int) -> None:
    """(nodes + 1,) offsets that start at 0, never fall and end at the number of node ids."""
    _require_shape("indices", indices, indices.ndim == 1, "must be (edges,)")
    right = indptr.ndim == 1 and indptr.numel() == num_nodes + 1
    _require_shape("indptr", indptr, right, f"must be ({num_nodes + 1},), nodes + 1")
    _require_integers("indptr", indptr, "offsets must be integers")
    if indptr[0] != 0:
        raise GraphError(f"indptr[0] = {int(indptr[0])}: offsets must start at 0")
    falls = torch.zeros(indptr.numel(), dtype=torch.bool)
    falls[1:] = indptr.diff() < 0
    _reject("indptr", indptr, falls, "offsets must not fall")
    if indptr[-1] != indices.numel():
        last = f"indptr[{num_nodes}] = {int(indptr[-1])}"
        raise GraphError(f"{last}: offsets must end at the number of indices, {indices.numel()}")
    check_ids("indices", indices, num_nodes)


def check_edge_weight(edge_weight: Tensor, num_edges: int) -> Tensor:
    """(edges,) finite; returned as floating point."""
    right = edge_weight.ndim == 1 and edge_weight.numel() == num_edges
    _require_shape("edge_weight", edge_weight, right, f"must be ({num_edges},), one per edge")
    weight = edge_weight if edge_weight.is_floating_point() else edge_weight.float()
    _require_finite("edge_weight", weight, "edge weights must be finite")
    return weight


def check_features(x: Tensor, num_nodes: int) -> Tensor:
    """(nodes, features) finite; returned as float64 where it is, as float32 otherwise."""
    right = x.ndim == 2 and x.shape[0] == num_nodes
    _require_shape("x", x, right, f"must be ({num_nodes}, features)")
    if x.is_complex():
        raise GraphError(f"x has type {x.dtype}: features must be real")
    x = x if x.dtype == torch.float64 else x.float()
    _require_finite("x", x, "features must be finite")
    return x


def check_masks(masks: dict[str, Tensor], num_nodes: int) -> None:
    """(nodes,) bool each, no node in two."""
    seen: dict[str, Tensor] = {}
    for name, mask in masks.items():
        right = mask.ndim == 1 and mask.numel() == num_nodes
        _require_shape(name, mask, right, f"must be ({num_nodes},), one per node")
        if mask.dtype != torch.bool:
            raise GraphError(f"{name} has type {mask.dtype}: masks must be bool")
        for other, taken in seen.items():
            _reject(name, mask, mask & taken, f"the node is in {other}; masks must not overlap")
        seen[name] = mask


def task_of(y: Tensor) -> Task:
    """What the labels' type and shape say: integers are classes, a 0/1 matrix is multi-label."""
    if not y.is_floating_point() and y.ndim == 1:
        return "multiclass"
    known = y[~unlabelled(y, "multilabel")] if y.ndim == 2 else y
    binary = y.ndim == 2 and bool(((known == 0) | (known == 1) | known.isnan()).all())
    return "multilabel" if binary else "regression"


def unlabelled(y: Tensor, task: Task) -> Tensor:
    """(nodes,) where the label is -1 (classes) or a row of -1 (multi-label)."""
    if task == "multiclass":
        return y == -1
    if task == "multilabel":
        return (y == -1).all(dim=1)
    return torch.zeros(y.shape[0], dtype=torch.bool)


def check_labels(
    y: Tensor, in_a_mask: Tensor, task: Task | None, num_classes: int | None
) -> tuple[Tensor, Task, int]:
    """Labels of one of three kinds; returns them, their kind and the width of a prediction.

    Args:
        y: (nodes,) integer classes; (nodes, classes) zeros and ones; or (nodes,) or
            (nodes, targets) real numbers. (nodes, 1) integers count as (nodes,).
        in_a_mask: (nodes,) bool; the labels of other nodes are only looked at where they are integers.
        task: the kind, or None to take it from the type and shape of `y`.
        num_classes: how many classes there are, or None for those that occur.
    """
    if task is not None and task not in get_args(Task):
        raise ArgumentError(f"task={task!r}: must be one of {', '.join(get_args(Task))}")
    num_nodes = in_a_mask.numel()
    right = y.ndim in (1, 2) and y.shape[0] == num_nodes
    _require_shape("y", y, right, f"must be ({num_nodes},) or ({num_nodes}, columns)")
    if y.is_complex():
        raise GraphError(f"y has type {y.dtype}: labels must be real")
    if y.ndim == 2 and y.shape[1] == 1 and not y.is_floating_point():
        y = y[:, 0]
    task = task or task_of(y)
    if task == "multiclass":
        _require_integers("y", y, "classes must be integers")
        _require_shape("y", y, y.ndim == 1, f"must be ({num_nodes},) for classes")
        y = y.long()
        num_classes = num_classes or max(1, int(y.max()) + 1 if y.numel() else 1)
        rule = f"classes must be in 0..{num_classes - 1}, or -1 for unlabelled"
        _reject("y", y, (y < -1) | (y >= num_classes), rule)
        return y, task, num_classes

    y = y if y.dtype == torch.float64 else y.float()
    judged = in_a_mask & ~unlabelled(y, task) if y.ndim == 2 else in_a_mask
    judged = judged.view(-1, *[1] * (y.ndim - 1))
    if task == "multilabel":
        _require_shape("y", y, y.ndim == 2, f"must be ({num_nodes}, classes) for multi-label")
        rule = "multi-label entries must be 0 or 1, or the whole row -1 for unlabelled"
        _reject("y", y, judged & (y != 0) & (y != 1), rule)
    else:
        _reject("y", y, judged & ~torch.isfinite(y), "targets in a mask must be finite")
    width = 1 if y.ndim == 1 else y.shape[1]
    if num_classes not in (None, width):
        raise ArgumentError(f"num_classes={num_classes}: y has {width} columns")
    return y, task, width


def check_train_mask(train_mask: Tensor) -> None:
    """At least one labelled node to learn from."""
    if not bool(train_mask.any()):
        nodes = train_mask.numel()
        raise GraphError(f"train_mask has no labelled node among {nodes}: training needs one or more")
