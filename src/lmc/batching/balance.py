"""Groups of clusters that are alike: each has nearly the graph's mix of what is learned from.

A group's estimate is off by how far the sum over its clusters is from its share of the sum over all. What is
summed up is described by a few numbers per cluster, such as how many training nodes of each class it has.
From a random start, clusters change places between groups while the squared deviations fall.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import hashed_random, kernels
from lmc.data.graph import Graph

Balance = Literal["labels", "gradients", "none"]

SWEEPS, TRIES = 6, 32
"""How often every cluster is offered a change, and with how many others at a time."""
WORK = 1 << 23
"""Numbers that are read at most: ten milliseconds or so, also where there are very many clusters."""
HELD = 2
"""One in so many groups has clusters that stay together where chance has put them."""
HELD_PART = 8
"""A pair of them for so many clusters of such a group, and one at least."""
QUANTILES = 8
"""Into which the targets of a regression are counted."""


def label_counts(graph: Graph, clusters: Tensor, count: int) -> NDArray[np.float64]:
    """(clusters, any) what the training nodes of each cluster have for labels.

    Counts of each class that occurs, or of each label and of the nodes; for a regression counts of each
    eighth of the values, column by column, and their sums in units of the counts.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 1, 1], train_mask=[True] * 3)
    >>> label_counts(path, torch.tensor([0, 0, 1]), 2).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    nodes = graph.train_mask.nonzero()[:, 0]
    y, of_node = graph.y[nodes], clusters[nodes].long()
    if graph.task == "multiclass":  # without a row for every node, and a column for classes that none has
        found, y = torch.unique(y, return_inverse=True)
        counts = torch.bincount(of_node * len(found) + y, minlength=count * len(found))
        return counts.reshape(count, len(found)).double().numpy()
    if graph.task == "multilabel":
        described = torch.cat([y, torch.ones(len(y), 1)], dim=1)
    else:
        described = _counted_targets(y.reshape(len(y), -1))
    sums = torch.zeros(count, described.shape[1], dtype=torch.float64)
    return sums.index_add_(0, of_node, described.double()).numpy()


def _counted_targets(y: Tensor) -> Tensor:
    """(nodes, any) in which eighth each target is, and how far it is from the mean."""
    y = y.double()
    bounds = torch.from_numpy(np.quantile(y.numpy(), np.arange(1, QUANTILES) / QUANTILES, axis=0))
    eighth = (y[None] > bounds[:, None]).sum(0)  # (nodes, columns)
    away = (y - y.mean(0)) / y.std(0, correction=0).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.cat([torch.nn.functional.one_hot(eighth, QUANTILES).flatten(1), away], dim=1)


def together(*described: NDArray[np.float64]) -> NDArray[np.float64]:
    """(clusters, any) several descriptions side by side, each of the same total variance.

    >>> together(np.array([[3.0], [1.0]]), np.array([[0.0], [8.0]])).round(2).tolist()
    [[0.71, -0.71], [-0.71, 0.71]]
    """
    centred = [each - each.mean(0) for each in described]
    return np.hstack([each / max(np.linalg.norm(each), np.finfo(np.float64).tiny) for each in centred])


def balanced(
    order: NDArray[np.int64], size: int, described: NDArray[np.float64], *address: int
) -> NDArray[np.int64]:
    """The clusters in another order, whose groups of `size` consecutive ones are alike.

    A last group of fewer stays as it is: who is in it must be left to chance. So must some pairs be: clusters
    with much of the same would never meet otherwise.

    Args:
        order: (clusters,) a random order.
        size: of a group.
        described: (clusters, any) what is to be alike.
        address: of the random partners that are tried.

    >>> balanced(np.arange(6), 3, np.array([[1.0], [1.0], [1.0], [0.0], [0.0], [0.0]]), 0).tolist()
    [5, 1, 2, 3, 4, 0]
    """
    whole = len(order) // size * size
    if size == 1 or whole <= size:
        return order
    tries = min(TRIES, whole - 1, max(1, WORK // (SWEEPS * described.size)))
    steps = 1 + hashed_random.below(whole - 1, *address, np.arange(SWEEPS * tries)).reshape(SWEEPS, tries)
    held = hashed_random.below(HELD, *address, SWEEPS * TRIES + np.arange(whole // size)) == 0
    column = _held_together(order[:whole].reshape(-1, size)[held], described)
    order = order.copy()
    kernels.kernels_for().swap_between_groups(order[:whole], size, np.hstack([described, column]), steps)
    return order


def _held_together(groups: NDArray[np.int64], described: NDArray[np.float64]) -> NDArray[np.float64]:
    """(clusters, 1) a further description, by which the first pairs of these groups have to stay.

    The two of a pair have opposite values, so that all groups have a sum of zero; every pair has other ones,
    and they are so large that nothing makes up for a sum that is not zero. They are whole: sums are exact.
    """
    column = np.zeros((len(described), 1))
    pairs = groups[:, : 2 * max(1, groups.shape[1] // HELD_PART)].reshape(-1, 2)
    values = np.ceil(3 * (1 + np.abs(described).sum())) * np.arange(1, len(pairs) + 1)
    column[pairs[:, 0], 0], column[pairs[:, 1], 0] = values, -values
    return column
