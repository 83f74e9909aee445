"""Table 1: prediction performance of every method with GCN and GCNII."""

from __future__ import annotations

from itertools import product

from lmc.paper import numbers
from lmc.paper.outcome import Outcome, ResultTable, Value, ranked
from lmc.paper.setup import (
    LARGE,
    METHOD_SETTINGS,
    Scale,
    about_data,
    at_best,
    settings_of,
    trained,
    with_method,
    with_progress,
)
from lmc.runs.mean_of_runs import MeanOfRuns


def prediction(scale: Scale) -> Outcome:
    """Test accuracy at the best validation epoch, in per cent, mean and deviation over runs."""
    graphs, seeds = scale.graphs(*LARGE), scale.seeds(3)
    outcome = Outcome({"runs": len(seeds)}, about_data(graphs))
    outcome.differences.append(
        "Every method trains the same GCN and GCNII here; the paper's rows but for GD, GAS, FM and LMC are of"
        " the model in the method's own paper, and stand under GCN."
    )
    for name, graph in graphs.items():
        rows: list[list[Value]] = []
        epochs = scale.epochs_of(60)
        found: dict[str, dict[str, MeanOfRuns | None]] = {model: {} for model in scale.models()}
        for model, method in with_progress(product(found, METHOD_SETTINGS), f"prediction on {name}"):
            settings = settings_of(model, name)
            lmc_settings = settings["method"]
            run = with_method(settings, lmc_settings if method == "LMC" else METHOD_SETTINGS[method])
            results = [trained(graph, run, seed, epochs=epochs) for seed in seeds]
            paper = numbers.PREDICTION.get(name, {}).get((model, method))
            found[model][method] = at_best(results, "test")
            rows.append([model, method, found[model][method], paper])
            outcome.settings[f"{name}, {model}"] = settings
        outcome.findings += [f"{model} on {name}: {ranked(tests)}." for model, tests in found.items()]
        outcome.tables.append(
            ResultTable(f"{name}: test accuracy, %", ["model", "method", "here", "paper"], rows)
        )
        outcome.differences.append(f"{name}: {epochs} epochs; the paper's presets have 300 and more.")
    return outcome
