"""Section TOP-SPIDER: the bias of TOP, the rates of SPIDER, and what both do in practice."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import torch

from lmc.checks import counted
from lmc.data.graph import Graph
from lmc.estimators.cluster_gcn import ClusterGCN
from lmc.estimators.estimator import Estimator
from lmc.estimators.gas import GAS
from lmc.estimators.lmc import LMC
from lmc.estimators.top import TOP
from lmc.paper.figures import mean_chart
from lmc.paper.followed import GAP, followed
from lmc.paper.outcome import Outcome, ResultTable, Value, against
from lmc.paper.rates import rates
from lmc.paper.setup import (
    Scale,
    Tree,
    about_data,
    at_best,
    best_val,
    curves_of,
    trained,
    with_method,
    with_progress,
)
from lmc.paper.variance import HIDDEN, LAYERS, MOST_BATCHES, errors_along
from lmc.runs.config import Config, merged
from lmc.runs.mean_of_runs import MeanOfRuns
from lmc.runs.registry import method_title
from lmc.training.options import TrainingOptions
from lmc.training.records import Result

PARTS, BIAS_PER_BATCH, PER_BATCH = 80, 5, 10
MARKS = (1, 3)
"""Epochs after which biases are measured."""
EVERY = 10
INNER = ("lmc", "top")
PLAIN = {"dropout": 0.0, "norm": None}
KINDS = {"without dropout and norm": PLAIN, "dropout 0.5, batch norm": {"dropout": 0.5, "norm": "batch"}}
SETTINGS: Tree = {
    "data": {"name": "arxiv"},
    "model": {"name": "gcn", "hidden": HIDDEN, "layers": LAYERS},
    "method": {"name": "lmc"},
    "training": {"lr": 1e-2, "parts": PARTS, "parts_per_batch": PER_BATCH},
}
HEADS = ["method", "spread", "best val, %", "in as many seconds", "test, %", "seconds"]


def spider(scale: Scale) -> Outcome:
    """Three parts: the bias of TOP on `arxiv`, rates on a small graph, trainings on `arxiv`."""
    graphs = scale.graphs("arxiv")
    outcome = Outcome({"graphs": list(graphs)}, about_data(graphs))
    outcome.differences += [
        "The paper has the theorem, and no experiment.",
        f"Bias: a GCN of {LAYERS} x {HIDDEN} without dropout and norm. All rows are measured at the same"
        f" points of one training by LMC, over ||∇L||, as means over {MOST_BATCHES} batches of the epoch"
        " after.",
    ]
    for name, graph in graphs.items():
        _add_bias(outcome, name, graph, scale)
    scale.keep(outcome)
    rates(scale, outcome)
    scale.keep(outcome)
    outcome.differences.append(
        f"Practice: Adam. SPIDER has a large batch each {EVERY} steps, of the whole graph. Spread is the mean"
        f" of ||g_k - ∇L(W_k)|| / ||∇L(W_k)|| over each {GAP}th step of a training's first half, of one seed;"
        " with dropout, ∇L has masks of its own. In as many seconds: the best val of those epochs that end"
        " while the method without SPIDER trains."
    )
    for name, graph in graphs.items():
        for kind, options in KINDS.items():
            _add_practice(outcome, name, kind, graph, merged(SETTINGS, {"model": options}), scale)
            scale.keep(outcome)
    return outcome


# -- the bias of TOP ---------------------------------------------------------------------------------


def _estimators() -> dict[str, Estimator]:
    """The first of them trains."""
    return {
        "LMC": LMC(),
        "GAS": GAS(),
        "Cluster-GCN": ClusterGCN(),
        **{f"TOP, rank {rank}": TOP(rank) for rank in (16, 64, 256)},
        "TOP, rank 64, of histories": TOP(64, "history"),
    }


def _add_bias(outcome: Outcome, name: str, graph: Graph, scale: Scale) -> None:
    """What is outside, by TOP and by others, at the same points of one training."""
    epochs = scale.epochs_of(max(MARKS))
    marks = tuple(mark for mark in MARKS if mark <= epochs)
    found = errors_along(graph, PARTS, BIAS_PER_BATCH, marks, _estimators(), {})
    methods = found[marks[-1]].by_method
    biases = {method: [found[mark].by_method[method].bias["total"] for mark in marks] for method in methods}
    errors = {method: [found[mark].by_method[method]["total"] for mark in marks] for method in methods}
    heads = ["method", *(f"bias after {m}" for m in marks), *(f"error after {m}" for m in marks)]
    rows: list[list[Value]] = [[method, *biases[method], *errors[method]] for method in biases]
    title = f"{name}, {BIAS_PER_BATCH} of {PARTS} clusters: what is outside"
    outcome.tables.append(ResultTable(title, heads, rows, digits=3))
    last = ", ".join(f"{method} {biases[method][-1]:.2f}" for method in biases)
    outcome.findings.append(f"{name}, bias after {counted(marks[-1], 'epoch')}: {last}.")


# -- in practice -------------------------------------------------------------------------------------


def _add_practice(outcome: Outcome, name: str, kind: str, graph: Graph, settings: Tree, scale: Scale) -> None:
    """Methods with and without SPIDER: how far their estimates are off, and where trainings go."""
    seeds, epochs = scale.seeds(3), scale.epochs_of(15)
    outcome.settings[f"{name}, {kind}"] = settings | {"runs": len(seeds), "epochs": epochs}
    trees = {
        method_title(inner, every): with_method(settings, {"name": inner, "spider": every})
        for inner in INNER
        for every in (None, EVERY)
    }
    spreads, found = {}, {}
    for method, tree in with_progress(trees.items(), f"spider on {name}, {kind}"):
        spreads[method] = _spread(graph, tree, seeds[0], -(-epochs // 2))
        found[method] = [trained(graph, tree, seed, epochs=epochs) for seed in seeds]
    outcome.curves[f"{name}, {kind}"] = curves_of(found)
    rows: list[list[Value]] = []
    for inner in INNER:
        plain, spider = (method_title(inner, every) for every in (None, EVERY))
        for method in (plain, spider):
            seconds = MeanOfRuns([result.seconds for result in found[method]])
            vals, tests = at_best(found[method], "val"), at_best(found[method], "test")
            soon = _in_the_time_of(found[plain], found[method])
            rows.append([method, spreads[method], vals, soon, tests, seconds])
        outcome.findings += _findings(f"{name}, {kind}", plain, spider, spreads, found)
    outcome.tables.append(ResultTable(f"{name}, {kind}", HEADS, rows))
    where = f"{name}-{'plain' if settings['model'].items() >= PLAIN.items() else 'dropout-and-norm'}"
    outcome.figures[where] = [
        mean_chart(found, "val", "epochs", title=kind),
        mean_chart(found, "val", "seconds of training", title=kind),
    ]


def _spread(graph: Graph, tree: Tree, seed: int, epochs: int) -> float:
    """The mean of ||g_k - ∇L(W_k)|| / ||∇L(W_k)|| along so many epochs."""
    config = Config.of(merged(tree, {"training": {"seed": seed}}))
    options = TrainingOptions(**config.training)
    torch.manual_seed(seed)
    model = config.build_model(graph.num_features, graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    points = followed(graph, model, config.build_estimator(), options.batches, optimizer, epochs)
    return statistics.fmean(point.error / point.norm for point in points)


def _in_the_time_of(plain: Sequence[Result], results: Sequence[Result]) -> MeanOfRuns | None:
    """The best val, in per cent, of what a run reaches in the seconds of the other; None where none does."""
    best = []
    for run, other in zip(results, plain, strict=True):
        seconds, vals = 0.0, list[float]()
        for record in run.history:
            seconds += record.seconds
            if seconds <= other.seconds and record.val is not None:
                vals.append(100 * record.val)
        if not vals:
            return None
        best.append(max(vals))
    return MeanOfRuns(best)


def _findings(
    where: str,
    plain: str,
    spider: str,
    spreads: Mapping[str, float],
    found: Mapping[str, Sequence[Result]],
) -> list[str]:
    """What SPIDER brings to a method: to its estimates, by epochs, and by seconds."""
    seconds = {
        method: statistics.fmean(result.seconds for result in found[method]) for method in (plain, spider)
    }
    by_epochs = {method: MeanOfRuns([100 * best_val(r) for r in found[method]]) for method in (plain, spider)}
    soon = _in_the_time_of(found[plain], found[spider])
    lines = [
        f"{where}: the spread of {spider} is {spreads[spider]:.2f}, that of {plain} {spreads[plain]:.2f}.",
        f"{where}, best val beside {plain}, in points: {against(plain, by_epochs)}, in"
        f" {seconds[spider] / seconds[plain]:.1f} times the seconds"
        f"{_verdict(by_epochs[spider], by_epochs[plain])}.",
    ]
    if soon is not None:
        by_seconds = {plain: by_epochs[plain], spider: soon}
        lines.append(
            f"{where}, best val in the seconds of {plain}, in points: {against(plain, by_seconds)}"
            f"{_verdict(soon, by_epochs[plain])}."
        )
    return lines


def _verdict(one: MeanOfRuns, other: MeanOfRuns) -> str:
    return "" if one.mean > other.mean else ": it does not help"
