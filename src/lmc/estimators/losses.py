"""Losses: one number per node, by the labels' kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from torch import Tensor
from torch.nn import functional

from lmc import checks
from lmc.data.rules import Task
from lmc.errors import ArgumentError
from lmc.files import raised_text

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


def own_loss(loss: Loss) -> Loss:
    """A user's own loss; what it raises, and what is not one number per row, is one line that names it."""
    name = getattr(loss, "__name__", type(loss).__name__)

    @wraps(loss)
    def checked(prediction: Tensor, y: Tensor) -> Tensor:
        try:
            found = cast(Any, loss(prediction, y))
        except Exception as error:  # it may raise anything
            raise ArgumentError(f"loss={name}: raised {raised_text(error)}") from error
        rule = "must be one number per row"
        if not isinstance(found, Tensor):
            raise ArgumentError(f"loss={name}: gives {checks.shown(found)}; {rule}, in a tensor")
        if found.shape != (len(prediction),):
            hint = "; torch's own losses do so with reduction='none'" if found.ndim == 0 else ""
            shapes = f"shape {tuple(found.shape)} for {len(prediction)} rows"
            raise ArgumentError(f"loss={name}: gives {shapes}; {rule}{hint}")
        if prediction.requires_grad and not found.requires_grad:
            why = "has no derivative: it must be computed by torch from the predictions, without detach()"
            raise ArgumentError(f"loss={name}: what it gives {why}")
        return found

    return checked
