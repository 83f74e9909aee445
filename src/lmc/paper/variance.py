"""Beyond the paper: what a batch costs by how its clusters are chosen, and by what is outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

import torch

from lmc.batching.balance import Balance
from lmc.batching.choice import LEAST_CLUSTER
from lmc.batching.partition import partition
from lmc.batching.samplers import ClusterSampler
from lmc.data.graph import Graph
from lmc.estimators.estimator import Estimator
from lmc.estimators.gas import GAS
from lmc.estimators.gradient_error import GradientErrors, gradient_error
from lmc.estimators.lmc import LMC
from lmc.nn.gcn import GCN
from lmc.paper.figures import epoch_chart
from lmc.paper.outcome import Outcome, ResultTable, Value
from lmc.paper.setup import Scale, about_data, with_progress

BATCHES = ((80, 1), (80, 5), (80, 40), (1280, 80))
"""Clusters of the graph and of a batch."""
MARKS = (1, 3, 8, 16)
"""Epochs after which errors are measured."""
MOST_BATCHES = 16
"""Over which they are averaged, of the epoch to come."""
HIDDEN, LAYERS, LR = 64, 3, 5e-3
GROUPS: dict[str, Balance] = {"random": "none", "labels": "labels", "gradients": "gradients"}
DEFAULT = "LMC, β found"


class Measured(NamedTuple):
    """Errors at one point of a training.

    Attributes:
        by_method: of every method, on batches of the kind that is trained on.
        by_groups: of the method that trains, on batches whose clusters are chosen in other ways.
    """

    by_method: dict[str, GradientErrors]
    by_groups: dict[str, GradientErrors]


def methods() -> dict[str, Estimator]:
    """The default and others, the last three with a fixed β."""
    return {
        DEFAULT: LMC(),
        "GAS": GAS(),
        "LMC, alpha 0": LMC(alpha=0.0),
        "LMC, alpha 0.4, 2x-x^2": LMC(alpha=0.4),
        "LMC, alpha 1, x^2 and 2x^2": LMC(alpha=1.0, score="x^2", backward_score="2x^2"),
    }


def variance(scale: Scale) -> Outcome:
    """Bias of methods, and spread of groups of clusters, along one training for each kind of batches."""
    graphs, epochs = scale.graphs("arxiv"), scale.epochs_of(max(MARKS))
    marks = tuple(mark for mark in MARKS if mark <= epochs)
    model = {"name": "gcn", "hidden": HIDDEN, "layers": LAYERS, "norm": None, "dropout": 0.0}
    outcome = Outcome({"epochs": epochs, "model": model, "lr": LR, "seed": 0}, about_data(graphs))
    outcome.differences += [
        "The paper has no such table; the model has no norm and no dropout.",
        "All rows are measured at the same points of one training, by the default method on batches that are"
        " alike by labels; the others follow it with histories of their own. Errors are relative to the"
        f" gradient at that point, and means over {MOST_BATCHES} batches of the next epoch.",
    ]
    for name, graph in graphs.items():
        for parts, per_batch in BATCHES:
            is_asked_for = not scale.clusters or per_batch in scale.clusters
            if is_asked_for and parts * LEAST_CLUSTER <= graph.num_nodes:
                found = errors_along(graph, parts, per_batch, marks, methods(), GROUPS)
                _add(
                    outcome, f"{name}, {per_batch} of {parts} clusters", f"{name}-{parts}-{per_batch}", found
                )
    return outcome


def errors_along(
    graph: Graph,
    parts: int,
    per_batch: int,
    marks: tuple[int, ...],
    estimators: Mapping[str, Estimator],
    groups: Mapping[str, Balance],
) -> dict[int, Measured]:
    """What is measured after some epochs of one training, on batches that are alike by labels.

    Args:
        graph: where.
        parts: clusters of the graph.
        per_batch: clusters of a batch.
        marks: the epochs.
        estimators: the first of them trains; the others follow it with histories of their own.
        groups: other ways to choose clusters.
    """
    clusters = partition(graph, parts)
    alike = ClusterSampler(graph, clusters, per_batch, balance="labels")
    samplers = {
        name: ClusterSampler(graph, clusters, per_batch, balance=balance) for name, balance in groups.items()
    }
    torch.manual_seed(0)
    model = GCN(graph.num_features, HIDDEN, graph.num_classes, layers=LAYERS, norm=None, dropout=0.0)
    for estimator in estimators.values():
        estimator.bind(model, graph, outside=alike.outside)
    trains, *follow = estimators.values()
    described = [seen for sampler in samplers.values() if (seen := sampler.descriptors) is not None]
    for seen in described:
        trains.watch = seen.see
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    found: dict[int, Measured] = {}
    for epoch in with_progress(range(max(marks)), f"errors, {per_batch} of {parts} clusters"):
        for batch in alike.epoch(epoch):
            optimizer.zero_grad()
            trains.backward(batch)
            for estimator in follow:
                estimator.estimate(batch)  # for its histories
            optimizer.step()
        for seen in described:
            seen.end_epoch(epoch)
        if epoch + 1 in marks:

            def measured(estimator: Estimator, sampler: ClusterSampler, after: int = epoch) -> GradientErrors:
                ahead = islice(sampler.epoch(after + 1), MOST_BATCHES)
                return gradient_error(graph, model, estimator, ahead)

            found[epoch + 1] = Measured(
                {name: measured(estimator, alike) for name, estimator in estimators.items()},
                {name: measured(trains, sampler) for name, sampler in samplers.items()},
            )
    return found


def _add(outcome: Outcome, title: str, figure: str, found: Mapping[int, Measured]) -> None:
    """Two tables, a figure and two sentences of one training."""
    marks, last = list(found), found[max(found)]
    biases = {m: [found[mark].by_method[m].bias["total"] for mark in marks] for m in last.by_method}
    errors = {m: [found[mark].by_method[m]["total"] for mark in marks] for m in last.by_method}
    spreads = {g: [found[mark].by_groups[g].variance["total"] for mark in marks] for g in last.by_groups}
    heads = ["method", *(f"bias after {m}" for m in marks), *(f"error after {m}" for m in marks)]
    rows: list[list[Value]] = [[method, *biases[method], *errors[method]] for method in biases]
    outcome.tables.append(ResultTable(f"{title}: what is outside", heads, rows, digits=3))
    heads = ["groups", *(f"spread after {mark}" for mark in marks)]
    outcome.tables.append(
        ResultTable(f"{title}: what a batch costs", heads, [[g, *spreads[g]] for g in spreads], digits=3)
    )
    outcome.figures[figure] = [
        epoch_chart(biases, "bias", epochs=marks),
        epoch_chart(spreads, "spread of batches", epochs=marks),
    ]
    over = {
        g: [one / other for one, other in zip(spreads[g], spreads["random"], strict=True)] for g in spreads
    }
    ratios = ", ".join(f"{g} {_shown(over[g])}" for g in ("labels", "gradients"))
    outcome.findings.append(f"{title}: spread over that of random groups: {ratios}.")
    others = [min(biases[m][place] for m in biases if m != DEFAULT) for place in range(len(marks))]
    beside = [one / other for one, other in zip(biases[DEFAULT], others, strict=True)]
    outcome.findings.append(f"{title}: bias of the default over the best of the others: {_shown(beside)}.")


def _shown(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)
