"""The door of the library: every rule a graph's arrays obey, each checked once and vectorised."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lmc import checks, memory_use
from lmc.array_files import shared
from lmc.data import advice
from lmc.errors import ArgumentError, EntryError, GraphError
from lmc.files import one_line

Task = Literal["multiclass", "multilabel", "regression"]
MOST_CLASSES = 1 << 16
"""The most that labels alone may imply, on a graph of fewer nodes: a larger label is a mistake."""
MOST_TYPES = 1 << 15
"""Of edges: a larger number is a mistake, or a file that asks for all the memory there is."""
TO_NUMBERS = "numpy.unique(names, return_inverse=True)[1] makes numbers of names"


def tensor(name: str, array: Any) -> Tensor:
    """A detached, dense CPU tensor of any array: tensors and files are shared where possible."""
    try:
        if isinstance(array, np.memmap) and array.flags.c_contiguous:
            return shared(array)  # a file that cannot be written to is not copied either
        if not isinstance(array, Tensor) and hasattr(array, "__array__"):
            array = np.array(array, order="C")  # of a change through numpy, nobody would know
        result = torch.as_tensor(array).detach().cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if (text := _first_text(array)) is not None:
            raise GraphError(
                f"{name} holds text, such as {checks.shown(text)}: must be numbers; {TO_NUMBERS}"
            ) from None
        raise GraphError(f"{name}: {type(array).__name__} is not an array ({one_line(error)})") from None
    if result.layout != torch.strided:
        raise GraphError(f"{name} has layout {result.layout}: must be dense")
    if result.is_complex():
        raise GraphError(f"{name} has type {result.dtype}: must be real")
    return result.clone() if result.is_inference() else result


def _first_text(array: Any) -> str | None:
    """The first entry of an array of text; None for any other."""
    if isinstance(array, str):
        return None
    try:
        first = np.asarray(array).ravel()[0]
    except (TypeError, ValueError, RuntimeError, OverflowError, IndexError):
        return None
    return str(first) if isinstance(first, str) else None


def dense(name: str, matrix: Any) -> Tensor:
    """`tensor`, also of a sparse matrix of torch, torch_sparse or scipy, if there is memory for it."""
    if isinstance(matrix, Tensor) and matrix.layout != torch.strided:
        fits_dense(f"{name} has shape {tuple(matrix.shape)}", matrix.shape, matrix.element_size())
        return tensor(name, matrix.detach().to_dense())
    if hasattr(matrix, "coo") and hasattr(matrix, "to_dense"):  # of torch_sparse
        fits_dense(f"{name} has shape {tuple(matrix.sizes())}", matrix.sizes(), 4)
        return tensor(name, matrix.to_dense())
    if sparse.issparse(matrix):
        fits_dense(f"{name} has shape {matrix.shape}", matrix.shape, matrix.dtype.itemsize)
        return tensor(name, matrix.toarray())
    return tensor(name, matrix)


def fits_dense(what: str, shape: Any, itemsize: int) -> None:
    """Raise GraphError where a matrix of this shape is larger than the memory that is free."""
    needed, free = itemsize * math.prod(map(int, shape)), memory_use.free()
    if free is not None and needed > free:
        raise GraphError(f"{what}: {needed / 1e9:.2g} GB, {free / 1e9:.2g} GB are free")


def count_nodes(
    x: Tensor | None, y: Tensor | None, ids: NDArray[Any] | None = None, prefix: str = ""
) -> int | None:
    """How many nodes there are: the rows of the features, or else of the labels, or else of the ids."""
    if x is not None:
        if x.ndim != 2 or len(x) == 0:
            shape = tuple(x.shape)
            raise GraphError(f"{prefix}x has shape {shape}: must be (nodes, features) with a node or more")
        return len(x)
    if y is not None:
        if y.ndim == 0 or len(y) == 0:
            raise GraphError(f"{prefix}y has shape {tuple(y.shape)}: must be (nodes,) or (nodes, columns)")
        return len(y)
    return None if ids is None else len(ids)


def count_ends(ends: Tensor) -> int:
    """How many nodes there are where nothing but edges is known: up to the largest of their ends."""
    count = max(1, int(ends.max()) + 1) if ends.numel() else 1
    fits_dense(f"edge_index has {count - 1}", (count,), 64)
    return count


def _first(mask: Tensor) -> tuple[int, ...]:
    """The first place where `mask` is True, in order of storage."""
    flat = int(mask.flatten().to(torch.uint8).argmax())
    return tuple(int(i) for i in np.unravel_index(flat, mask.shape))


def _reject(name: str, array: Tensor, wrong: Tensor, rule: str) -> None:
    """Raise GraphError at the first `wrong` place of `array`, if there is one."""
    if bool(wrong.any()):
        at = _first(wrong)
        raise EntryError.at(name, at, f"{array[at].item()}: {rule}")


def _require_shape(name: str, array: Tensor, right: bool, rule: str) -> None:
    if not right:
        raise GraphError(f"{name} has shape {tuple(array.shape)}: {rule}")


def finite(name: str, array: Tensor, rule: str) -> Tensor:
    """The same numbers, all finite; float64 stays, all else becomes float32."""
    array = array if array.dtype == torch.float64 else array.float()
    # A finite sum proves every term finite, and takes no memory; the rest is for the message.
    if not bool(torch.isfinite(array.sum())):
        advice = f"torch.as_tensor({name}).nan_to_num(0, 0, 0) puts zeros there"
        _reject(name, array, ~torch.isfinite(array), f"{rule}; {advice}")
    return array


def integers(name: str, array: Tensor, rule: str) -> Tensor:
    """The same numbers in int32 or int64, which neither wrap nor lack operations."""
    if array.numel() == 0:
        return array.long()
    if array.dtype == torch.bool or array.is_floating_point():
        raise GraphError(f"{name} has type {array.dtype}: {rule}")
    return array if array.dtype in (torch.int32, torch.int64) else array.long()


def node_ids(name: str, ids: Tensor, num_nodes: int) -> Tensor:
    """Integers in 0 .. num_nodes - 1."""
    ids = integers(name, ids, "node ids must be integers")
    if ids.numel():
        low, high = torch.aminmax(ids)
        if low < 0 or high >= num_nodes:
            rule = f"node ids must be in 0..{num_nodes - 1}, for {num_nodes} nodes"
            _reject(name, ids, (ids < 0) | (ids >= num_nodes), rule)
    return ids


def edge_index(name: str, ends: Tensor, num_nodes: int) -> Tensor:
    """(2, edges) node ids, sources above targets."""
    if ends.numel() == 0 and ends.ndim < 2:
        ends = ends.reshape(2, 0)
    right = ends.ndim == 2 and ends.shape[0] == 2
    _require_shape(name, ends, right, "must be (2, edges), sources above targets")
    return node_ids(name, ends, num_nodes)


def csr(indptr: Tensor, indices: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """(nodes + 1,) offsets that start at 0, never fall and end at the number of node ids; the ids."""
    _require_shape("indices", indices, indices.ndim == 1, "must be (edges,)")
    right = indptr.ndim == 1 and indptr.numel() == num_nodes + 1
    _require_shape("indptr", indptr, right, f"must be ({num_nodes + 1},), nodes + 1")
    indptr = integers("indptr", indptr, "offsets must be integers")
    if indptr[0] != 0:
        raise GraphError(f"indptr[0] = {int(indptr[0])}: offsets must start at 0")
    falls = torch.zeros(indptr.numel(), dtype=torch.bool)
    falls[1:] = indptr[1:] < indptr[:-1]
    _reject("indptr", indptr, falls, "offsets must not fall")
    if indptr[-1] != indices.numel():
        last = f"indptr[{num_nodes}] = {int(indptr[-1])}"
        raise GraphError(f"{last}: offsets must end at the number of indices, {indices.numel()}")
    return indptr, node_ids("indices", indices, num_nodes)


def cluster_ids(clusters: Any, num_nodes: int) -> Tensor:
    """(nodes,) integers from 0, gaps allowed."""
    ids = tensor("clusters", clusters)
    _require_shape("clusters", ids, ids.shape == (num_nodes,), f"must be ({num_nodes},), one per node")
    ids = integers("clusters", ids, "clusters must be integers")
    _reject("clusters", ids, ids < 0, "clusters must be 0 or more")
    return ids


def node_weights(weights: Any, num_nodes: int) -> Tensor:
    """(nodes,) finite."""
    given = tensor("weights", weights)
    _require_shape("weights", given, given.shape == (num_nodes,), f"must be ({num_nodes},), one per node")
    return finite("weights", given, "weights must be finite")


def edge_weight(weight: Tensor, num_edges: int) -> Tensor:
    """(edges,) finite; float64 stays, all else becomes float32."""
    right = weight.ndim == 1 and weight.numel() == num_edges
    _require_shape("edge_weight", weight, right, f"must be ({num_edges},), one per edge")
    return finite("edge_weight", weight, "edge weights must be finite")


def edge_attr(attributes: Tensor, num_edges: int) -> Tensor:
    """(edges, columns) finite; float64 stays, all else becomes float32. (edges,) is one column."""
    columns = attributes[:, None] if attributes.ndim == 1 else attributes
    right = columns.ndim == 2 and len(columns) == num_edges
    _require_shape("edge_attr", attributes, right, f"must be ({num_edges}, columns), one row per edge")
    return finite("edge_attr", columns, "edge features must be finite")


def edge_type(kind: Tensor, num_edges: int) -> Tensor:
    """(edges,) integers, zero or more."""
    right = kind.ndim == 1 and kind.numel() == num_edges
    _require_shape("edge_type", kind, right, f"must be ({num_edges},), one per edge")
    kind = integers("edge_type", kind, "types must be integers")
    _reject("edge_type", kind, (kind < 0) | (kind >= MOST_TYPES), f"types must be in 0..{MOST_TYPES - 1}")
    return kind


def features(x: Tensor, num_nodes: int) -> Tensor:
    """(nodes, features) finite; float64 stays, all else becomes float32."""
    right = x.ndim == 2 and x.shape[0] == num_nodes
    _require_shape("x", x, right, f"must be ({num_nodes}, features)")
    return finite("x", x, "features must be finite")


def masks(given: dict[str, Tensor], num_nodes: int) -> None:
    """(nodes,) bool each, no node in two."""
    seen: dict[str, Tensor] = {}
    for name, mask in given.items():
        right = mask.ndim == 1 and mask.numel() == num_nodes
        _require_shape(name, mask, right, f"must be ({num_nodes},), one per node")
        if mask.dtype != torch.bool:
            raise GraphError(f"{name} has type {mask.dtype}: masks must be bool, such as {name}.bool()")
        for other, taken in seen.items():
            _reject(name, mask, mask & taken, f"the node is in {other}; masks must not overlap")
        seen[name] = mask


def some_nodes(nodes: Any, num_nodes: int, of: str) -> Tensor:
    """(nodes,) int64, one or more: ids, or those where a mask (all nodes,) is True; `of` says what for."""
    given = tensor("nodes", list(nodes) if isinstance(nodes, range) else nodes)
    if given.dtype == torch.bool:
        rule = f"a mask must be ({num_nodes},), one per node"
        _require_shape("nodes", given, given.shape == (num_nodes,), rule)
        given = given.nonzero()[:, 0]
    _require_shape("nodes", given, given.ndim == 1 and given.numel() > 0, f"must be ({of},), one or more")
    if len(given) == num_nodes > 2 and bool(((given == 0) | (given == 1)).all()):
        rule = f"zeros and ones, one per node, are no numbers of {of}; a mask is bool, such as nodes.bool()"
        raise GraphError(f"nodes has type {given.dtype}: {rule}")
    return node_ids("nodes", given, num_nodes).long()


def node_set(nodes: Any, num_nodes: int, of: str) -> Tensor:
    """`some_nodes`, none twice; `of` says of what they are a set."""
    ids = some_nodes(nodes, num_nodes, of)
    ascending = ids.sort().values
    twice = ascending[1:][ascending.diff() == 0]
    if twice.numel():
        raise GraphError(f"nodes contains {int(twice[0])} twice: a {of} is a set of nodes")
    return ids


def task_of(y: Tensor) -> Task:
    """What the labels' type and shape say: integers are classes, a 0/1 matrix is multi-label."""
    if not y.is_floating_point() and y.ndim == 1:
        return "multiclass"
    binary = y.ndim == 2 and bool(((y == 0) | (y == 1) | (y == -1) | y.isnan()).all())
    return "multilabel" if binary else "regression"


