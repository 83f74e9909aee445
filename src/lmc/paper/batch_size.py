"""Table 3: GAS and LMC at small batches, learning rates searched in the same set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from lmc.data.graph import Graph
from lmc.paper import numbers
from lmc.paper.figures import mean_chart
from lmc.paper.outcome import Outcome, ResultTable, Value, against
from lmc.paper.setup import (
    FOUND,
    METHOD_SETTINGS,
    SMALL_BATCH,
    Scale,
    Tree,
    about_data,
    at_best,
    best_rate,
    best_val,
    curves_of,
    settings_of,
    trained,
    with_method,
    with_progress,
)
from lmc.runs.mean_of_runs import MeanOfRuns
from lmc.training.records import Result

SIZES, PARTS = (1, 2, 5, 10), 80
RATES = (1e-2, 3e-3, 1e-3)
SEARCHED = 2
"""Runs by which a learning rate is chosen; the others take it."""
COMPARED = {
    "GAS": METHOD_SETTINGS["GAS"],
    "LMC": SMALL_BATCH,
    "LMC, β found": FOUND,
}
HEADS = [
    "clusters",
    "method",
    "learning rate",
    "best val, %",
    "test, %",
    "paper",
    "goal, val %",
    "epochs to goal - 2",
    "to goal - 1",
    "to goal",
]


def batch_size(scale: Scale) -> Outcome:
    """Accuracy by clusters a batch (of 80), and epochs until a validation accuracy that every run reaches."""
    graphs, seeds, epochs = scale.graphs("arxiv"), scale.seeds(5), scale.epochs_of(20)
    rates, sizes = RATES[:1] if scale.quick else RATES, scale.clusters or SIZES
    outcome = Outcome({"runs": len(seeds), "epochs": epochs, "learning rates": rates}, about_data(graphs))
    outcome.differences.append(
        f"{epochs} epochs, and the learning rate is the one that is best on average of {SEARCHED}"
        " runs; the paper says neither."
    )
    for name, graph in graphs.items():
        settings = settings_of("GCN", name)
        outcome.settings[name] = settings | {"LMC": SMALL_BATCH}
        charts = []
        rows: list[list[Value]] = []
        for size in with_progress(sizes, f"batch-size on {name}"):
            found: dict[str, list[Result]] = {}
            chosen = {}
            for method, given in COMPARED.items():
                train = partial(_run, graph, with_method(settings, given), size, epochs)
                chosen[method], found[method] = best_rate(train, rates, seeds, SEARCHED)
            outcome.curves[f"{name}, {size}"] = curves_of(found)
            common = min(best_val(result) for results in found.values() for result in results)
            first = {
                method: [_epochs_to(common - below, results) for below in (0.02, 0.01, 0.0)]
                for method, results in found.items()
            }
            for method, results in found.items():
                paper = numbers.BATCH_SIZE["GCN"].get((size, method)) if name == "arxiv" else None
                best, test = at_best(results, "val"), at_best(results, "test")
                rate = f"{chosen[method]:g}"
                rows.append([size, method, rate, best, test, paper, 100 * common, *first[method]])
            charts.append(mean_chart(found, "val", "epochs", title=f"{size} of {PARTS} clusters"))
            outcome.findings.append(_finding(size, found, first, common))
            tests = {method: at_best(results, "test") for method, results in found.items()}
            outcome.findings.append(
                f"{size} of {PARTS}, test beside GAS, in points: {against('GAS', tests)}."
            )
        outcome.figures[name] = charts
        outcome.tables.append(ResultTable(f"{name}: small batches", HEADS, rows))
    return outcome


def _finding(
    size: int, found: Mapping[str, Sequence[Result]], first: Mapping[str, Sequence[MeanOfRuns]], goal: float
) -> str:
    """When each method is at the goal."""
    needed = ", ".join(f"{method} {first[method][-1].mean:.1f}" for method in found)
    return f"{size} of {PARTS}: epochs until val {100 * goal:.2f} %: {needed}."


def _run(graph: Graph, tree: Tree, size: int, epochs: int, rate: float, seed: int) -> Result:
    return trained(graph, tree, seed, lr=rate, parts=PARTS, parts_per_batch=size, epochs=epochs)


def _epochs_to(goal: float, results: Sequence[Result]) -> MeanOfRuns:
    """When each run first reaches a goal that it does reach."""
    return MeanOfRuns(
        [float(next(r.epoch for r in result.history if (r.val or 0.0) >= goal)) for result in results]
    )
