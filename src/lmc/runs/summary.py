"""`summary.json`: what came out of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from lmc import checks, typed
from lmc.runs.text_files import content_of, in_file, json_of
from lmc.training.loop import Training
from lmc.training.records import Record, Result
from lmc.training.sharding import predicted_by

MOST_CONFUSED = 200
"""The most classes for which confusions are kept: their number grows with the square."""


@dataclass(frozen=True)
class GraphSize:
    """How much there was to train on; `edges` are entries of the adjacency."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class Confusion:
    """How many nodes of each class (row) were taken for which class (column), in one split."""

    split: str
    counts: list[list[int]]


@dataclass(frozen=True)
class Summary:
    """What came out of a run.

    Attributes:
        metric: the name of what was measured.
        higher_is_better: whether the best of it is the highest.
        task: the kind of labels.
        best: the epoch by which the run is judged.
        epochs: how many were trained.
        seconds: of training, all epochs together.
        wall_seconds: on the clock, with loading, evaluation and saving; None in files of older versions.
        stopped: why it ended.
        graph: its size.
        parameters: how many numbers were learnt.
        confusion: between classes, where there are classes and not too many.
        batches: how the graph was cut into batches, and why, in words; None where it was not.
    """

    metric: str
    higher_is_better: bool
    task: str
    best: Record | None
    epochs: int
    seconds: float
    stopped: str
    graph: GraphSize
    parameters: int
    confusion: Confusion | None
    wall_seconds: float | None = None
    batches: str | None = None


def summary_of(training: Training, result: Result) -> Summary:
    """Of a run that has ended; processes that share it call this together."""
    graph = training.graph
    return Summary(
        metric=result.metric.name,
        higher_is_better=result.metric.higher_is_better,
        task=graph.task,
        best=result.best,
        epochs=len(result.history),
        seconds=result.seconds,
        stopped=result.stopped,
        graph=GraphSize(graph.num_nodes, graph.adjacency.num_entries, graph.num_features, graph.num_classes),
        parameters=sum(parameter.numel() for parameter in result.model.parameters()),
        confusion=_confusion(training, result),
        wall_seconds=result.wall_seconds,
        batches=result.batches,
    )


def read_summary(file: Path) -> Summary:
    """What a run wrote at its end; RunError where it could not have written it."""
    failing = in_file(str(file))
    summary: Summary = typed.read("", json_of(str(file), content_of(file)), Summary, failing)
    if summary.confusion is not None:
        _check_counts(summary.confusion.counts, failing)
    return summary


def _confusion(training: Training, result: Result) -> Confusion | None:
    """Of the test nodes, or of validation or training nodes where there are none."""
    graph = training.graph
    if graph.task != "multiclass" or not result.history or graph.num_classes > MOST_CONFUSED:
        return None
    split, mask = next(
        (split, mask)
        for split, mask in (("test", graph.test_mask), ("val", graph.val_mask), ("train", graph.train_mask))
        if bool(mask.any())
    )
    prediction = predicted_by(training.processes, graph, result.model, training.sampler)
    predicted = prediction[mask].argmax(dim=1)
    classes = max(graph.num_classes, int(predicted.max()) + 1)
    pairs = torch.bincount(graph.y[mask] * classes + predicted, minlength=classes**2)
    return Confusion(split, pairs.reshape(classes, classes).tolist())


def _check_counts(counts: list[list[int]], failing: checks.Failing) -> None:
    for true, row in enumerate(counts):
        name = f"confusion.counts[{true}]"
        if len(row) != len(counts):
            raise failing(f"{name}={checks.shown(row)}: must hold {len(counts)} counts")
        for predicted, count in enumerate(row):
            checks.whole_number(f"{name}[{predicted}]", count, 0, failing=failing)