def unlabelled(y: Tensor, task: Task) -> Tensor:
    """(nodes,) where the label is -1 (classes), a row of -1 (multi-label) or no number (all but classes)."""
    if task == "multiclass":
        return y == -1
    missing = y.isnan().reshape(len(y), -1).all(dim=1)
    return missing | (y == -1).all(dim=1) if task == "multilabel" else missing


def labels(
    y: Tensor | None, in_a_mask: Tensor, task: Task | None, num_classes: int | None
) -> tuple[Tensor, Task, int]:
    """Labels of one of three kinds; returns them, their kind and the width of a prediction.

    Args:
        y: (nodes,) integer classes; (nodes, classes) zeros and ones; or (nodes,) or
            (nodes, targets) real numbers. (nodes, 1) classes count as (nodes,), booleans as 0 and 1. None for
            no labels: then every class is -1, and there are no classes.
        in_a_mask: (nodes,) bool; the labels of other nodes are only looked at where they are integers.
        task: the kind, or None to take it from the type and shape of `y`.
        num_classes: how many classes there are, or None for those that occur.
    """
    if num_classes is not None:
        num_classes = checks.whole_number("num_classes", num_classes, 1)
    if task is not None:
        checks.one_of("task", task, Task)
    num_nodes = in_a_mask.numel()
    if y is None:
        if task not in (None, "multiclass"):
            raise ArgumentError(f"task={task!r}: y is None, and labels that are not there are of no kind")
        y = torch.full((num_nodes,), -1)
    right = y.ndim in (1, 2) and y.shape[0] == num_nodes
    _require_shape("y", y, right, f"must be ({num_nodes},) or ({num_nodes}, columns)")
    y = y.long() if y.dtype == torch.bool else y
    if y.ndim == 2 and y.shape[1] == 1 and (task == "multiclass" or not y.is_floating_point()):
        y = y[:, 0]
    if task is None:
        task = task_of(y)
        if task == "regression":
            advice.on_targets(y)
        elif task == "multilabel":
            advice.on_several_labels(y[~unlabelled(y, task)])
    if task == "multiclass":
        _require_shape("y", y, y.ndim == 1, f"must be ({num_nodes},) for classes")
        y = _whole(y) if y.is_floating_point() else integers("y", y, "classes must be integers").long()
        if num_classes is None:
            most = max(MOST_CLASSES, num_nodes)
            _reject("y", y, y >= most, f"classes must be below {most}, unless num_classes says how many")
            num_classes = max(0, int(y.max()) + 1)
            advice.on_classes(y[y >= 0])
        rule = f"classes must be in 0..{num_classes - 1}, or -1 for unlabelled"
        _reject("y", y, (y < -1) | (y > num_classes - 1), rule)
        return y, task, num_classes

    y = y if y.dtype == torch.float64 else y.float()
    if task == "multilabel":
        _require_shape("y", y, y.ndim == 2, f"must be ({num_nodes}, classes) for multi-label")
    judged = (in_a_mask & ~unlabelled(y, task)).view(-1, *[1] * (y.ndim - 1))
    if task == "multilabel":
        rule = (
            "multi-label entries must be 0 or 1, or the whole row -1 for unlabelled; "
            "task='regression' takes them as targets"
        )
        _reject("y", y, judged & (y != 0) & (y != 1), rule)
    else:
        _reject("y", y, judged & ~torch.isfinite(y), "targets in a mask must be finite")
    width = 1 if y.ndim == 1 else y.shape[1]
    if num_classes not in (None, width):
        raise ArgumentError(f"num_classes={num_classes}: y has {width} columns")
    return y, task, width


