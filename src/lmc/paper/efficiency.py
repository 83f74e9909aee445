"""Table 2 and figure 2: epochs, seconds and memory until full-batch accuracy."""

from __future__ import annotations

from lmc.bench.run import peaks_of
from lmc.paper import numbers
from lmc.paper.figures import mean_chart
from lmc.paper.outcome import Outcome, ResultTable, Value
from lmc.paper.setup import (
    METHOD_SETTINGS,
    Scale,
    about_data,
    best_val,
    console,
    curves_of,
    job_of,
    settings_of,
    trained,
    with_method,
    with_progress,
)
from lmc.runs.comparison import compare
from lmc.runs.mean_of_runs import MeanOfRuns

COMPARED = ("GD", "CLUSTER", "GAS", "FM", "LMC")


def efficiency(scale: Scale) -> Outcome:
    """Epochs and seconds until the validation accuracy of full-batch training; peak memory above the data."""
    graphs, seeds, epochs = scale.graphs("arxiv"), scale.seeds(3), scale.epochs_of(60)
    outcome = Outcome({"runs": len(seeds), "epochs": epochs}, about_data(graphs))
    outcome.differences += [
        "The goal is the validation accuracy that every full-batch run (GD) reaches in as many epochs;"
        " the paper's is its test accuracy after many more.",
        "Memory is that of a step above features, graph and histories; the paper's is all that a GPU holds.",
    ]
    for name, graph in graphs.items():
        rows: list[list[Value]] = []
        for model in scale.models():
            settings = settings_of(model, name)
            methods = METHOD_SETTINGS | {"LMC": settings["method"]}
            found = {
                method: [
                    trained(graph, with_method(settings, methods[method]), s, epochs=epochs) for s in seeds
                ]
                for method in with_progress(COMPARED, f"efficiency, {model} on {name}")
            }
            target = min(map(best_val, found["GD"]))
            jobs = {m: job_of(with_method(settings, methods[m]), name, scale.root) for m in COMPARED}
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
                rows.append([model, method, count, took, paper[0], seconds, paper[1], peak, paper[2]])
                mean = f"{took.mean:.1f} epochs" if took else "never"
                needed[method] = f"{method} {mean} ({count})"
            outcome.findings.append(
                f"{model} on {name}, to {100 * target:.2f} %: {', '.join(needed.values())}."
            )
            outcome.figures[f"{name}-{model}"] = [
                mean_chart(found, "loss", "seconds of training"),
                mean_chart(found, "test", "seconds of training"),
            ]
            outcome.settings[f"{name}, {model}"] = settings | {"target": target}
        heads = [
            "model",
            "method",
            "runs that reach it",
            "epochs",
            "paper",
            "seconds",
            "paper",
            "MB",
            "paper",
        ]
        outcome.tables.append(ResultTable(f"{name}: until full-batch accuracy", heads, rows, digits=1))
    return outcome
