"""Runs side by side: their results, the settings in which they differ, and what to keep in mind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lmc.report import formats
from lmc.report.curves import NamedRun
from lmc.report.reported_run import ReportedRun, is_finite
from lmc.runs.mean_of_runs import mean_of
from lmc.runs.registry import MODELS, method_title

_MACHINE = ("processor", "platform", "threads")  # what seconds depend on


class ComparedValue(NamedTuple):
    """A value as text, and whether it is the best of its column."""

    text: str
    best: bool = False


class Column(NamedTuple):
    """A column of the comparison; `higher` is which end is better, or None where neither is."""

    title: str
    value: Callable[[ReportedRun], float | None]
    show: Callable[[float | None], str]
    higher: bool | None


@dataclass(frozen=True)
class ComparisonTable:
    """Titles, and cells for every run."""

    titles: Sequence[str]
    rows: Sequence[Sequence[ComparedValue]]


def results(runs: Sequence[NamedRun]) -> ComparisonTable:
    """What each run reached, and what it took; a short time to a poor value is not marked as best."""
    records = [record for _, _, record in runs]
    higher = all(record.higher_is_better for record in records) if comparable(records) else None
    columns = (
        Column("best val", lambda run: run.best.val if run.best else None, formats.score, higher),
        Column("test at best", lambda run: run.best.test if run.best else None, formats.score, higher),
        Column("best epoch", lambda run: run.best.epoch if run.best else None, _count, None),
        Column(
            "time to best",
            lambda run: run.elapsed[run.best.epoch] if run.best else None,
            formats.seconds,
            None,
        ),
        Column("epoch, median", lambda run: run.seconds_per_epoch, formats.seconds, False),
        Column("memory of a step", lambda run: run.step_memory, formats.size, False),
        Column("process peak", lambda run: run.process_peak, formats.size, False),
    )
    by_column = [_cells(column, records) for column in columns]
    ends = [ComparedValue(_end(record)) for record in records]
    titles = [*(column.title for column in columns), "stopped"]
    return ComparisonTable(titles, list(zip(*by_column, ends, strict=True)))


def over_seeds(runs: Sequence[NamedRun]) -> ComparisonTable | None:
    """Means of the runs that differ in their seeds alone; None where there are none."""
    groups: dict[str, list[ReportedRun]] = {}
    for _, _, run in runs:
        rest = {key: value for key, value in flat(run.config).items() if key != "training.seed"}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(run)
    rows = [
        [
            ComparedValue(f"{method_of(group[0])}, {group[0].setting('model', 'name')}"),
            ComparedValue(str(len(group))),
            ComparedValue(_mean([run.best.val if run.best else None for run in group], 4)),
            ComparedValue(_mean([run.best.test if run.best else None for run in group], 4)),
            ComparedValue(_mean([run.seconds_per_epoch for run in group], 3)),
        ]
        for group in groups.values()
        if len(group) > 1
    ]
    return (
        ComparisonTable(["method", "seeds", "best val", "test at best", "seconds an epoch"], rows)
        if rows
        else None
    )


def _mean(values: Sequence[float | None], digits: int) -> str:
    known = mean_of([value if is_finite(value) else None for value in values])
    return formats.NOTHING if known is None else known.shown(digits)


def method_of(run: ReportedRun) -> str:
    """The method's name as people write it."""
    name = run.setting("method", "name") or formats.NOTHING
    return method_title(name, run.setting("method", "spider"))


def model_of(run: ReportedRun) -> str:
    """The model's name as people write it."""
    name = run.setting("model", "name") or formats.NOTHING
    return MODELS[name].title if name in MODELS else name


def differences(runs: Sequence[NamedRun]) -> ComparisonTable | None:
    """The settings in which the runs differ, or None where there are none."""
    settings = [flat(record.config) for _, _, record in runs]
    keys = list(dict.fromkeys(key for values in settings for key in values))
    keys = [key for key in keys if len({values.get(key, formats.NOTHING) for values in settings}) > 1]
    rows = [[ComparedValue(values.get(key, formats.NOTHING)) for key in keys] for values in settings]
    return ComparisonTable(keys, rows) if keys else None


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as one table of text, with dots in its names.

    >>> flat({"data": {"name": "arxiv"}, "training": {"parts": 80}})
    {'data.name': 'arxiv', 'training.parts': '80'}
    """
    found: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = formats.setting(value)
    return found


def comparable(records: Sequence[ReportedRun]) -> bool:
    """Whether the runs' values measure the same thing on the same data."""
    metrics = {record.metric for record in records if record.metric is not None}
    return len(metrics) <= 1 and len({record.setting("data", "name") for record in records}) == 1


def notes(runs: Sequence[NamedRun]) -> list[str]:
    """What a reader should know before comparing, a sentence each."""
    records = [record for _, _, record in runs]
    found = []
    for name, _, run in runs:
        if run.summary is None:
            rule = "its best epoch is the one with the highest validation value so far"
            found.append(f"{name} is unfinished (it has no summary.json): {rule}.")
        broken = [record.epoch for record in run.history if not is_finite(record.loss)]
        if broken:
            where = f"{len(broken)} of {len(run.history)} epochs, first in epoch {broken[0]}"
            found.append(f"{name}: the loss is not a finite number in {where}.")
    if not comparable(records):
        found.append("The runs differ in data or metric: their best values are not marked.")
    if len({tuple(str(run.environment.get(key)) for key in _MACHINE) for run in records}) > 1:
        found.append("The runs were not made on the same machine and threads: compare their times with care.")
    return found


def _cells(column: Column, records: Sequence[ReportedRun]) -> list[ComparedValue]:
    values = [column.value(record) for record in records]
    texts = [column.show(value) for value in values]
    known = [value for value in values if is_finite(value)]
    if column.higher is None or not known:
        return [ComparedValue(text) for text in texts]
    # By their text: of two values that read the same, a reader sees no better one.
    best = column.show(max(known) if column.higher else min(known))
    differ = len(set(texts) - {formats.NOTHING}) > 1
    return [ComparedValue(text, differ and text == best) for text in texts]


def _count(value: float | None) -> str:
    return formats.NOTHING if value is None else f"{value:,.0f}"


def _end(run: ReportedRun) -> str:
    number = len(run.history)
    end = "unfinished" if run.summary is None else run.summary.stopped
    return f"{end}, {number:,} epoch{'' if number == 1 else 's'}"
