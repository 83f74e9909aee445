"""Metrics: how good predictions are, by the labels' kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from lmc.data.graph import Graph
from lmc.data.rules import Task


class Metric(NamedTuple):
    """A number for (rows, out) predictions and (rows, ...) labels, and which end of it is better."""

    name: str
    of: Callable[[Tensor, Tensor], float]
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
    """F1 over all (row, label) pairs; a label is predicted where its logit is positive.

    >>> import torch
    >>> micro_f1(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    0.8
    """
    predicted, true = prediction > 0, y > 0
    either = int(predicted.sum()) + int(true.sum())
    return 2 * int((predicted & true).sum()) / either if either else 1.0


def root_mean_squared_error(prediction: Tensor, y: Tensor) -> float:
    """Over all rows and targets.

    >>> import torch
    >>> root_mean_squared_error(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0])) ** 2
    2.0000000000000004
    """
    return float((prediction.double() - y.double().reshape(prediction.shape)).square().mean().sqrt())


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


def evaluate(graph: Graph, prediction: Tensor) -> dict[str, float]:
    """The metric on each part of the split (`"train"`, `"val"`, `"test"`) that has nodes.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> sorted(evaluate(graph, lmc.predict(graph, lmc.GCN(64, 8, 10))))
    ['test', 'train', 'val']
    """
    metric = metric_of(graph.task)
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    return {
        split: metric.of(prediction[mask], graph.y[mask]) for split, mask in masks.items() if bool(mask.any())
    }