def _whole(y: Tensor) -> Tensor:
    """(nodes,) int64 classes of real numbers, -1 where there is none."""
    known = ~y.isnan()
    _reject("y", y, known & (y.frac() != 0), "classes must be whole numbers")
    return torch.where(known, y, -1).long()


def class_names(names: tuple[Any, ...], task: Task, num_classes: int) -> None:
    """One string per class."""
    if task == "regression":
        named = f"class_names={checks.shown(names)}, and labels that are text, are for classes"
        raise ArgumentError(f"task='regression': wants numbers; {named}")
    if not all(isinstance(name, str) for name in names):
        raise GraphError(f"class_names={checks.shown(names)}: must be strings")
    if len(names) != num_classes:
        raise GraphError(f"class_names has length {len(names)}: must be {num_classes}, one per class")


def feature_names(names: tuple[Any, ...], num_features: int) -> None:
    """One string per column of the features, each once."""
    if not all(isinstance(name, str) for name in names):
        raise GraphError(f"feature_names={checks.shown(names)}: must be strings")
    if len(names) != num_features:
        raise GraphError(f"feature_names has length {len(names)}: must be {num_features}, one per feature")
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise GraphError(f"feature_names: {checks.shown(twice)} is there twice; each must be another")


def trainable(train_mask: Tensor, y: Tensor, task: Task) -> None:
    """At least one labelled node to learn from."""
    if not bool(train_mask.any()):
        nodes = train_mask.numel()
        if bool(unlabelled(y, task).all()):
            raise GraphError(
                f"the graph has no labels: y has none for {nodes} nodes, and training needs some; "
                "predicting works without"
            )
        raise GraphError(
            f"train_mask has no labelled node among {nodes}: training needs one or more; where y has labels, "
            "lmc.Graph.from_pyg(RandomNodeSplit(num_val=0.2, num_test=0.2)(graph.to_pyg())) makes a split, "
            "with torch_geometric.transforms.RandomNodeSplit"
        )
