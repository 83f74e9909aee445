"""Charts drawn by matplotlib, which is imported where something is drawn: it takes a while."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lmc.report.charts import Chart, Line, Style
from lmc.report.point_names import write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

TEXT, GRID = "#5b6470", "#e9ecf0"
"""Colours; those of lines are in `charts`."""

_TICKS = 7  # intervals between ticks, at most
_STEPS = (1, 2, 5, 10)  # that ticks are multiples of
_FEW = 2  # panels side by side that still have room to be large
_LARGE, _SMALL = (5.5, 4.2), (3.8, 3.6)  # inches of a panel
_SIZES = {"s": 5.2, "D": 5.0}  # of marks that look larger than they are


def figure_of(charts: Sequence[Chart]) -> Figure:
    """Charts side by side, for a file; those of the same values share their axis.

    >>> line = Line("LMC", Style.of(0), [1, 2], [0.5, 0.7])
    >>> len(figure_of([Chart("epochs", "accuracy", [line])]).axes)
    1
    """
    from matplotlib.figure import Figure

    width, height = _LARGE if len(charts) <= _FEW else _SMALL
    figure = Figure(figsize=(width * len(charts), height), layout="constrained")
    alike = len({chart.y_label for chart in charts}) == 1
    panels = figure.subplots(1, len(charts), sharey=alike, squeeze=False)[0]
    legends: list[list[str]] = []
    for axes, chart in zip(panels, charts, strict=True):
        draw(axes, chart)
        axes.set_title(chart.title, fontsize="medium")
        if axes is panels[0] or not alike:
            axes.set_ylabel(chart.y_label, color=TEXT)
        names = [line.name for line in chart.lines]
        if names not in legends and not chart.names_at_points:
            axes.legend(fontsize="small", framealpha=0.85, edgecolor="none")
            legends.append(names)
    figure.draw_without_rendering()  # from now on it is known where points are
    for axes, chart in zip(panels, charts, strict=True):
        if chart.names_at_points:
            write_names(axes, chart.lines)
    return figure


def saved(figure: Figure, form: Literal["png", "svg"]) -> bytes:
    """A drawing as the content of a file: text as text, and the same bytes whenever it is made."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lmc"}):
        figure.savefig(file, format=form, dpi=120, metadata={"Date": None} if form == "svg" else {})
    return file.getvalue()


def draw(axes: Axes, chart: Chart) -> None:
    """The lines of a chart and its axes, without a title and a legend."""
    for line in chart.lines:
        _draw_line(axes, line)
    _draw_scales(axes, chart)
    if any(line.best is not None for line in chart.lines):
        low, high = axes.get_ylim()
        for line in chart.lines:
            _draw_best(axes, line, low)
        axes.set_ylim(low, high)


def look(style: Style) -> dict[str, Any]:
    """A style as options of matplotlib."""
    return {
        "color": style.colour,
        "linewidth": 1.6,
        "marker": style.marker,
        "markersize": _SIZES.get(style.marker, 6.2),
        "markeredgewidth": 0,
        "clip_on": False,
    }


def _draw_line(axes: Axes, line: Line) -> None:
    x, y = np.array(line.x, dtype=float), np.array(line.y, dtype=float)
    gaps = np.ones(len(y), dtype=bool)
    gaps[line.drawable()] = False
    x[gaps] = y[gaps] = np.nan
    joint = "-" if line.joined else "none"
    axes.plot(x, y, **look(line.style), ls=joint, markevery=line.marked(), label=line.name, gid="line")
    if line.deviation is not None and not line.joined:
        axes.errorbar(x, y, line.deviation, ls="none", color=line.style.colour, linewidth=1.2, capsize=2.5)
    elif line.deviation is not None:
        below, above = y - line.deviation, y + line.deviation
        axes.fill_between(x, below, above, color=line.style.colour, alpha=0.2, linewidth=0)


def _draw_scales(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    if chart.x_names:
        axes.set_xlim(-0.5, len(chart.x_names) - 0.5)
        axes.set_xticks(range(len(chart.x_names)), chart.x_names)
    elif chart.x_decades:
        axes.set_xscale("log")
        _name_decades(axes.xaxis)
        if chart.names_at_points:
            axes.margins(x=0.2, y=0.1)
    else:
        last = max((line.x[i] for line in chart.lines for i in line.drawable()), default=1.0)
        axes.set_xlim(0, last if last > 0 else 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(_TICKS, steps=_STEPS, integer=chart.whole_x, min_n_ticks=1))
    if chart.is_log:
        axes.set_yscale("log")
        _name_decades(axes.yaxis)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(_TICKS, steps=_STEPS))
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_xlabel(chart.x_label, color=TEXT)
    axes.tick_params(colors=TEXT, length=0)
    axes.tick_params(axis="x", length=4)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(TEXT)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)


def _name_decades(axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=_STEPS[:-1] if high < 100 * low else (1,), numticks=_TICKS))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))


def _draw_best(axes: Axes, line: Line, low: float) -> None:
    """A dashed line from the axis to the best value, and a ring around it."""
    if line.best not in line.drawable():
        return
    assert line.best is not None
    x, y, colour = line.x[line.best], line.y[line.best], line.style.colour
    axes.plot([x, x], [low, y], color=colour, linewidth=1.1, dashes=(3, 3), clip_on=False, gid="best")
    axes.plot(x, y, "o", ms=12, mfc="none", mec=colour, mew=1.6, clip_on=False)
