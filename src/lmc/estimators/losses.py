"""Losses: one number per node, by the labels' kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

import torch
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


def sets_all_against_all(prediction: Tensor, y: Tensor, found: Any, of_one_shape: Callable[[], Any]) -> bool:
    """Whether a function of a column of predictions has set each of them against the labels of all rows.

    Args:
        prediction: (rows, out).
        y: (rows, ...).
        found: what the function gives for them.
        of_one_shape: the same function of predictions and labels of one shape; it may raise anything.
    """
    if prediction.shape[1:] != (1,) or y.ndim != 1 or len(y) < 2:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of shapes that nobody but this function has made
            other = torch.as_tensor(of_one_shape()).detach().double()
    except Exception:  # it was made for the shapes as they are
        return False
    value = torch.as_tensor(found).detach().double()
    return other.shape == value.shape and not torch.allclose(other, value, rtol=1e-3, equal_nan=True)


def _how(found: torch.Size, y: torch.Size) -> str:
    """How the loss of a shape becomes one number per row, as far as the shape says so."""
    if not found:
        return "; torch's own losses do so with reduction='none'"
    if len(y) == 1 and found == (*y, *y):
        return ", as of lambda p, y: loss(p[:, 0], y)"
    return ", as of lambda p, y: loss(p, y).mean(1)" if len(found) == 2 and found[0] == y[0] else ""


def own_loss(loss: Loss) -> Loss:
    """A user's own loss; what it raises, and what is not one number per row, is one line that names it."""
    name = getattr(loss, "__name__", type(loss).__name__)
    is_checked = False

    @wraps(loss)
    def checked(prediction: Tensor, y: Tensor) -> Tensor:
        nonlocal is_checked
        try:
            found = cast(Any, loss(prediction, y))
        except Exception as error:  # it may raise anything
            raise ArgumentError(f"loss={name}: raised {raised_text(error)}") from error
        rule = "must be one number per row"
        given = f"predictions {tuple(prediction.shape)} and labels {tuple(y.shape)}"
        if not isinstance(found, Tensor):
            raise ArgumentError(f"loss={name}: gives {checks.shown(found)}; {rule}, in a tensor")
        if found.shape != (len(prediction),):
            gives = f"loss={name}: gives shape {tuple(found.shape)} for {given}"
            raise ArgumentError(f"{gives}; {rule}{_how(found.shape, y.shape)}")
        if not is_checked and sets_all_against_all(
            prediction, y, found, lambda: loss(prediction, y[:, None])
        ):
            raise ArgumentError(f"loss={name}: sets every prediction against every label, of {given}")
        is_checked = True
        if prediction.requires_grad and not found.requires_grad:
            why = "has no derivative: it must be computed by torch from the predictions, without detach()"
            raise ArgumentError(f"loss={name}: what it gives {why}")
        return found

    return checked
