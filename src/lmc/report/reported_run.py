"""A run folder, read into one record; a run that has not ended is read as far as it got."""

from __future__ import annotations

import math
import reprlib
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from lmc.errors import ArgumentError, RunError
from lmc.report import untrusted
from lmc.report.untrusted import Record


@dataclass(frozen=True)
class Epoch:
    """One line of `metrics.jsonl`; None where something was not measured."""

    number: int
    loss: float | None
    val: float | None
    test: float | None
    seconds: float
    elapsed: float  # training seconds from the start to the end of this epoch
    memory: float | None
    gradient_error: float | None


@dataclass(frozen=True)
class Confusion:
    """How many nodes of each class (row) were taken for which class (column)."""

    split: str
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RunRecord:
    """What the files of a run folder say."""

    folder: Path
    config: Record
    environment: Record
    epochs: tuple[Epoch, ...]
    best: Epoch | None
    metric: str | None
    higher_is_better: bool
    stopped: str | None  # None: the run has not ended
    facts: Record
    confusion: Confusion | None

    def setting(self, section: str, key: str) -> str | None:
        """One value of the configuration as text, or None where there is none."""
        values = self.config.get(section)
        value = values.get(key) if isinstance(values, dict) else None
        return None if value is None else str(value)

    @property
    def seconds_per_epoch(self) -> float | None:
        """The median over the epochs."""
        return statistics.median(epoch.seconds for epoch in self.epochs) if self.epochs else None

    @property
    def peak_memory(self) -> float | None:
        """The most bytes that any epoch took."""
        return max((epoch.memory for epoch in self.epochs if is_finite(epoch.memory)), default=None)


def is_finite(value: float | None) -> TypeGuard[float]:
    """Whether there is a value, and it is a finite number.

    >>> is_finite(0.5), is_finite(None), is_finite(float("nan"))
    (True, False, False)
    """
    return value is not None and math.isfinite(value)


def read_run(folder: Path) -> RunRecord:
    """Read a run folder: `config.toml` and `metrics.jsonl`, and the other files where they are."""
    if not folder.is_dir():
        raise ArgumentError(f"{folder}: no such run folder")
    file = folder / "config.toml"
    config = untrusted.toml_record(str(file), untrusted.content(file))
    epochs = _epochs(folder / "metrics.jsonl")
    where = str(folder / "summary.json")
    summary = _optional(folder / "summary.json")
    ended = summary is not None
    summary = summary or {}
    higher_is_better = summary.get("higher_is_better", True)
    if not isinstance(higher_is_better, bool):
        raise RunError(f"{where}: higher_is_better={reprlib.repr(higher_is_better)}: must be true or false")
    return RunRecord(
        folder=folder,
        config=config,
        environment=_optional(folder / "environment.json") or {},
        epochs=epochs,
        best=_best(where, summary, epochs, higher_is_better),
        metric=untrusted.text(where, summary, "metric"),
        higher_is_better=higher_is_better,
        stopped=(untrusted.text(where, summary, "stopped") or "finished") if ended else None,
        facts=_facts(where, summary),
        confusion=_confusion(where, summary),
    )


def _optional(file: Path) -> Record | None:
    return untrusted.json_record(str(file), untrusted.content(file)) if file.exists() else None


def _epochs(file: Path) -> tuple[Epoch, ...]:
    lines = untrusted.content(file).split(b"\n")
    *whole_lines, last = lines
    # What follows the last newline was being written when the run died, unless it is a whole object.
    try:
        untrusted.json_record(str(file), last)
        whole_lines.append(last)
    except RunError:
        pass
    epochs: list[Epoch] = []
    elapsed = 0.0
    for count, line in enumerate(whole_lines, start=1):
        where = f"{file}, line {count}"
        epoch = _epoch(where, untrusted.json_record(where, line), elapsed)
        if epochs and epoch.number <= epochs[-1].number:
            raise RunError(
                f"{where}: epoch={epoch.number}: must be above {epochs[-1].number}, the one before"
            )
        epochs.append(epoch)
        elapsed = epoch.elapsed
    return tuple(epochs)


def _epoch(where: str, record: Record, elapsed: float) -> Epoch:
    seconds = untrusted.number(where, record, "seconds")
    if seconds is None or not 0 <= seconds < math.inf:
        raise RunError(f"{where}: seconds={seconds}: must be a finite number, 0 or more")
    return Epoch(
        number=untrusted.whole(where, record, "epoch", 1),
        loss=untrusted.number(where, record, "loss"),
        val=untrusted.number(where, record, "val"),
        test=untrusted.number(where, record, "test"),
        seconds=seconds,
        elapsed=elapsed + seconds,
        memory=untrusted.number(where, record, "memory"),
        gradient_error=untrusted.number(
            f"{where}: gradient_error", untrusted.table(where, record, "gradient_error"), "total"
        ),
    )


def _best(where: str, summary: Record, epochs: tuple[Epoch, ...], higher: bool) -> Epoch | None:
    """The epoch the summary names; without one, the first with the best validation value."""
    named = untrusted.table(where, summary, "best")
    if named:
        number = untrusted.whole(f"{where}: best", named, "epoch", 1)
        for epoch in epochs:
            if epoch.number == number:
                return epoch
        raise RunError(f"{where}: best.epoch={number}: metrics.jsonl has no such epoch")
    sign = 1 if higher else -1
    judged = [(sign * epoch.val, epoch) for epoch in epochs if is_finite(epoch.val)]
    return max(judged, key=lambda pair: pair[0])[1] if judged else None


def _facts(where: str, summary: Record) -> Record:
    """What else the summary counts: of the graph and of the model."""
    facts = dict(untrusted.table(where, summary, "graph"))
    if "parameters" in summary:
        facts["parameters"] = summary["parameters"]
    return facts


def _confusion(where: str, summary: Record) -> Confusion | None:
    given = untrusted.table(where, summary, "confusion")
    if not given:
        return None
    rows: Any = given.get("counts")
    where = f"{where}: confusion"
    if not isinstance(rows, list) or not rows:
        raise RunError(f"{where}: counts={reprlib.repr(rows)}: must be a list of rows")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(rows):
            raise RunError(f"{where}: counts[{number}]={reprlib.repr(row)}: must hold {len(rows)} counts")
        for count in row:
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63:
                what = f"counts[{number}] holds {reprlib.repr(count)}"
                raise RunError(f"{where}: {what}: counts must be integers, 0 or more")
    return Confusion(untrusted.text(where, given, "split") or "unknown", tuple(map(tuple, rows)))
