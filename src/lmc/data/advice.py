"""Advice on labels that are valid, and may be meant to be something else."""

from __future__ import annotations

import warnings

from torch import Tensor, aminmax

MOST_GUESSED = 1000
"""Real numbers that are whole and smaller look like classes."""
LEAST_TOLD = 20
"""Labelled nodes, fewer of which say nothing of what their labels may be meant to be."""


def looks_like_classes(y: Tensor) -> bool:
    """Whether targets of a regression may be classes in the wrong type: one column of small whole numbers."""
    known = y[~y.isnan()]
    if known.numel() == 0 or (y.ndim == 2 and y.shape[1] > 1):
        return False
    small = float(known.min()) >= -1 and float(known.max()) < MOST_GUESSED
    return small and bool((known.frac() == 0).all())


def on_targets(y: Tensor) -> None:
    """Say so where targets of a regression look like classes in the wrong type."""
    if looks_like_classes(y):
        low, high = (float(end) for end in aminmax(y[~y.isnan()]))
        warnings.warn(
            f"y: whole numbers of type {y.dtype}, {low:g} to {high:g}, are taken as targets of a regression; "
            "task='multiclass', or integers, makes them classes; task='regression' keeps them",
            stacklevel=5,
        )


def on_several_labels(known: Tensor) -> None:
    """Say so where the labels of every node are a single one: classes, written as ones among zeros.

    Args:
        known: (labelled, classes).
    """
    if len(known) >= LEAST_TOLD and known.shape[1] > 1 and bool((known.sum(dim=1) == 1).all()):
        warnings.warn(
            "y: has a single 1 in every row, and is taken as several labels a node; "
            "y.argmax(1) makes them classes; task='multilabel' keeps them",
            stacklevel=5,
        )


def on_classes(known: Tensor) -> None:
    """Say so where classes seem to be counted from 1.

    Args:
        known: (labelled,).
    """
    if known.numel() >= LEAST_TOLD and int(known.min()) == 1:
        warnings.warn(
            "y: no node has class 0, and classes are counted from 0; y - 1 leaves it out, "
            f"num_classes={int(known.max()) + 1} keeps it",
            stacklevel=5,
        )


def on_scale(y: Tensor) -> None:
    """Say so where targets to learn from are far from what a model says when it begins."""
    for targets in y.reshape(len(y), -1).double().T:
        mean, deviation = (float(each) for each in (targets.mean(), targets.std(correction=0)))
        if abs(mean) > 3 * deviation > 0 or deviation > 10:
            warnings.warn(
                f"y: targets have mean {mean:.3g} and deviation {deviation:.3g}, and a model begins near 0: "
                "(y - mean) / deviation is learned faster",
                stacklevel=3,
            )
            return
