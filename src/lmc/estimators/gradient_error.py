"""How far estimates are from the gradient, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.device import on_host
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator, check_estimator
from lmc.estimators.halo import HaloPolicy
from lmc.nn.dropout import without_dropout
from lmc.nn.model import Model
from lmc.nn.module_context import untouched_statistics

Estimate = dict[nn.Parameter, Tensor]


@dataclass(frozen=True)
class GradientErrors(Mapping[str, float]):
    """Relative errors of estimates by part of the model (`"encoder"`, `"layers.0"`, ..., `"head"`).

    `"total"` is all parameters together. With e the estimate of a batch, g the exact one of the same batch
    (that of `BackwardSGD`; for methods that draw messages or losses, the gradient of the same losses on the
    whole graph), and f the full gradient, each over ||f||:

    - the mapping itself: the mean of ||e - f||;
    - `bias`: the mean of ||e - g||, what values and derivatives that are not exact cost. g is free of bias
      for every convolution (Theorem 1), so this bounds the distance of the mean estimate from f, over
      batches whose mean g is f, such as an epoch's. Of draws that differ from batch to batch, their spread
      is in it, too;
    - `variance`: Var(g)^½, the root of the mean of ||g - f||², what any batch of this kind costs.

    The error is at most their sum, as in Theorem 2. With a batch norm in training mode, batches also
    differ from the graph in their statistics; that difference is part of the variance.
    """

    error: dict[str, float]
    bias: dict[str, float]
    variance: dict[str, float]

    def __getitem__(self, part: str) -> float:
        return self.error[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self.error)

    def __len__(self) -> int:
        return len(self.error)


def gradient_error(
    graph: Graph, model: Model, estimator: Estimator, batches: Iterable[Batch]
) -> GradientErrors:
    """The relative error of an estimator at the parameters and histories as they are, dropout off.

    Neither the model nor the estimator is changed. What `bias` and `variance` mean is said in
    `GradientErrors`: both are means of distances over batches, so that `bias` bounds how far the mean
    estimate is from the gradient, and may be well above that.

    Args:
        graph: the graph.
        model: the model.
        estimator: bound to both.
        batches: over which errors are averaged; best all of an epoch, whose exact estimates have the full
            gradient as their mean.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=200)
    >>> model = lmc.GCN(graph.num_features, 8, graph.num_classes)
    >>> estimator = lmc.BackwardSGD()
    >>> estimator.bind(model, graph)
    >>> everything = [graph.batch(range(200))]
    >>> lmc.gradient_error(graph, model, estimator, everything)["total"] < 1e-5
    True
    """
    check_estimator(estimator)
    if getattr(estimator, "model", None) is not model or estimator.graph is not graph:
        raise ArgumentError(
            f"{type(estimator).__name__}: not bound to this model and graph: call bind(model, graph) first"
        )
    parts = _parts(model)
    batches = _listed(batches)
    distances: dict[str, list[tuple[float, float, float]]] = {name: [] for name in parts}
    with (
        untouched_statistics(model),
        without_dropout(model),
        estimator.placement.computing(),
        estimator.frozen(),
    ):
        _, full = estimator.estimate_with(estimator.whole, HaloPolicy())
        reference_of = estimator.references()
        for batch in batches:
            _, estimate = estimator.estimate(batch)
            reference = reference_of(batch)
            for name, of in parts.items():
                row = _distance(estimate, full, of), _distance(estimate, reference, of)
                distances[name].append((*row, _distance(reference, full, of)))

    def relative(name: str, which: int, power: int) -> float:
        mean = sum(row[which] ** power for row in distances[name]) / len(batches)
        norm = _distance(full, {}, parts[name])
        return mean ** (1 / power) / norm if norm else (math.inf if mean else 0.0)

    return GradientErrors(
        error={name: relative(name, 0, 1) for name in parts},
        bias={name: relative(name, 1, 1) for name in parts},
        variance={name: relative(name, 2, 2) for name in parts},
    )


def _listed(batches: Any) -> list[Batch]:
    """All of them, one or more; otherwise raises ArgumentError."""
    if not isinstance(batches, Iterable):
        rule = "must be a list of batches, or lmc.batches(...)"
        raise ArgumentError(f"batches: {type(batches).__name__} is not iterable; {rule}")
    listed = list(batches)
    if not listed:
        raise ArgumentError("batches: none is left to average over")
    return listed


def _parts(model: Model) -> dict[str, list[nn.Parameter]]:
    """Trained parameters by part of the model, and all of them."""
    parts: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            first, *rest = name.split(".")
            part = f"{first}.{rest[0]}" if first == "layers" else first
            parts.setdefault(part, []).append(parameter)
    return parts | {"total": [p for p in model.parameters() if p.requires_grad]}


def _distance(one: Estimate, other: Estimate, parameters: list[nn.Parameter]) -> float:
    """||one - other|| over some parameters; what is not there is zero."""
    squares = 0.0
    for p in parameters:
        difference = one.get(p, torch.zeros_like(p)) - other.get(p, torch.zeros_like(p))
        squares += float(on_host(difference).double().square().sum())
    return math.sqrt(squares)
