"""Beyond the paper: what a batch costs by how its clusters are chosen, and by what is outside of it."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from lmc.batching.choice import LEAST_CLUSTER
from lmc.data.graph import Graph
from lmc.estimators.gradient_error import GradientErrors, gradient_error
from lmc.paper.figures import epoch_chart
from lmc.paper.outcome import Outcome, ResultTable, Value
from lmc.paper.setup import SMALL_BATCH, Scale, Tree, about_data, trained, with_progress
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.records import Record

BATCHES = ((80, 1), (80, 5), (80, 40), (1280, 80))
"""Clusters of the graph and of a batch."""
MARKS = (1, 3, 8, 16)
"""Epochs after which errors are measured."""
MOST_BATCHES = 16
"""Over which they are averaged, of the epoch to come."""

MODEL = {"name": "gcn", "hidden": 64, "layers": 3, "dropout": 0.0, "norm": "none"}
FOUND, GAS = {"name": "lmc"}, {"name": "gas"}
COMPARED: dict[str, tuple[dict[str, Any], str]] = {
    "LMC, random groups": (FOUND, "none"),
    "LMC, labels": (FOUND, "labels"),
    "LMC, gradients": (FOUND, "gradients"),
    "LMC, alpha 0.4, labels": (SMALL_BATCH, "labels"),
    "LMC, alpha 0, labels": ({"name": "lmc", "alpha": 0.0}, "labels"),
    "GAS, labels": (GAS, "labels"),
}


class Mark(NamedTuple):
    """Errors after an epoch."""

    epoch: int
    errors: GradientErrors


class ErrorsAtMarks(Callback):
    """Measures the error after some epochs, on batches of the next."""

    def __init__(self, marks: tuple[int, ...]) -> None:
        self._marks, self.found = marks, list[Mark]()

    def on_epoch(self, training: Training, record: Record) -> None:
        """With whatever histories the estimator has now."""
        if record.epoch in self._marks:
            ahead = islice(training.sampler.epoch(record.epoch), MOST_BATCHES)
            errors = gradient_error(training.graph, training.model, training.estimator, ahead)
            self.found.append(Mark(record.epoch, errors))


def variance(scale: Scale) -> Outcome:
    """Bias, spread and error of estimates along trainings, by groups of clusters and by method."""
    graphs, epochs = scale.graphs("arxiv"), scale.epochs_of(max(MARKS))
    marks = tuple(mark for mark in MARKS if mark <= epochs)
    outcome = Outcome({"epochs": epochs, "model": MODEL, "lr": 5e-3}, about_data(graphs))
    outcome.differences.append("The paper has no such table; the model has no norm and no dropout.")
    outcome.differences.append(
        f"Each row is a training of its own; errors are means over {MOST_BATCHES} batches of the next epoch."
    )
    for name, graph in graphs.items():
        for parts, per_batch in BATCHES:
            is_asked_for = not scale.clusters or per_batch in scale.clusters
            if is_asked_for and parts * LEAST_CLUSTER <= graph.num_nodes:
                _measure(outcome, graph, name, parts, per_batch, epochs, marks)
    return outcome


def _measure(
    outcome: Outcome,
    graph: Graph,
    name: str,
    parts: int,
    per_batch: int,
    epochs: int,
    marks: tuple[int, ...],
) -> None:
    """One kind of batches: a table, a figure and a sentence."""
    title = f"{name}, {per_batch} of {parts} clusters"
    rows: list[list[Value]] = []
    biases: dict[str, list[float]] = {}
    spreads: dict[str, float] = {}
    for method, (settings, balance) in with_progress(COMPARED.items(), f"variance on {title}"):
        tree: Tree = {"data": {"name": name}, "model": MODEL, "method": settings, "training": {"lr": 5e-3}}
        measured = ErrorsAtMarks(marks)
        batches = {"parts": parts, "parts_per_batch": per_batch, "balance": balance}
        trained(graph, tree, 0, [measured], epochs=epochs, evaluate_every=epochs, **batches)
        found = [mark.errors for mark in measured.found]
        biases[method] = [errors.bias["total"] for errors in found]
        spreads[method] = sum(errors.variance["total"] for errors in found) / len(found)
        spread = [errors.variance["total"] for errors in found]
        rows.append([method, *biases[method], *spread, found[-1]["total"]])
    at = [f"after {mark}" for mark in marks]
    heads = [
        "method",
        *(f"bias {when}" for when in at),
        *(f"spread {when}" for when in at),
        "error at the end",
    ]
    outcome.tables.append(ResultTable(title, heads, rows, digits=3))
    outcome.figures[f"{name}-{parts}-{per_batch}"] = [epoch_chart(biases, "bias", epochs=marks)]
    random = spreads["LMC, random groups"]
    ratios = ", ".join(
        f"{method.removeprefix('LMC, ')} {spreads[method] / random:.2f}"
        for method in ("LMC, labels", "LMC, gradients")
    )
    outcome.findings.append(f"{title}: mean spread over that of random groups: {ratios}.")
    order = sorted(biases, key=lambda method: biases[method][-1])
    ranking = ", ".join(f"{method} {biases[method][-1]:.3f}" for method in order)
    outcome.findings.append(f"{title}: bias at the end, lowest first: {ranking}.")
