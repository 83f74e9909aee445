"""Metrics: how good predictions are, by the labels' kind or by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from lmc import checks
from lmc.data.graph import Graph
from lmc.data.rules import Task
from lmc.data.stored import selected
from lmc.errors import ArgumentError
from lmc.estimators.losses import sets_all_against_all
from lmc.files import raised_text
from lmc.kernels.fixed_sums import total

MetricFunction = Callable[[Tensor, Tensor], float]
"""From (rows, out) predictions and (rows, ...) labels to a number."""

Metrics = str | list[str] | tuple[str, ...] | Mapping[str, MetricFunction]
"""Further metrics: names out of `METRICS`, or one of them, or functions by names of one's own."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")  # what every logger takes


class Metric(NamedTuple):
    """A number for (rows, out) predictions and (rows, ...) labels, and which end of it is better."""

    name: str
    of: MetricFunction
    higher_is_better: bool

    def better(self, one: float, other: float) -> bool:
        """Whether one value is better than another; what is not a number is never better.

        >>> metric_of("regression").better(0.5, 0.7)
        True
        """
        return one > other if self.higher_is_better else one < other


def accuracy(prediction: Tensor, y: Tensor) -> float:
    """The share of rows whose largest logit is that of their class.

    >>> import torch
    >>> accuracy(torch.tensor([[0.1, 0.2], [0.9, 0.3]]), torch.tensor([1, 1]))
    0.5
    """
    return float((prediction.argmax(dim=1) == y).double().mean())


def micro_f1(prediction: Tensor, y: Tensor) -> float:
    """F1 over all (row, label) pairs.

    Of several labels, those are predicted whose logits are positive; of classes, that of the largest logit.

    >>> import torch
    >>> micro_f1(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    0.8
    """
    predicted, true = _as_pairs(prediction, y)
    either = int(predicted.sum()) + int(true.sum())
    return 2 * int((predicted & true).sum()) / either if either else 1.0


def macro_f1(prediction: Tensor, y: Tensor) -> float:
    """The mean of every class's own F1; classes that are neither true nor predicted in any row are left out.

    >>> import torch
    >>> macro_f1(torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [2.0, 1.0, 0.0]]), torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    predicted, true = _as_pairs(prediction, y)
    either = predicted.sum(dim=0) + true.sum(dim=0)
    known = either > 0
    f1 = 2 * (predicted & true).sum(dim=0)[known].double() / either[known]
    return float(f1.mean()) if bool(known.any()) else 1.0


def roc_auc(prediction: Tensor, y: Tensor) -> float:
    """The area under the ROC curve, the mean over the classes of which some rows are and some are not.

    It is the share of pairs of such rows that a class's score has in the right order; equal ones count half.

    >>> import torch
    >>> roc_auc(torch.tensor([[0.1], [0.4], [0.35], [0.8]]), torch.tensor([[0.0], [0.0], [1.0], [1.0]]))
    0.75
    """
    _, true = _as_pairs(prediction, y)
    scores = prediction.double().softmax(dim=1) if y.dim() == 1 else prediction.double()
    areas = []
    for score, positive in zip(scores.T, true.T, strict=True):
        ones, zeros = int(positive.sum()), int((~positive).sum())
        if ones and zeros:
            _, place, count = torch.unique(score, return_inverse=True, return_counts=True)
            ranks = (count.cumsum(0) - (count - 1) / 2)[place]  # of equal scores, the mean of their ranks
            areas.append((float(ranks[positive].sum()) - ones * (ones + 1) / 2) / (ones * zeros))
    return sum(areas) / len(areas) if areas else float("nan")


def root_mean_squared_error(prediction: Tensor, y: Tensor) -> float:
    """Over all rows and targets.

    >>> import torch
    >>> root_mean_squared_error(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0])) ** 2
    2.0000000000000004
    """
    squares = (prediction.double() - y.double().reshape(prediction.shape)).square()
    return math.sqrt(float(total(squares) / squares.numel()))


def mean_absolute_error(prediction: Tensor, y: Tensor) -> float:
    """Over all rows and targets.

    >>> import torch
    >>> mean_absolute_error(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0]))
    1.0
    """
    lengths = (prediction.double() - y.double().reshape(prediction.shape)).abs()
    return float(total(lengths) / lengths.numel())


def _as_pairs(prediction: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, classes) which classes are predicted and which are true, for one class a row or several."""
    if y.dim() > 1:
        return prediction > 0, y > 0
    classes = torch.arange(prediction.shape[1])
    return prediction.argmax(dim=1, keepdim=True) == classes, y[:, None] == classes


