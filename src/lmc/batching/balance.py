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
WORK = 1 << 22
"""Numbers that are read at most: some milliseconds, also where there are very many clusters."""
QUANTILES = 8
"""Into which the targets of a regression are counted."""


def label_counts(graph: Graph, clusters: Tensor, count: int) -> NDArray[np.float64]:
    """(clusters, any) what the training nodes of each cluster have for labels.

    Counts of each class, or of each label and of the nodes; for a regression counts of each eighth of the
    values, column by column, and their sums in units of the counts.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], y=[0, 1, 1], train_mask=[True] * 3)
    >>> label_counts(path, torch.tensor([0, 0, 1]), 2).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    nodes = graph.train_mask.nonzero()[:, 0]
    y, of_node = graph.y[nodes], clusters[nodes]
    if graph.task == "multiclass":
        described = torch.nn.functional.one_hot(y, graph.num_classes)
    elif graph.task == "multilabel":
        described = torch.cat([y, torch.ones(len(y), 1)], dim=1)
    else:
        described = _counted_targets(y.reshape(len(y), -1))
    sums = torch.zeros(count, described.shape[1], dtype=torch.float64)
    return sums.index_add_(0, of_node, described.double()).numpy()


def _counted_targets(y: Tensor) -> Tensor:
    """(nodes, any) in which eighth each target is, and how far it is from the mean."""
    y = y.double()
    bounds = y.quantile(torch.linspace(0, 1, QUANTILES + 1, dtype=torch.float64)[1:-1], dim=0)
    eighth = (y[None] > bounds[:, None]).sum(0)  # (nodes, columns)
    away = (y - y.mean(0)) / y.std(0, correction=0).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.cat([torch.nn.functional.one_hot(eighth, QUANTILES).flatten(1), away], dim=1)


def balanced(
    order: NDArray[np.int64], size: int, described: NDArray[np.float64], *address: int
) -> NDArray[np.int64]:
    """The clusters in another order, whose groups of `size` consecutive ones are alike.

    A last group of fewer stays as it is: who is in it must be left to chance.

    Args:
        order: (clusters,) a random order.
        size: of a group.
        described: (clusters, any) what is to be alike.
        address: of the random partners that are tried.

    >>> balanced(np.array([0, 1, 2, 3]), 2, np.array([[1.0], [1.0], [0.0], [0.0]]), 0).tolist()
    [2, 1, 0, 3]
    """
    whole = len(order) // size * size
    if size == 1 or whole == size:
        return order
    tries = min(TRIES, whole - 1, max(1, WORK // (SWEEPS * described.size)))
    steps = 1 + hashed_random.below(whole - 1, *address, np.arange(SWEEPS * tries)).reshape(SWEEPS, tries)
    order = order.copy()
    kernels.kernels_for().swap_between_groups(order[:whole], size, described, steps)
    return order
