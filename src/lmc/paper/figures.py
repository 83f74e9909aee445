"""Charts of experiments: means over runs with their deviations, by time, by epoch or by what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lmc.report.charts import Chart, Line, Style
from lmc.runs.mean_of_runs import MeanOfRuns
from lmc.training.records import Result

WINDOW = 5
"""Epochs over which an accuracy is smoothed, as the paper does, since it is unstable."""

Measured = Literal["loss", "train", "val", "test"]


def mean_chart(
    found: Mapping[str, Sequence[Result]],
    what: Measured,
    over: Literal["seconds of training", "epochs"],
    title: str = "",
) -> Chart:
    """A line and a band per method, over all of its runs."""
    lines = []
    for number, (method, results) in enumerate(found.items()):
        epochs = min(len(result.history) for result in results)
        seconds = [np.cumsum([r.seconds for r in result.history[:epochs]]) for result in results]
        x = np.arange(1, epochs + 1) if over == "epochs" else np.mean(seconds, axis=0)
        values = np.array([_smooth(result, what, epochs) for result in results])
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        lines.append(Line(method, Style.of(number), x.tolist(), mean.tolist(), deviation=deviation.tolist()))
    label = "training loss" if what == "loss" else f"{what} accuracy"
    return Chart(over, label, lines, whole_x=over == "epochs", title=title)


def epoch_chart(
    measured: Mapping[str, Sequence[float]],
    label: str,
    decades: bool = False,
    epochs: Sequence[int] | None = None,
) -> Chart:
    """A line per name, of what was measured after these epochs; None for each.

    >>> epoch_chart({"LMC": [0.5, 0.25]}, "bias").lines[0].x
    [1, 2]
    """
    lines = [
        Line(name, Style.of(number), list(epochs or range(1, len(values) + 1)), values)
        for number, (name, values) in enumerate(measured.items())
    ]
    return Chart("epochs", label, lines, whole_x=True, decades=decades)


def cost_chart(
    found: Mapping[str, tuple[MeanOfRuns | None, MeanOfRuns | None]], cost: str, title: str = ""
) -> Chart:
    """A point per method: its cost, and its test accuracy with the deviation; none where one is unknown.

    >>> chart = cost_chart({"LMC": (MeanOfRuns([2.0, 4.0]), MeanOfRuns([70.0, 71.0]))}, "seconds")
    >>> chart.lines[0].x, chart.lines[0].y
    ([3.0], [70.5])
    """
    lines = [
        Line(method, Style.of(number), [x.mean], [y.mean], deviation=[y.deviation], joined=False)
        for number, (method, (x, y)) in enumerate(found.items())
        if x is not None and y is not None
    ]
    return Chart(cost, "test accuracy, %", lines, title=title, x_decades=True, names_at_points=True)


def _smooth(result: Result, what: Measured, epochs: int) -> NDArray[np.float64]:
    values = np.array([getattr(record, what) for record in result.history[:epochs]], dtype=float)
    if what == "loss":
        return values
    starts = [max(0, place - WINDOW + 1) for place in range(epochs)]
    return np.array([np.nanmean(values[start : place + 1]) for place, start in enumerate(starts)])
