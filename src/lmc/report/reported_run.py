"""A run folder, read for a report; a run that has not ended is read as far as it got."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from lmc import typed
from lmc.errors import ArgumentError, RunError
from lmc.runs.config import Config
from lmc.runs.folder import CONFIG, ENVIRONMENT, SUMMARY
from lmc.runs.metrics_file import read_metrics
from lmc.runs.places import METRICS
from lmc.runs.run import check_folder
from lmc.runs.summary import Summary, read_summary
from lmc.runs.text_files import content_of, in_file, json_of
from lmc.training.records import Record, most, step_memory_of


@dataclass(frozen=True)
class ReportedRun:
    """What the files of a run folder say.

    Attributes:
        folder: where it is.
        config: all settings, by section.
        environment: what it was made with and on; empty where that was not kept.
        history: one record per epoch.
        elapsed: seconds of training from the start to the end of an epoch, by its number.
        best: the record by which the run is judged.
        summary: None where the run has not ended.
    """

    folder: Path
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    history: Sequence[Record]
    elapsed: Mapping[int, float]
    best: Record | None
    summary: Summary | None

    def setting(self, section: str, key: str) -> str | None:
        """One value of the configuration as text, or None where there is none."""
        values = self.config.get(section)
        value = values.get(key) if isinstance(values, dict) else None
        return None if value is None else str(value)

    @property
    def metric(self) -> str | None:
        """What `train`, `val` and `test` are; None for a run that has not ended."""
        return None if self.summary is None else self.summary.metric

    @property
    def higher_is_better(self) -> bool:
        """True until a summary says otherwise."""
        return self.summary is None or self.summary.higher_is_better

    @property
    def seconds_per_epoch(self) -> float | None:
        """The median over the epochs."""
        return statistics.median(record.seconds for record in self.history) if self.history else None

    @property
    def step_memory(self) -> int | None:
        """The most bytes that steps took on top of features, graph and histories."""
        return step_memory_of(self.history)

    @property
    def process_peak(self) -> int | None:
        """The most bytes that the process held, of all that it holds."""
        return most(record.memory for record in self.history)


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a value, and it is a finite number.

    >>> is_finite(0.5), is_finite(None), is_finite(float("nan"))
    (True, False, False)
    """
    return value is not None and math.isfinite(value)


def run_folders(folder: Path) -> list[Path]:
    """A run folder itself, or those within one of several seeds or methods, in the order of their names."""
    if (folder / CONFIG).exists():
        return [folder]
    found = [file.parent for depth in ("*", "*/*") for file in folder.glob(f"{depth}/{CONFIG}")]
    return sorted(found, key=_natural) or [folder]


def _natural(folder: Path) -> list[tuple[bool, int, str]]:
    """An order in which seed-10 follows seed-9."""
    parts = re.split(r"(\d+)", str(folder))
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def read_run(folder: Path) -> ReportedRun:
    """Read a run folder: `config.toml` and `metrics.jsonl`, and the other files where they are."""
    if not folder.is_dir():
        raise ArgumentError(f"{folder}: no such run folder")
    check_folder(folder)
    config, history = Config.read(folder / CONFIG), read_metrics(folder / METRICS)
    summary = read_summary(folder / SUMMARY) if (folder / SUMMARY).exists() else None
    passed = accumulate(record.seconds for record in history)
    return ReportedRun(
        folder=folder,
        config=config,
        environment=_environment(folder / ENVIRONMENT),
        history=history,
        elapsed={record.epoch: seconds for record, seconds in zip(history, passed, strict=True)},
        best=_highest(history) if summary is None else _named(folder / SUMMARY, summary, history),
        summary=summary,
    )


def _environment(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    found: dict[str, Any] = typed.read(
        "", json_of(str(file), content_of(file)), dict[str, Any], in_file(str(file))
    )
    return found


def _highest(history: Sequence[Record]) -> Record | None:
    """The first epoch with the highest validation value so far."""
    judged = [(record.val, record) for record in history if is_finite(record.val)]
    return max(judged, key=lambda pair: pair[0])[1] if judged else None


def _named(file: Path, summary: Summary, history: Sequence[Record]) -> Record | None:
    """The epoch that the summary calls the best, as it is in the metrics."""
    if summary.best is None:
        return None
    epoch = summary.best.epoch
    for record in history:
        if record.epoch == epoch:
            return record
    raise RunError(f"{file}: best.epoch={epoch}: {METRICS} has no such epoch")
