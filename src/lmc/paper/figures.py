"""Curves: a mean over runs, with its deviation as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from lmc.training.records import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WINDOW = 5
"""Epochs over which an accuracy is smoothed, as the paper does, since it is unstable."""


def curves(found: Mapping[str, Sequence[Result]], what: str, title: str) -> Figure:
    """One set of axes: `what` is `"loss"`, `"train"`, `"val"` or `"test"`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    band(axes, found, what)
    axes.set_title(title)
    axes.legend()
    return figure


def band(
    axes: Axes,
    found: Mapping[str, Sequence[Result]],
    what: str,
    over: Literal["seconds", "epochs"] = "seconds",
) -> None:
    """A line and a band per method, over the seconds of training or its epochs."""
    from matplotlib.ticker import MaxNLocator

    for method, results in found.items():
        epochs = min(len(result.history) for result in results)
        seconds = [np.cumsum([r.seconds for r in result.history[:epochs]]) for result in results]
        places = np.mean(seconds, axis=0) if over == "seconds" else np.arange(1, epochs + 1)
        values = np.array([_smooth(result, what, epochs) for result in results])
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        (line,) = axes.plot(places, mean, label=method)
        axes.fill_between(places, mean - deviation, mean + deviation, alpha=0.2, color=line.get_color())
    if over == "epochs":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("seconds of training" if over == "seconds" else "epochs")
    axes.set_ylabel("training loss" if what == "loss" else f"{what} accuracy")
    axes.grid(alpha=0.3)


def _smooth(result: Result, what: str, epochs: int) -> NDArray[np.float64]:
    values = np.array([getattr(record, what) for record in result.history[:epochs]], dtype=float)
    if what == "loss":
        return values
    starts = [max(0, place - WINDOW + 1) for place in range(epochs)]
    return np.array([np.nanmean(values[start : place + 1]) for place, start in enumerate(starts)])
