"""Figure 3: the error of mini-batch gradients during training, layer by layer."""

from __future__ import annotations

import statistics

from lmc.config import merged
from lmc.paper.outcome import Outcome, Table, Value
from lmc.paper.runs import METHODS, Scale, about_data, settings_of, shown, trained, with_method

COMPARED = ("CLUSTER", "GAS", "LMC")


def gradient_errors(scale: Scale) -> Outcome:
    """||estimate - gradient|| / ||gradient||, averaged over batches and epochs, without dropout."""
    from matplotlib.figure import Figure

    graphs, epochs = scale.graphs("arxiv"), scale.epochs_of(20)
    outcome = Outcome({"epochs": epochs}, about_data(graphs))
    outcome.differences.append("Errors are measured after each epoch, on the batches of the next.")
    for name, graph in graphs.items():
        settings = merged(settings_of("GCN", name), {"model": {"dropout": 0.0}})
        outcome.settings[name] = settings
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        rows: list[list[Value]] = []
        for method in shown(COMPARED, f"gradient-error on {name}"):
            run = settings if method == "LMC" else with_method(settings, METHODS[method])
            result = trained(graph, run, 0, epochs=epochs, gradient_error_every=1)
            errors = [record.gradient_error or {} for record in result.history]
            axes.plot([record.epoch for record in result.history], [e["total"] for e in errors], label=method)
            rows.append([method, *(statistics.fmean(e[part] for e in errors) for part in errors[0])])
        axes.set_xlabel("epochs")
        axes.set_ylabel("relative error of the gradient")
        axes.legend()
        axes.grid(alpha=0.3)
        outcome.figures[name] = figure
        heads = ["method", *errors[0]]
        outcome.tables.append(Table(f"{name}: mean relative error", heads, rows, digits=3))
    return outcome
