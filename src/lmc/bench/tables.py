"""What the benchmark's raw numbers say, as tables of ratios."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from lmc.errors import ArgumentError
from lmc.files import one_line, read_text_bytes

PYG, FLOOR = "PyG full batch", "products alone (80/40)"
FULL_BATCH = "full batch"
LMC_COARSE, LMC_SINGLE = "LMC 80/40, alpha 0", "LMC 80/1, alpha 0"
LMC_MIDDLE, SPIDER = "LMC 80/10", "LMC 80/10, SPIDER's small steps"
PYG_KEEPING, LMC_MIDDLE_HALF = "PyG full batch, our malloc", "LMC 80/10, alpha 0, half"
COARSE_BF16, MIDDLE_BF16 = "LMC 80/40, alpha 0, bf16", "LMC 80/10, alpha 0, bf16"
CLUSTER_COARSE, GAS_COARSE, TOP_COARSE = "Cluster-GCN 80/40", "GAS 80/40", "TOP 80/40"

Curve = list[tuple[float, float]]
Seconds = dict[str, list[float]]
"""Of rows that took turns, round by round; the first of them is what the others are measured by."""

GOALS = {
    FULL_BATCH: 0.30,
    LMC_COARSE: 0.15,
    COARSE_BF16: 0.08,
    "LMC 80/40, alpha 1": 0.42,
    "LMC 80/40, alpha 0, GCNII": 0.35,
}
BESIDE = {
    (FLOOR, LMC_COARSE): "0.70 or more",
    (LMC_COARSE, PYG_KEEPING): "0.30 or less",
    ("LMC 80/10, alpha 0", PYG_KEEPING): "0.36 or less",
    (COARSE_BF16, PYG_KEEPING): "0.17 or less",
    (MIDDLE_BF16, PYG_KEEPING): "0.22 or less",
    (COARSE_BF16, LMC_COARSE): "0.60 or less",
    (MIDDLE_BF16, "LMC 80/10, alpha 0"): "0.60 or less",
    (TOP_COARSE, CLUSTER_COARSE): "1.30 or less",
    (SPIDER, LMC_MIDDLE): "2.10 or less",
}
"""Pairs of rows that took turns: what the first over the second should be."""
MEMORY_BESIDE = {
    (TOP_COARSE, GAS_COARSE): "1.20 or less",
    (COARSE_BF16, LMC_COARSE): "0.60 or less",
    (MIDDLE_BF16, "LMC 80/10, alpha 0"): "0.60 or less",
}
STEP_GOALS = {LMC_SINGLE: 0.050}
PROCESS_GOALS = {"LMC 80/10, alpha 0": 0.500, LMC_MIDDLE_HALF: 0.500}


def of(result: dict[str, Any]) -> Iterator[Table]:
    """Every table that the numbers are enough for."""
    yield _epochs(result["seconds"])
    if "peak_bytes" in result:
        yield _memory(result["peak_bytes"], result["process_bytes"])
    if "growth" in result:
        yield _growth(result["growth"])
    if "curves" in result:
        yield _time_to_accuracy(result["curves"])


def ratios(seconds: Seconds, name: str, to: str | None = None) -> list[float]:
    """A row over another, the first where none is named, round by round.

    >>> ratios({"PyG": [4.0, 2.0], "LMC": [1.0, 1.0]}, "LMC")
    [0.25, 0.5]
    """
    reference = seconds[to or next(iter(seconds))]
    return [own / other for own, other in zip(seconds[name], reference, strict=True)]


def reached(curve: Curve, target: float) -> float | None:
    """The seconds until the accuracy is first at the target, or None.

    >>> reached([(1.0, 0.2), (2.0, 0.6), (3.0, 0.5)], 0.5)
    2.0
    """
    return next((seconds for seconds, accuracy in curve if accuracy >= target), None)


def _epochs(groups: list[Seconds]) -> Table:
    table = _table("One epoch: median of the rounds (lowest to highest)", "seconds", "over PyG", "goal")
    for seconds in groups:
        for name, measured in seconds.items():
            goal = f"{GOALS[name]:.2f}" if name in GOALS else ""
            table.add_row(name, _spread(measured), _spread(ratios(seconds, name)), goal)
        table.add_section()
    for (name, other), goal in BESIDE.items():
        for seconds in groups:
            if name in seconds and other in seconds:
                table.add_row(f"{name} over {other}", "", _spread(ratios(seconds, name, other)), goal)
    return table


def _memory(steps: dict[str, int], processes: dict[str, int]) -> Table:
    title = "Peak memory: of a step, above features, graph and histories; of the whole process"
    of_each = ("over full batch", "goal")
    table = _table(title, "step, MB", *of_each, "process, MB", *of_each)
    for name in steps:
        cells = []
        for peaks, goals in ((steps, STEP_GOALS), (processes, PROCESS_GOALS)):
            goal = f"{goals[name]:.3f}" if name in goals else ""
            cells += [f"{peaks[name] / 1e6:,.0f}", f"{peaks[name] / peaks[FULL_BATCH]:.3f}", goal]
        table.add_row(name, *cells)
    for (name, other), goal in MEMORY_BESIDE.items():
        if name in steps:
            table.add_row(f"{name} over {other}", f"{steps[name] / steps[other]:.2f}", "", goal)
    return table


def _growth(seconds: dict[str, list[float]]) -> Table:
    title = "Growth: LMC 80/40, alpha 0, on the embedded graph"
    table = _table(title, "seconds an epoch", "microseconds a node", "over the first", "goal")
    first = None
    for nodes, measured in seconds.items():
        each = statistics.median(measured) / int(nodes)
        first = first or each
        table.add_row(
            f"{int(nodes):,} nodes",
            _spread(measured),
            f"{1e6 * each:.2f}",
            f"{each / first:.2f}",
            "0.80 to 1.25",
        )
    return table


def _time_to_accuracy(groups: list[dict[str, Curve]]) -> Table:
    pyg = groups[0][PYG]
    target = pyg[-1][1]
    title = f"Seconds to {target:.4f}, the validation accuracy of PyG after {len(pyg)} epochs"
    table = _table(title, "seconds", "epochs", "over PyG", "best accuracy")
    for curves in groups:
        reference = reached(curves[PYG], target)
        for name, curve in curves.items():
            seconds, best = reached(curve, target), f"{max(accuracy for _, accuracy in curve):.4f}"
            if seconds is None or reference is None:
                table.add_row(name, f"not within {len(curve)} epochs", "", "", best)
            else:
                epochs = sum(1 for passed, _ in curve if passed <= seconds)
                table.add_row(name, f"{seconds:.1f}", str(epochs), f"{seconds / reference:.3f}", best)
        table.add_section()
    return table


def earlier(file: Path) -> dict[str, float]:
    """The median ratios of a bench that was kept."""
    try:
        return _median_ratios(json.loads(read_text_bytes(file))["seconds"])
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ArgumentError(f"{file}: not the numbers of a bench ({one_line(error)})") from None


def compare(before: dict[str, float], groups: list[Seconds]) -> Table:
    """Rows of two runs, by their ratios."""
    table = _table("Against the earlier run", "before", "now", "now over before")
    for name, now in _median_ratios(groups).items():
        if name in before:
            table.add_row(name, f"{before[name]:.3f}", f"{now:.3f}", f"{now / before[name]:.2f}")
    return table


def _median_ratios(groups: list[Seconds]) -> dict[str, float]:
    return {name: statistics.median(ratios(seconds, name)) for seconds in groups for name in seconds}


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    table.add_column("row")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
