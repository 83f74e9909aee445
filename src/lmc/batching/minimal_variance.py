"""Nodes drawn with unequal chances: those that leave the least variance, and draws that keep to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lmc import hashed_random

UNIFORM_SHARE = 0.1
"""How much of the importance all nodes have alike: a weight is at most that of uniform draws over this."""
_ORDER, _START = 0, 1

Numbers = NDArray[np.float64]


def importance_of(norms: Numbers) -> Numbers:
    """(nodes,) of mean one: the gradients' norms, mixed with what all have alike; what is not finite is zero.

    >>> importance_of(np.array([0.0, 4.0])).round(6).tolist()
    [0.1, 1.9]
    """
    norms = np.where(np.isfinite(norms), norms, 0.0).clip(min=0.0)
    if not norms.any():
        return np.ones_like(norms)
    norms = norms / norms.max()  # whose sum is finite
    found: Numbers = UNIFORM_SHARE + (1 - UNIFORM_SHARE) * norms / norms.mean()
    return found


def minimal_variance_chances(importance: Numbers, size: int) -> Numbers:
    """(nodes,) π = min(1, importance / μ) with Σπ = size: the least Σ importance² / π.

    Args:
        importance: (nodes,) positive numbers.
        size: how many are drawn; all, where there are no more.

    >>> minimal_variance_chances(np.array([1.0, 1.0, 2.0, 9.0]), 2).tolist()
    [0.25, 0.25, 0.5, 1.0]
    """
    if size >= len(importance):
        return np.ones_like(importance)
    ordered = np.sort(importance)
    largest, of_the_rest = ordered[::-1][:size], np.cumsum(ordered)[::-1][:size]
    # With the m largest certain, μ is the sum of the rest over size - m; all above it have to be certain.
    mu = of_the_rest / np.arange(size, 0, -1)
    certain = int(np.argmax(largest <= mu))
    found: Numbers = np.minimum(1.0, importance / mu[certain])
    return found


def systematic_draw(chances: Numbers, *address: int) -> NDArray[np.int64]:
    """(drawn,) places, in order: each with its chance, and as many as all chances add up to.

    They stand one after the other, in a random order, each as long as its chance; marks at distances of one,
    the first at random, choose those that they fall on.

    >>> [len(systematic_draw(np.array([0.25, 0.25, 0.5, 1.0]), 0, step)) for step in range(4)]
    [2, 2, 2, 2]
    """
    order = hashed_random.permutation(len(chances), *address, _ORDER)
    uncertain = order[chances[order] < 1]
    ends = np.cumsum(chances[uncertain])
    ends[-1:] = np.rint(ends[-1:])  # which rounding has missed
    marks = np.floor(ends - hashed_random.uniform(*address, _START))
    drawn = uncertain[np.diff(marks, prepend=-1.0) > 0]
    return np.sort(np.concatenate([np.flatnonzero(chances >= 1), drawn]))
