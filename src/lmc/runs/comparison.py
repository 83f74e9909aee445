"""Several methods from the same start on the same batches, side by side."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from lmc import typed
from lmc.errors import ArgumentError, RunError
from lmc.files import one_line, write_atomically
from lmc.runs.config import Config
from lmc.runs.mean_of_runs import MeanOfRuns, mean_of
from lmc.runs.registry import METHODS
from lmc.runs.stacked_table import StackedTable
from lmc.training.records import Record, Result, most, step_memory_of

MEMORY = (
    "Memory of a step is what comes on top of features, graph and histories; the process peak is all of it."
)

STARTED = "comparison.toml"
WRITTEN = (STARTED, "comparison.json", "comparison.md", "report.html")
"""What a comparison was asked for, so that it can go on."""


@dataclass(frozen=True)
class Asked:
    """What a comparison is asked for.

    Attributes:
        methods: by name.
        settings: of every run, by section.
        target: the validation metric to reach; None for what all methods reach.
        seeds: how many runs each method has.
    """

    methods: list[str]
    settings: dict[str, Any]
    target: float | None = None
    seeds: int = 1


def begin(folder: Path, asked: Asked) -> None:
    """Keep what is asked for."""
    text = tomli_w.dumps({name: value for name, value in asdict(asked).items() if value is not None})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / STARTED, lambda file: file.write(text.encode()))
    except OSError as error:
        raise RunError(f"{folder}: cannot be written to ({one_line(error)})") from None


def started_comparison(folder: Path) -> Asked:
    """What `begin` kept; ArgumentError where it is none of ours."""
    file = folder / STARTED
    if not file.is_file():
        raise ArgumentError(f"{folder}: not the folder of a comparison (there is no {STARTED} in it)")

    def failing(line: str) -> ArgumentError:
        return ArgumentError(f"{file}: {line}")

    asked: Asked = typed.read("", Config.read(file), Asked, failing)
    return asked


@dataclass(frozen=True)
class ComparedMethod:
    """One method of a comparison.

    Attributes:
        method: its name.
        best: the best validation metric; of several seeds, the mean of them, here and below.
        test: the test metric at that epoch.
        epochs: until the target was first reached; None if it was not, by one of the seeds.
        seconds: of training until then.
        epoch_seconds: the median of an epoch.
        step_memory: the most bytes that steps took on top of features, graph and histories.
        memory: the most bytes that the process held, of all that it holds.
        best_deviation: of `best` over the seeds; None where there is one.
        test_deviation: of `test` over the seeds.
    """

    method: str
    best: float | None
    test: float | None
    epochs: float | None
    seconds: float | None
    epoch_seconds: float
    step_memory: int | None
    memory: int
    best_deviation: float | None = None
    test_deviation: float | None = None


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
                step_memory_of(result.history),
                max((record.memory for record in result.history), default=0),
            )
        )
    return target, rows


def over_seeds(runs: Mapping[str, Sequence[ComparedMethod]]) -> list[ComparedMethod]:
    """A row per method, the mean of the rows of its seeds."""
    rows = []
    for method, seeds in runs.items():
        best, test = mean_of([row.best for row in seeds]), mean_of([row.test for row in seeds])
        rows.append(
            ComparedMethod(
                method,
                _mean(best),
                _mean(test),
                _mean(mean_of([row.epochs for row in seeds])),
                _mean(mean_of([row.seconds for row in seeds])),
                statistics.fmean(row.epoch_seconds for row in seeds),
                most(row.step_memory for row in seeds),
                max(row.memory for row in seeds),
                None if best is None else best.deviation,
                None if test is None else test.deviation,
            )
        )
    return rows


def _mean(runs: MeanOfRuns | None) -> float | None:
    return None if runs is None else runs.mean


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
        "memory of a step",
        "process peak",
    ]
    lines = [
        [
            row.method,
            _number(row.best, ".4f") + _deviation(row.best_deviation),
            _number(row.test, ".4f") + _deviation(row.test_deviation),
            _number(row.epochs, "d" if isinstance(row.epochs, int) else ".1f"),
            _number(row.seconds, ".1f"),
            f"{row.epoch_seconds:.2f}",
            "-" if row.step_memory is None else f"{row.step_memory / 1e9:.2f} GB",
            f"{row.memory / 1e9:.2f} GB",
        ]
        for row in rows
    ]
    return heads, lines


def table(rows: Sequence[ComparedMethod], target: float | None) -> StackedTable:
    """For a terminal."""
    return StackedTable(_title(rows), *cells(rows, target), caption=MEMORY)


def _title(rows: Sequence[ComparedMethod]) -> str:
    """What all rows have in common."""
    own_batches = [row.method for row in rows if row.method != "gd" and not METHODS[row.method].clusters]
    return "Same settings, batches as each method makes them" if own_batches else "Same start, same batches"


def write(folder: Path, rows: Sequence[ComparedMethod], target: float | None) -> None:
    """`comparison.md` and `comparison.json` in a folder."""
    heads, lines = cells(rows, target)
    marked = [heads, ["---"] * len(heads), *lines]
    text = "\n".join("| " + " | ".join(line) + " |" for line in marked) + f"\n\n{MEMORY}\n"
    write_atomically(folder / "comparison.md", lambda file: file.write(text.encode()))
    content: dict[str, Any] = {"target": target, "rows": [vars(row) for row in rows]}
    raw = json.dumps(content, indent=2) + "\n"
    write_atomically(folder / "comparison.json", lambda file: file.write(raw.encode()))


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _deviation(value: float | None) -> str:
    return "" if value is None else f" ± {value:.4f}"
