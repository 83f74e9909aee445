"""Which charts a report has: loss, metrics, gradient error and what a method has found itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from lmc.report import formats
from lmc.report.charts import Chart, Line, Style
from lmc.report.reported_run import ReportedRun
from lmc.training.records import Record


class NamedRun(NamedTuple):
    """A run, and how it is told from the others of a report."""

    name: str
    style: Style
    run: ReportedRun


Value = Callable[[Record], "float | None"]


def charts_of(runs: Sequence[NamedRun]) -> list[Chart]:
    """Every chart that some run has a point for, those over epochs before those over seconds."""
    found = _both("Training loss", runs, lambda record: record.loss, decades=True)
    for metric, group in _by_metric(runs).items():
        found += _both(f"Validation {metric}", group, lambda record: record.val)
    for name in dict.fromkeys(
        name for _, _, run in runs for record in run.history for name in record.metrics or ()
    ):
        found.append(_over_epochs(f"Validation {name}", runs, partial(_further, name), decades=False))
    found.append(_over_epochs("Gradient error", runs, _gradient_error, decades=True))
    for name in dict.fromkeys(
        name for _, _, run in runs for record in run.history for name in record.found or ()
    ):
        found.append(_over_epochs(name, runs, partial(_found, name), decades=False))
    return [chart for chart in found if chart.lines]


def _gradient_error(record: Record) -> float | None:
    return None if record.gradient_error is None else record.gradient_error.get("total")


def _found(name: str, record: Record) -> float | None:
    return None if record.found is None else record.found.get(name)


def _further(name: str, record: Record) -> float | None:
    return None if record.metrics is None else record.metrics.get(name, {}).get("val")


def _both(title: str, runs: Sequence[NamedRun], value: Value, decades: bool = False) -> list[Chart]:
    over_seconds = _lines(runs, value, lambda run, record: run.elapsed[record.epoch])
    return [
        _over_epochs(title, runs, value, decades),
        Chart("seconds of training", title, over_seconds, decades=decades),
    ]


def _over_epochs(title: str, runs: Sequence[NamedRun], value: Value, decades: bool) -> Chart:
    lines = _lines(runs, value, lambda run, record: record.epoch)
    return Chart("epoch", title, lines, whole_x=True, decades=decades)


def _lines(
    runs: Sequence[NamedRun], value: Value, place: Callable[[ReportedRun, Record], float]
) -> list[Line]:
    """Of the runs that have a point."""
    lines = [_line(named, value, place) for named in runs]
    return [line for line in lines if line.drawable()]


def _line(named: NamedRun, value: Value, place: Callable[[ReportedRun, Record], float]) -> Line:
    name, style, run = named
    x: list[float] = []
    y: list[float] = []
    notes: list[str] = []
    best = None
    for record in run.history:
        measured = value(record)
        if measured is None:  # no gap: the line goes on to the next value
            continue
        if record is run.best:
            best = len(x)
        x.append(place(run, record))
        y.append(measured)
        when = f"epoch {record.epoch}, {formats.seconds(run.elapsed[record.epoch])}"
        notes.append(f"{name}: {formats.score(measured)} at {when}")
    return Line(name, style, x, y, notes=notes, best=best)


def _by_metric(runs: Sequence[NamedRun]) -> dict[str, list[NamedRun]]:
    """The runs of each metric; an unfinished run, which does not name its metric, joins the only one."""
    known = {named.run.metric for named in runs if named.run.metric is not None}
    unnamed = known.pop() if len(known) == 1 else "metric"
    groups: dict[str, list[NamedRun]] = {}
    for named in runs:
        groups.setdefault(named.run.metric or unnamed, []).append(named)
    return groups