class NamedMetric(NamedTuple):
    """A metric that is asked for by name, and the kinds of labels that it is for."""

    of: MetricFunction
    tasks: tuple[Task, ...]


METRICS: dict[str, NamedMetric] = {
    "accuracy": NamedMetric(accuracy, ("multiclass",)),
    "macro_f1": NamedMetric(macro_f1, ("multiclass", "multilabel")),
    "micro_f1": NamedMetric(micro_f1, ("multiclass", "multilabel")),
    "roc_auc": NamedMetric(roc_auc, ("multiclass", "multilabel")),
    "rmse": NamedMetric(root_mean_squared_error, ("regression",)),
    "mae": NamedMetric(mean_absolute_error, ("regression",)),
}


def checked_metrics(given: Any) -> Metrics:
    """Metrics by name, or functions by names of one's own; otherwise raises ArgumentError."""
    if isinstance(given, Mapping):
        for name, function in given.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                rule = "a name must be of letters, digits, '_', '-' and '.'"
                raise ArgumentError(f"metrics: {checks.shown(name)}: {rule}")
            if not callable(function):
                rule = "must be a function of predictions and labels"
                raise ArgumentError(f"metrics[{name!r}]={checks.shown(function)}: {rule}")
        return dict(given)
    names = [given] if callable(given) else checks.sequence("metrics", given)
    for each in names:
        if callable(each):
            raise ArgumentError(
                f"metrics={checks.shown(each)}: has no name; metrics={{'name': function}} does"
            )
    return [checks.one_of("metrics", name, METRICS) for name in names]


def metric_functions(given: Metrics, task: Task) -> dict[str, MetricFunction]:
    """Further metrics for a kind of labels, by name.

    >>> metric_functions(["mae"], "multiclass")
    Traceback (most recent call last):
    lmc.errors.ArgumentError: metrics='mae': is for regression, and the labels are multiclass
    """
    if isinstance(given, Mapping):
        if (own := metric_of(task).name) in given:
            rule = "the metric that chooses the best epoch is called so; give it another name"
            raise ArgumentError(f"metrics[{own!r}]: {rule}")
        return {name: _checked(name, function) for name, function in given.items()}
    names = checks.sequence("metrics", given)
    for name in names:
        tasks = METRICS[name].tasks
        if task not in tasks:
            raise ArgumentError(f"metrics={name!r}: is for {' and '.join(tasks)}, and the labels are {task}")
    return {name: METRICS[name].of for name in names}


def _checked(name: str, function: MetricFunction) -> MetricFunction:
    """The same function, whose value is a number."""

    def of(prediction: Tensor, y: Tensor) -> float:
        try:
            value = cast(Any, function(prediction, y))
        except Exception as error:  # it may raise anything
            raise ArgumentError(f"metrics[{name!r}]: raised {raised_text(error)}") from error
        if sets_all_against_all(prediction, y, value, lambda: function(prediction[:, 0], y)):
            shapes = f"predictions {tuple(prediction.shape)} and labels {tuple(y.shape)}"
            raise ArgumentError(f"metrics[{name!r}]: sets every prediction against every label, of {shapes}")
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            raise ArgumentError(f"metrics[{name!r}]: gave {checks.shown(value)}; must be a number") from None

    return of


def metric_of(task: Task) -> Metric:
    """The metric for a kind of labels.

    >>> metric_of("multiclass").name
    'accuracy'
    """
    metrics: dict[Task, Metric] = {
        "multiclass": Metric("accuracy", accuracy, True),
        "multilabel": Metric("micro-F1", micro_f1, True),
        "regression": Metric("RMSE", root_mean_squared_error, False),
    }
    return metrics[task]


def evaluate(graph: Graph, prediction: Tensor, of: MetricFunction | None = None) -> dict[str, float]:
    """A metric on each part of the split (`"train"`, `"val"`, `"test"`) that has nodes.

    Args:
        graph: whose labels and split are taken.
        prediction: (nodes, out).
        of: the metric; None takes that of the labels' kind.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> sorted(evaluate(graph, lmc.predict(graph, lmc.GCN(64, 8, 10))))
    ['test', 'train', 'val']
    """
    of = of or metric_of(graph.task).of
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    return {
        split: of(selected(graph.scratch, prediction, mask), graph.y[mask])
        for split, mask in masks.items()
        if bool(mask.any())
    }
