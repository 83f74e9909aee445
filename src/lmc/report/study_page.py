"""One HTML page about a search over settings: how it went, what mattered, and every trial."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lmc.errors import ArgumentError, RunError
from lmc.report import formats
from lmc.report.charts import Chart, Line, Style
from lmc.report.inline_svg import chart_svg, swatch_svg
from lmc.report.reported_run import is_finite
from lmc.report.side_by_side import ComparedValue
from lmc.report.template import write_page
from lmc.runs.registry import method_title
from lmc.runs.search_space import Choices, Range, Value, parse_range
from lmc.runs.study import STUDY, Study, Trial, read_study

_STYLES = {"finished": Style.of(0), "pruned": Style.of(1), "best so far": Style.of(2)}


class _Row(NamedTuple):
    """A trial of the table."""

    number: int
    state: str
    cells: Sequence[ComparedValue]
    error: str | None


def write_study_page(folder: Path, out: Path) -> Path:
    """Write the page of a search, finished or not, and return its path.

    Args:
        folder: that of the search, with its `study.json`.
        out: the page; its folder is made where it is missing.
    """
    study = read_study(folder)
    charts = charts_of(study, _ranges(study, folder / STUDY))
    best = study.best
    return write_page(
        out,
        "study.html.j2",
        title=f"Search over {len(study.space)} settings",
        subtitle=f"{study.data}, {study.model}, {method_title(study.method)}; {_count(study)}",
        metric=study.metric,
        best=None if best is None else {key: _setting(value) for key, value in best.settings.items()},
        best_text="" if best is None else _trial_text(study, best),
        space=study.space,
        importance={place: formats.share(share, 1) for place, share in (study.importance or {}).items()},
        rows=_rows(study),
        charts=[(chart, chart_svg(chart)) for chart in charts],
        swatches={name: swatch_svg(style) for name, style in _STYLES.items()},
    )


def charts_of(study: Study, ranges: dict[str, Range | Choices]) -> list[Chart]:
    """How the search went, and the metric over each setting; only those that have a point."""
    label = f"Validation {study.metric}"
    numbers = [float(trial.number) for trial in study.trials]
    found = [Chart("trial", label, [*_points(study, numbers), *_best_so_far(study)], whole_x=True)]
    for place, tried in ranges.items():
        lines = _points(study, [_x_of(trial.settings.get(place), tried) for trial in study.trials])
        names = [_setting(value) for value in tried.values] if isinstance(tried, Choices) else []
        decades = isinstance(tried, Range) and tried.log
        found.append(Chart(place, label, lines, x_decades=decades, x_names=names))
    return [chart for chart in found if chart.lines]


def _ranges(study: Study, file: Path) -> dict[str, Range | Choices]:
    try:
        return {place: parse_range(place, text) for place, text in study.space.items()}
    except ArgumentError as error:
        raise RunError(f"{file}: {error}") from None


def _x_of(value: Value | None, tried: Range | Choices) -> float:
    """Where a value is on its axis; what the search could not have tried is not a number."""
    if isinstance(tried, Choices):
        return float(tried.values.index(value)) if value in tried.values else math.nan
    inside = isinstance(value, (int, float)) and tried.low <= value <= tried.high
    return float(value) if inside and value is not None else math.nan


def _points(study: Study, x: Sequence[float]) -> list[Line]:
    """Trials that have a value: those that finished, and those that were pruned."""
    lines = []
    for state in ("finished", "pruned"):
        known = [
            (place, trial.val, trial)
            for place, trial in zip(x, study.trials, strict=True)
            if trial.state == state and trial.val is not None and math.isfinite(place)
        ]
        line = Line(
            state,
            _STYLES[state],
            [place for place, _, _ in known],
            [value for _, value, _ in known],
            notes=[_trial_text(study, trial) for _, _, trial in known],
            best=next((i for i, (_, _, trial) in enumerate(known) if trial is study.best), None),
            joined=False,
        )
        lines += [line] if line.drawable() else []
    return lines


def _best_so_far(study: Study) -> list[Line]:
    """The best value after each trial that finished."""
    x: list[float] = []
    y: list[float] = []
    better = max if study.higher_is_better else min
    for trial in study.trials:
        if trial.state == "finished" and is_finite(trial.val):
            x.append(trial.number)
            y.append(better(y[-1], trial.val) if y else trial.val)
    return [Line("best so far", _STYLES["best so far"], x, y)] if x else []


def _rows(study: Study) -> list[_Row]:
    """The best trial first, those without a value last."""
    sign = -1 if study.higher_is_better else 1

    def order(trial: Trial) -> tuple[bool, bool, float]:
        value = trial.val if is_finite(trial.val) else None
        return (trial.state != "finished", value is None, sign * value if value is not None else 0.0)

    return [
        _Row(
            trial.number,
            trial.state,
            [
                ComparedValue(formats.score(trial.val), trial is study.best),
                ComparedValue(formats.score(trial.test)),
                ComparedValue(f"{trial.epochs:,}"),
                ComparedValue(formats.seconds(trial.seconds)),
                *(ComparedValue(_setting(trial.settings.get(place))) for place in study.space),
            ],
            trial.error,
        )
        for trial in sorted(study.trials, key=order)
    ]


def _trial_text(study: Study, trial: Trial) -> str:
    tried = ", ".join(f"{place} {_setting(value)}" for place, value in trial.settings.items())
    test = "" if trial.test is None else f", test {formats.score(trial.test)}"
    return f"trial {trial.number}: {study.metric} {formats.score(trial.val)}{test} with {tried}"


def _setting(value: Value | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else formats.setting(value)


def _count(study: Study) -> str:
    states = Counter(trial.state for trial in study.trials)
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "no trial yet"
