"""Table 2 and figure 2: epochs, seconds and memory until full-batch accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from lmc.bench.run import peaks_of
from lmc.paper import numbers
from lmc.paper.figures import mean_chart
from lmc.paper.outcome import Outcome, ResultTable, Value, against
from lmc.paper.setup import (
    FOUND,
    METHOD_SETTINGS,
    Scale,
    Tree,
    about_data,
    at_best,
    best_val,
    console,
    curves_of,
    job_of,
    settings_of,
    trained,
    with_chosen_batches,
    with_method,
    with_progress,
)
from lmc.runs.comparison import compare
from lmc.runs.mean_of_runs import MeanOfRuns
from lmc.training.records import Result

HEADS = [
    "model",
    "method",
    "runs that reach it",
    "epochs",
    "paper",
    "seconds",
    "paper",
    "MB",
    "paper",
    "test at the best epoch, %",
]


def compared(settings: Tree) -> dict[str, Tree]:
    """The paper's rows, with its batches and its β; then our own batches, for GAS and for our LMC."""
    rows = {
        method: with_method(settings, METHOD_SETTINGS[method]) for method in ("GD", "CLUSTER", "GAS", "FM")
    }
    chosen = with_chosen_batches(settings)
    return rows | {
        "LMC": settings,
        "GAS, our batches": with_method(chosen, METHOD_SETTINGS["GAS"]),
        "LMC, our defaults": with_method(chosen, FOUND),
    }


def efficiency(scale: Scale) -> Outcome:
    """Epochs and seconds until the validation accuracy of full-batch training; peak memory above the data."""
    graphs, seeds, epochs = scale.graphs("arxiv"), scale.seeds(5), scale.epochs_of(60)
    outcome = Outcome({"runs": len(seeds), "epochs": epochs}, about_data(graphs))
    outcome.differences += [
        "The goal is the validation accuracy that every full-batch run (GD) reaches in as many epochs;"
        " the paper's is its test accuracy after many more.",
        "Rows of ours have batches and a β that nobody chose; the paper has no such rows.",
        "Memory is that of a step above features, graph and histories; the paper's is all that a GPU holds.",
    ]
    for name, graph in graphs.items():
        rows: list[list[Value]] = []
        for model in scale.models():
            settings = settings_of(model, name)
            trees = compared(settings)
            found = {
                method: [trained(graph, trees[method], seed, epochs=epochs) for seed in seeds]
                for method in with_progress(trees, f"efficiency, {model} on {name}")
            }
            target = min(map(best_val, found["GD"]))
            jobs = {method: job_of(tree, name, scale.root) for method, tree in trees.items()}
            peaks = peaks_of(jobs, "memory", console())
            outcome.curves[f"{name}, {model}"] = curves_of(found)
            needed: dict[str, str] = {}
            for method, results in found.items():
                reached = [compare({method: result}, target)[1][0] for result in results]
                paper = numbers.EFFICIENCY.get(name, {}).get((model, method), (None, None, None))
                have = [row for row in reached if row.epochs is not None and row.seconds is not None]
                took = MeanOfRuns([float(row.epochs or 0) for row in have]) if have else None
                seconds = MeanOfRuns([row.seconds or 0.0 for row in have]) if have else None
                count = f"{len(have)} of {len(seeds)}"
                peak = peaks[method] / 1e6
                tests = at_best(results, "test")
                rows.append([model, method, count, took, paper[0], seconds, paper[1], peak, paper[2], tests])
                mean = f"{took.mean:.1f} epochs" if took else "never"
                needed[method] = f"{method} {mean} ({count})"
            outcome.findings.append(
                f"{model} on {name}, to {100 * target:.2f} %: {', '.join(needed.values())}."
            )
            outcome.findings += _beside_gas(f"{model} on {name}", found)
            outcome.figures[f"{name}-{model}"] = [
                mean_chart(found, "loss", "seconds of training"),
                mean_chart(found, "test", "seconds of training"),
            ]
            outcome.settings[f"{name}, {model}"] = settings | {"target": target}
        outcome.tables.append(ResultTable(f"{name}: until full-batch accuracy", HEADS, rows, digits=1))
    return outcome


def _beside_gas(where: str, found: Mapping[str, Sequence[Result]]) -> list[str]:
    """Tests of every method beside GAS with the better of its two batches, and how soon LMC is there."""
    best = max(("GAS", "GAS, our batches"), key=lambda method: fmean(map(best_val, found[method])))
    tests = {method: at_best(results, "test") for method, results in found.items()}
    lines = [f"{where}, test beside {best}, in points: {against(best, tests)}."]
    for method in ("LMC", "LMC, our defaults"):
        pairs = zip(found[method], found[best], strict=True)
        shares = [share for run, other in pairs if (share := _share_of_epochs(run, other)) is not None]
        if shares:
            mean = MeanOfRuns(shares).shown(2)
            count = f"{len(shares)} of {len(found[method])} seeds"
            lines.append(
                f"{where}: {method} has the best validation accuracy of {best} after {mean} of its epochs"
                f" ({count})."
            )
    return lines


def _share_of_epochs(run: Result, other: Result) -> float | None:
    """When a run has what the other has at its best, in epochs of the other; None for never."""
    goal = best_val(other)
    first = next((record.epoch for record in run.history if (record.val or 0.0) >= goal), None)
    return None if first is None or other.best is None else first / other.best.epoch
