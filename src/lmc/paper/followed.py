"""A training that is followed: at some of its steps, the estimate beside the full gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmc.batching.prefetch import prefetch
from lmc.batching.samplers import BatchOptions, ever_outside
from lmc.data.graph import Graph
from lmc.estimators.estimator import Estimator
from lmc.estimators.full_batch import FullBatch
from lmc.nn.model import Model
from lmc.nn.module_context import untouched_statistics

GAP = 7
"""From a step that is looked at to the next: no divisor of SPIDER's q, nor a multiple, so that steps soon
after a large batch and long after it are looked at alike."""


class Point(NamedTuple):
    """What is known of a step k.

    Attributes:
        visited: nodes of all batches before, each as often as it was in one.
        norm: ||∇L(W_k)||.
        error: ||g_k - ∇L(W_k)||.
    """

    visited: int
    norm: float
    error: float


def followed(
    graph: Graph,
    model: Model,
    estimator: Estimator,
    batches: BatchOptions,
    optimizer: torch.optim.Optimizer,
    epochs: int,
) -> Iterator[Point]:
    """Train, and look at a step now and then; a training ends with its epochs, or when nobody asks for more.

    The full gradient is that of `FullBatch`. Where a model drops values, its masks are others than those of
    the step, since no step may gain by their being the same; where it has a batch norm, the statistics are
    those of all nodes.
    """
    sampler = estimator.make_sampler(graph, batches)
    estimator.bind(model, graph, seed=batches.seed, outside=ever_outside(sampler))
    truth = FullBatch()
    truth.bind(model, graph, seed=batches.seed + 1)
    coming = prefetch(chain.from_iterable(map(sampler.epoch, range(epochs))), estimator.prepare)
    visited = 0
    model.train()
    for step, batch in enumerate(coming):
        optimizer.zero_grad()
        _, estimate = estimator.estimate(batch)
        if step % GAP == 0:
            with untouched_statistics(model):
                _, full = truth.estimate(truth.whole)
            yield Point(visited, _distance(full, {}), _distance(estimate, full))
        for parameter, gradient in estimate.items():
            parameter.grad = gradient
        optimizer.step()
        visited += batch.num_nodes


def _distance(one: Mapping[nn.Parameter, Tensor], other: Mapping[nn.Parameter, Tensor]) -> float:
    """||one - other||; what is not in the other is zero."""
    differences = (value - other[p] if p in other else value for p, value in one.items())
    return math.sqrt(sum(float(each.double().square().sum()) for each in differences))
