"""Which charts a report has: loss, validation and gradient error, over epochs and over seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lmc.report import formats
from lmc.report.charts import Chart, Curve, Point, Style, line_chart
from lmc.report.run_record import Epoch, RunRecord

Named = tuple[str, Style, RunRecord]
Value = Callable[[Epoch], "float | None"]


def charts_of(runs: Sequence[Named]) -> list[Chart]:
    """Every chart that some run has a point for, those over epochs before those over seconds."""
    found: list[Chart | None] = []
    found += _both("Training loss", runs, lambda epoch: epoch.loss, decades=True)
    for metric, group in _by_metric(runs).items():
        found += _both(f"Validation {metric}", group, lambda epoch: epoch.val)
    found.append(_over_epochs("Gradient error", runs, lambda epoch: epoch.gradient_error, decades=True))
    return [chart for chart in found if chart is not None]


def _both(title: str, runs: Sequence[Named], value: Value, decades: bool = False) -> list[Chart | None]:
    over_seconds = [_curve(run, value, lambda epoch: epoch.elapsed) for run in runs]
    return [
        _over_epochs(title, runs, value, decades),
        line_chart(title, "seconds of training", over_seconds, decades=decades),
    ]


def _over_epochs(title: str, runs: Sequence[Named], value: Value, decades: bool) -> Chart | None:
    curves = [_curve(run, value, lambda epoch: epoch.number) for run in runs]
    return line_chart(title, "epoch", curves, whole_x=True, decades=decades)


def _curve(run: Named, value: Value, place: Callable[[Epoch], float]) -> Curve:
    name, style, record = run
    points = []
    for epoch in record.epochs:
        measured = value(epoch)
        if measured is not None:  # not measured is no gap: the line goes on to the next value
            note = (
                f"{name}: {formats.score(measured)} at epoch {epoch.number}, {formats.seconds(epoch.elapsed)}"
            )
            points.append(Point(place(epoch), measured, note))
    return Curve(name, style, points, None if record.best is None else place(record.best))


def _by_metric(runs: Sequence[Named]) -> dict[str, list[Named]]:
    """The runs of each metric; an unfinished one, which does not say, is of the only one there is."""
    known = {run.metric for _, _, run in runs if run.metric is not None}
    unnamed = known.pop() if len(known) == 1 else "metric"
    groups: dict[str, list[Named]] = {}
    for name, style, run in runs:
        groups.setdefault(run.metric or unnamed, []).append((name, style, run))
    return groups
