"""Figure 3: the error of mini-batch gradients during training, layer by layer."""

from __future__ import annotations

import statistics

from lmc.data.graph import Graph
from lmc.estimators.gradient_error import GradientErrors, gradient_error
from lmc.paper.figures import epoch_chart
from lmc.paper.outcome import Outcome, ResultTable, Value, against
from lmc.paper.setup import (
    FOUND,
    METHOD_SETTINGS,
    SMALL_BATCH,
    Scale,
    Tree,
    about_data,
    settings_of,
    trained,
    with_chosen_batches,
    with_method,
    with_progress,
)
from lmc.runs.config import merged
from lmc.runs.mean_of_runs import MeanOfRuns
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.records import Record


def compared(settings: Tree) -> dict[str, Tree]:
    """The paper's batches with several β; then our own batches, for GAS and for our LMC."""
    chosen = with_chosen_batches(settings)
    cluster, gas = METHOD_SETTINGS["CLUSTER"], METHOD_SETTINGS["GAS"]
    return {
        "CLUSTER": with_method(settings, cluster),
        "GAS": with_method(settings, gas),
        "LMC, paper's β": settings,
        "LMC, alpha 0.4": with_method(settings, SMALL_BATCH),
        "LMC, β found": with_method(settings, FOUND),
        "GAS, our batches": with_method(chosen, gas),
        "LMC, our defaults": with_method(chosen, FOUND),
    }


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
    graphs, seeds, epochs = scale.graphs("arxiv"), scale.seeds(5), scale.epochs_of(20)
    outcome = Outcome({"runs": len(seeds), "epochs": epochs}, about_data(graphs))
    outcome.differences.append("Errors are measured after each epoch, on the batches of the next.")
    outcome.differences.append(
        "Bias is the distance from backward SGD on the same batch, which has exact values outside of it;"
        " spread is that of backward SGD itself. The paper has their sum alone."
    )
    outcome.differences.append("Rows of ours have batches and a β that nobody chose.")
    for name, graph in graphs.items():
        settings = merged(settings_of("GCN", name), {"model": {"dropout": 0.0}})
        outcome.settings[name] = settings | {"LMC, alpha 0.4": SMALL_BATCH}
        error_curves: dict[str, list[float]] = {}
        bias_curves: dict[str, list[float]] = {}
        rows: list[list[Value]] = []
        totals: dict[str, MeanOfRuns | None] = {}
        biases: dict[str, MeanOfRuns | None] = {}
        for method, tree in with_progress(compared(settings).items(), f"gradient-error on {name}"):
            found = [_errors_of(graph, tree, seed, epochs) for seed in seeds]
            error_curves[method] = _over_epochs([[each["total"] for each in run] for run in found])
            bias_curves[method] = _over_epochs([[each.bias["total"] for each in run] for run in found])
            by_part = [_over_runs([[each[part] for each in run] for run in found]) for part in found[0][0]]
            totals[method] = by_part[-1]
            biases[method] = _over_runs([[each.bias["total"] for each in run] for run in found])
            spread = _over_runs([[each.variance["total"] for each in run] for run in found])
            rows.append([method, *by_part, biases[method], spread])
        outcome.figures[name] = [
            epoch_chart(error_curves, "relative error of the gradient"),
            epoch_chart(bias_curves, "bias"),
        ]
        heads = ["method", *found[0][0], "bias", "spread"]
        outcome.tables.append(ResultTable(f"{name}: mean relative error", heads, rows, digits=3))
        for what, means in (("error", totals), ("bias", biases)):
            outcome.findings.append(f"{name}, mean {what} beside GAS: {against('GAS', means)}.")
    return outcome


def _errors_of(graph: Graph, tree: Tree, seed: int, epochs: int) -> list[GradientErrors]:
    """After every epoch of a training."""
    errors = MeasuredErrors()
    trained(graph, tree, seed, callbacks=[errors], epochs=epochs)
    return errors.measured


def _over_runs(values: list[list[float]]) -> MeanOfRuns:
    """Of runs by epochs: the mean of every run."""
    return MeanOfRuns([statistics.fmean(run) for run in values])


def _over_epochs(values: list[list[float]]) -> list[float]:
    """Of runs by epochs: the mean of every epoch."""
    return [statistics.fmean(epoch) for epoch in zip(*values, strict=True)]
