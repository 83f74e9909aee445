"""Losses: one number per node, by the labels' kind."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from lmc.data.rules import Task

Loss = Callable[[Tensor, Tensor], Tensor]
"""(rows, out) predictions and (rows, ...) labels to (rows,) losses."""


def cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """(rows,) of logits (rows, classes) and classes (rows,).

    >>> import torch
    >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()
    [1.3862943649291992, 1.3862943649291992]
    """
    return functional.cross_entropy(prediction, y, reduction="none")


def binary_cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """(rows,) means over the labels, of logits (rows, labels) and zeros and ones (rows, labels)."""
    each = functional.binary_cross_entropy_with_logits(prediction, y.to(prediction), reduction="none")
    return each.mean(dim=1)


def mean_squared_error(prediction: Tensor, y: Tensor) -> Tensor:
    """(rows,) means over the targets, of predictions (rows, targets) and targets of as many entries."""
    return (prediction - y.to(prediction).reshape(prediction.shape)).square().mean(dim=1)


def loss_of(task: Task) -> Loss:
    """The loss for a kind of labels.

    >>> loss_of("multilabel").__name__
    'binary_cross_entropy'
    """
    losses: dict[Task, Loss] = {
        "multiclass": cross_entropy,
        "multilabel": binary_cross_entropy,
        "regression": mean_squared_error,
    }
    return losses[task]
