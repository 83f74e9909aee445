"""Several methods from the same start on the same batches, side by side."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from rich.table import Table

from lmc import typed
from lmc.errors import ArgumentError, RunError
from lmc.files import one_line, write_atomically
from lmc.runs.config import Config
from lmc.training.records import Record, Result

STARTED = "comparison.toml"
"""What a comparison was asked for, so that it can go on."""


def begin(folder: Path, tree: Mapping[str, Any], methods: Sequence[str], target: float | None) -> None:
    """Keep what is asked for: settings, methods and target."""
    asked = {"methods": list(methods)} | ({} if target is None else {"target": target})
    text = tomli_w.dumps(asked | {"settings": dict(tree)})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / STARTED, lambda file: file.write(text.encode()))
    except OSError as error:
        raise RunError(f"{folder}: cannot be written to ({one_line(error)})") from None


def started_comparison(folder: Path) -> tuple[dict[str, Any], list[str], float | None]:
    """What `begin` kept: settings, methods and target; ArgumentError where it is none of ours."""
    file = folder / STARTED
    if not file.is_file():
        raise ArgumentError(f"{folder}: not the folder of a comparison (there is no {STARTED} in it)")

    def failing(line: str) -> ArgumentError:
        return ArgumentError(f"{file}: {line}")

    kept: _Started = typed.read("", Config.read(file), _Started, failing)
    return kept.settings, kept.methods, kept.target


@dataclass(frozen=True)
class _Started:
    methods: list[str]
    settings: dict[str, Any]
    target: float | None = None


@dataclass(frozen=True)
class ComparedMethod:
    """One method of a comparison.

    Attributes:
        method: its name.
        best: the best validation metric.
        test: the test metric at that epoch.
        epochs: until the target was first reached; None if it was not.
        seconds: of training until then.
        epoch_seconds: the median of an epoch.
        memory: the largest number of bytes held.
    """

    method: str
    best: float | None
    test: float | None
    epochs: int | None
    seconds: float | None
    epoch_seconds: float
    memory: int


def compare(
    results: Mapping[str, Result], target: float | None = None
) -> tuple[float | None, list[ComparedMethod]]:
    """The target and a row per method; by default the target is what every method reaches."""
    better = next(iter(results.values())).metric
    best = [result.best.val for result in results.values() if result.best and result.best.val is not None]
    if target is None and best:
        target = min(best) if better.higher_is_better else max(best)

    def reached(record: Record) -> bool:
        if target is None or record.val is None:
            return False
        return record.val >= target if better.higher_is_better else record.val <= target

    rows = []
    for method, result in results.items():
        first = next((place for place, record in enumerate(result.history) if reached(record)), None)
        rows.append(
            ComparedMethod(
                method,
                None if result.best is None else result.best.val,
                None if result.best is None else result.best.test,
                None if first is None else result.history[first].epoch,
                None if first is None else sum(r.seconds for r in result.history[: first + 1]),
                statistics.median([record.seconds for record in result.history] or [0.0]),
                max((record.memory for record in result.history), default=0),
            )
        )
    return target, rows


def cells(rows: Sequence[ComparedMethod], target: float | None) -> tuple[list[str], list[list[str]]]:
    """The heads and the lines of the table."""
    goal = "" if target is None else f" to {target:.4f}"
    heads = [
        "method",
        "best val",
        "test",
        f"epochs{goal}",
        f"seconds{goal}",
        "seconds an epoch",
        "peak memory",
    ]
    lines = [
        [
            row.method,
            _number(row.best, ".4f"),
            _number(row.test, ".4f"),
            _number(row.epochs, "d"),
            _number(row.seconds, ".1f"),
            f"{row.epoch_seconds:.2f}",
            f"{row.memory / 1e9:.2f} GB",
        ]
        for row in rows
    ]
    return heads, lines


def table(rows: Sequence[ComparedMethod], target: float | None) -> Table:
    """For a terminal."""
    heads, lines = cells(rows, target)
    shown = Table(title="Same start, same batches")
    for place, head in enumerate(heads):
        shown.add_column(head, justify="left" if place == 0 else "right")
    for line in lines:
        shown.add_row(*line)
    return shown


def write(folder: Path, rows: Sequence[ComparedMethod], target: float | None) -> None:
    """`comparison.md` and `comparison.json` in a folder."""
    heads, lines = cells(rows, target)
    marked = [heads, ["---"] * len(heads), *lines]
    text = "\n".join("| " + " | ".join(line) + " |" for line in marked) + "\n"
    write_atomically(folder / "comparison.md", lambda file: file.write(text.encode()))
    content: dict[str, Any] = {"target": target, "rows": [vars(row) for row in rows]}
    raw = json.dumps(content, indent=2) + "\n"
    write_atomically(folder / "comparison.json", lambda file: file.write(raw.encode()))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
