"""Figure 3: the error of mini-batch gradients during training, layer by layer."""

from __future__ import annotations

import statistics

from lmc.estimators.gradient_error import GradientErrors, gradient_error
from lmc.paper.figures import epoch_chart
from lmc.paper.outcome import Outcome, ResultTable, Value
from lmc.paper.setup import (
    METHOD_SETTINGS,
    SMALL_BATCH,
    Scale,
    about_data,
    settings_of,
    trained,
    with_method,
    with_progress,
)
from lmc.runs.config import merged
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.records import Record

# LMC with the beta that suits small batches, and with the one that the paper takes on this graph.
COMPARED = ("CLUSTER", "GAS", "LMC", "LMC, paper's")


class MeasuredErrors(Callback):
    """Measures the error after every epoch, on the batches of the next."""

    def __init__(self) -> None:
        self.measured: list[GradientErrors] = []

    def on_epoch(self, training: Training, record: Record) -> None:
        """With whatever histories the estimator has now."""
        ahead = training.sampler.epoch(record.epoch)
        self.measured.append(gradient_error(training.graph, training.model, training.estimator, ahead))


def gradient_errors(scale: Scale) -> Outcome:
    """||estimate - gradient|| / ||gradient||, averaged over batches and epochs, without dropout."""
    graphs, epochs = scale.graphs("arxiv"), scale.epochs_of(20)
    outcome = Outcome({"epochs": epochs}, about_data(graphs))
    outcome.differences.append("Errors are measured after each epoch, on the batches of the next.")
    outcome.differences.append(
        "Bias is the distance from backward SGD on the same batch, which has exact values outside of it;"
        " spread is that of backward SGD itself. The paper has their sum alone."
    )
    outcome.differences.append("The paper's beta has a row of its own; the row LMC has our default.")
    for name, graph in graphs.items():
        settings = merged(settings_of("GCN", name), {"model": {"dropout": 0.0}})
        methods = METHOD_SETTINGS | {"LMC": SMALL_BATCH, "LMC, paper's": settings["method"]}
        outcome.settings[name] = settings | {"LMC": SMALL_BATCH}
        error_curves: dict[str, list[float]] = {}
        bias_curves: dict[str, list[float]] = {}
        rows: list[list[Value]] = []
        totals: dict[str, tuple[float, float]] = {}
        for method in with_progress(COMPARED, f"gradient-error on {name}"):
            errors = MeasuredErrors()
            trained(graph, with_method(settings, methods[method]), 0, callbacks=[errors], epochs=epochs)
            found = errors.measured
            error_curves[method] = [each["total"] for each in found]
            bias_curves[method] = [each.bias["total"] for each in found]
            by_part = [statistics.fmean(each[part] for each in found) for part in found[0]]
            bias = statistics.fmean(bias_curves[method])
            rows.append([method, *by_part, bias, statistics.fmean(e.variance["total"] for e in found)])
            totals[method] = by_part[-1], bias
        outcome.figures[name] = [
            epoch_chart(error_curves, "relative error of the gradient"),
            epoch_chart(bias_curves, "bias"),
        ]
        heads = ["method", *found[0], "bias", "spread"]
        outcome.tables.append(ResultTable(f"{name}: mean relative error", heads, rows, digits=3))
        for place, what in enumerate(("error", "bias")):
            order = sorted(totals, key=lambda method: totals[method][place])
            ranking = ", ".join(f"{method} {totals[method][place]:.3f}" for method in order)
            outcome.findings.append(f"{name}, mean {what}, lowest first: {ranking}.")
    return outcome
