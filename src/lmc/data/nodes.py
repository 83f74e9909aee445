"""What a graph knows of its nodes, as given and as checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks
from lmc.data import rules, splits
from lmc.data.ids import original_ids
from lmc.errors import GraphError


def classes_of_text(labels: Sequence[str | None]) -> tuple[NDArray[np.int64], list[str]]:
    """(nodes,) classes, -1 where there is none; and their names, in alphabetical order.

    >>> classes_of_text(["cat", None, "ant"])
    (array([ 1, -1,  0]), ['ant', 'cat'])
    """
    names = sorted({label for label in labels if label is not None})
    number: dict[str | None, int] = {name: place for place, name in enumerate(names)}
    return np.array([number.get(label, -1) for label in labels], dtype=np.int64), names


def columns_of(names: Sequence[str], feature_names: Sequence[str]) -> list[int]:
    """Where these features are; GraphError where one is not there."""
    known = {name: column for column, name in enumerate(feature_names)}
    missing = [name for name in names if name not in known]
    if missing:
        raise GraphError(f"has no feature {checks.shown(missing[0])}")
    return [known[name] for name in names]


class Nodes(NamedTuple):
    """The arrays of `Graph` that have a row per node, and what they say."""

    x: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    task: rules.Task
    num_classes: int
    id: NDArray[Any] | None
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None


class GivenNodes:
    """The same as it is given, see the arguments of `Graph`: first counted, then checked.

    >>> GivenNodes(x=None, y=[0, 1, 1], masks=[None, None, None]).count
    3
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        masks: Sequence[Any],
        task: rules.Task | None = None,
        num_classes: int | None = None,
        split: int | None = None,
        id: Any = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self._x = None if x is None else rules.dense("x", x)
        self._y = None if y is None else rules.tensor("y", y)
        self._id = None if id is None else original_ids(id)
        self._masks, self._task, self._num_classes, self._split = masks, task, num_classes, split
        self._class_names = None if class_names is None else tuple(class_names)
        self._feature_names = None if feature_names is None else tuple(feature_names)
        self.count = rules.count_nodes(self._x, self._y, self._id)

    def checked(self, num_nodes: int) -> Nodes:
        """For so many nodes; GraphError where a rule is broken."""
        x = rules.features(torch.empty(num_nodes, 0) if self._x is None else self._x, num_nodes)
        given = {
            name: torch.zeros(num_nodes, dtype=torch.bool) if mask is None else rules.tensor(name, mask)
            for name, mask in zip(splits.MASKS, self._masks, strict=True)
        }
        given = splits.chosen(given, self._split)
        rules.masks(given, num_nodes)
        in_a_mask = torch.stack(list(given.values())).any(dim=0)
        y, task, num_classes = rules.labels(self._y, in_a_mask, self._task, self._num_classes)
        labelled = ~rules.unlabelled(y, task)
        train, val, test = (mask & labelled for mask in given.values())
        if self._id is not None and len(self._id) != num_nodes:
            raise GraphError(f"id has shape {self._id.shape}: must be ({num_nodes},), one per node")
        if self._class_names is not None:
            rules.class_names(self._class_names, task, num_classes)
        if self._feature_names is not None:
            rules.feature_names(self._feature_names, x.shape[1])
        names = self._id, self._class_names, self._feature_names
        return Nodes(x, y, train, val, test, task, num_classes, *names)
