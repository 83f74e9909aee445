"""Table 3: GAS and LMC at small batches, learning rates searched in the same set."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from lmc.graph import Graph
from lmc.paper import numbers
from lmc.paper.outcome import Outcome, Table, Value
from lmc.paper.runs import (
    METHODS,
    SMALL_BATCH,
    Scale,
    Tree,
    about_data,
    at_best,
    settings_of,
    shown,
    trained,
    with_method,
)
from lmc.records import Result

SIZES = (1, 2, 5, 10)
RATES = (1e-2, 3e-3, 1e-3)


def batch_size(scale: Scale) -> Outcome:
    """Accuracy by clusters a batch (of 80), and epochs until a validation accuracy that both reach."""
    graphs, seeds, epochs = scale.graphs("arxiv"), scale.seeds(3), scale.epochs_of(20)
    rates = RATES[:1] if scale.quick else RATES
    outcome = Outcome({"runs": len(seeds), "epochs": epochs, "learning rates": rates}, about_data(graphs))
    outcome.differences.append(
        f"{epochs} epochs, the first seed searches the learning rate; the paper says neither."
    )
    for name, graph in graphs.items():
        settings = settings_of("GCN", name)
        outcome.settings[name] = settings | {"LMC": SMALL_BATCH}
        rows: list[list[Value]] = []
        for size in shown(SIZES, f"batch-size on {name}"):
            found: dict[str, list[Result]] = {}
            chosen = {}
            for method, given in (("GAS", METHODS["GAS"]), ("LMC", SMALL_BATCH)):
                run = with_method(settings, given)
                chosen[method], found[method] = _searched(graph, run, size, epochs, seeds, rates)
            common = min(_mean_best(results) for results in found.values())
            for method, results in found.items():
                paper = numbers.BATCH_SIZE["GCN"].get((size, method)) if name == "arxiv" else None
                best, tests = at_best(results, "val"), at_best(results, "test")
                first = _mean_epochs(results, common)
                rows.append([size, method, f"{chosen[method]:g}", best, tests, paper, 100 * common, first])
        heads = [
            "clusters",
            "method",
            "learning rate",
            "best val, %",
            "test, %",
            "paper",
            "goal, val %",
            "epochs to it",
        ]
        outcome.tables.append(Table(f"{name}: small batches", heads, rows))
    return outcome


def _searched(
    graph: Graph, run: Tree, size: int, epochs: int, seeds: Sequence[int], rates: Sequence[float]
) -> tuple[float, list[Result]]:
    """The learning rate that is best on the first seed, and the runs of all seeds with it."""
    first = {
        rate: trained(graph, run, seeds[0], lr=rate, parts=80, parts_per_batch=size, epochs=epochs)
        for rate in rates
    }
    best = max(first, key=lambda rate: _best(first[rate]))
    more = [
        trained(graph, run, seed, lr=best, parts=80, parts_per_batch=size, epochs=epochs)
        for seed in seeds[1:]
    ]
    return best, [first[best], *more]


def _best(result: Result) -> float:
    return result.best.val or 0.0 if result.best is not None else 0.0


def _mean_best(results: Sequence[Result]) -> float:
    """The highest point of the mean curve."""
    return max(_mean_curve(results))


def _mean_curve(results: Sequence[Result]) -> list[float]:
    curves = [[record.val or 0.0 for record in result.history] for result in results]
    return [statistics.fmean(values) for values in zip(*curves, strict=True)]


def _mean_epochs(results: Sequence[Result], goal: float) -> int | None:
    """When the mean curve first reaches the goal."""
    return next((epoch for epoch, val in enumerate(_mean_curve(results), 1) if val >= goal), None)
