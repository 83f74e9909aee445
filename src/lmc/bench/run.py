"""The table: rows take turns, round after round, and are compared within each round."""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numba
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import lmc
from lmc.bench import rows
from lmc.bench.worker import Make, Worker
from lmc.files import write_atomically

PYG, FLOOR = "PyG full batch", "products alone (80/40)"
PYG_GCNII = "PyG full batch, GCNII"

QUICK: dict[str, Make] = {
    PYG: rows.pyg,
    "full batch": partial(rows.own, estimator=lmc.FullBatch()),
    "LMC 80/40, alpha 0": partial(rows.own, estimator=lmc.LMC(0), parts_per_batch=40),
    FLOOR: rows.products,
}
EVERY: dict[str, Make] = QUICK | {
    "LMC 80/10, alpha 0": partial(rows.own, estimator=lmc.LMC(0), parts_per_batch=10),
    "LMC 80/1, alpha 0": partial(rows.own, estimator=lmc.LMC(0), parts_per_batch=1),
    "LMC 80/40, alpha 1": partial(rows.own, estimator=lmc.LMC(1, "1"), parts_per_batch=40),
    "GAS 80/40": partial(rows.own, estimator=lmc.GAS(), parts_per_batch=40),
    "ClusterGCN 80/40": partial(rows.own, estimator=lmc.ClusterGCN(), parts_per_batch=40),
    PYG_GCNII: partial(rows.pyg, architecture="gcnii"),
    "LMC 80/40, alpha 0, GCNII": partial(
        rows.own, estimator=lmc.LMC(0), parts_per_batch=40, architecture="gcnii"
    ),
}
GOALS = {
    "full batch": 0.30,
    "LMC 80/40, alpha 0": 0.28,
    "LMC 80/10, alpha 0": 0.33,
    "LMC 80/40, alpha 1": 0.42,
    "LMC 80/40, alpha 0, GCNII": 0.35,
}
MEMORY = ("LMC 80/1, alpha 0", "LMC 80/10, alpha 0", "LMC 80/40, alpha 0", "full batch")


def bench(data: str, root: str | None, rounds: int, quick: bool, out: Path | None) -> dict[str, Any]:
    """Measure, print and (with `out`) keep the raw numbers as JSON."""
    console = Console()
    chosen = QUICK if quick else EVERY
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    seconds: dict[str, list[float]] = {}
    for model in ("GCN", "GCNII"):  # one after the other: together they would not fit in memory
        group = {name: make for name, make in chosen.items() if ("GCNII" in name) == (model == "GCNII")}
        if group:
            seconds |= _rounds(group, data, root, rounds, f"{model}, rounds", console)
    peaks = {} if quick else _peaks(data, root, console)
    result = {"started": started, "data": data, "machine": machine(), "seconds": seconds, "peak_bytes": peaks}
    console.print(_epochs(seconds))
    if peaks:
        console.print(_memory(peaks))
    if out is not None:
        write_atomically(out, lambda file: file.write(json.dumps(result, indent=2).encode()))
        console.print(f"raw numbers: {out}")
    return result


def _rounds(
    makes: dict[str, Make], data: str, root: str | None, rounds: int, title: str, console: Console
) -> dict[str, list[float]]:
    """Seconds of every row, round after round; the first round warms up."""
    workers = {name: Worker(make, data, root) for name, make in makes.items()}
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    try:
        for _ in track(range(rounds + 1), title, console=console):
            for name, worker in workers.items():
                seconds[name].append(worker.ask("epoch"))
    finally:
        for worker in workers.values():
            worker.close()
    return {name: measured[1:] for name, measured in seconds.items()}


def _peaks(data: str, root: str | None, console: Console) -> dict[str, int]:
    """Peak memory of the second epoch, when histories and the optimizer are in place."""
    peaks = {}
    for name in track(MEMORY, "memory", console=console):
        worker = Worker(EVERY[name], data, root, keep_buffers=False)
        try:
            worker.ask("epoch")
            peaks[name] = worker.ask("memory")
        finally:
            worker.close()
    return peaks


def machine() -> dict[str, str]:
    """What the numbers were measured on and with."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numba": numba.__version__,
        "lmc": lmc.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def ratios(seconds: dict[str, list[float]], name: str) -> list[float]:
    """A row over its reference, round by round."""
    reference = PYG_GCNII if "GCNII" in name else PYG
    return [own / other for own, other in zip(seconds[name], seconds[reference], strict=True)]


def _epochs(seconds: dict[str, list[float]]) -> Table:
    table = Table(title="One epoch: median of the rounds (lowest to highest)")
    for column in ("row", "seconds", "over PyG", "goal"):
        table.add_column(column, justify="left" if column == "row" else "right")
    for name, measured in seconds.items():
        goal = f"{GOALS[name]:.2f}" if name in GOALS else ""
        table.add_row(name, _spread(measured), _spread(ratios(seconds, name)), goal)
    lmc_epochs = seconds["LMC 80/40, alpha 0"]
    share = [floor / own for floor, own in zip(seconds[FLOOR], lmc_epochs, strict=True)]
    table.add_row("products, share of LMC 80/40", "", _spread(share), "0.70 or more")
    return table


def _memory(peaks: dict[str, int]) -> Table:
    table = Table(title="Peak memory of an epoch above features, graph and histories")
    for column in ("row", "MB", "over full batch"):
        table.add_column(column, justify="left" if column == "row" else "right")
    for name, peak in peaks.items():
        table.add_row(name, f"{peak / 1e6:,.0f}", f"{peak / peaks['full batch']:.3f}")
    return table


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compare(old: Path, new: dict[str, Any]) -> Table:
    """Rows of two runs, by their ratios."""
    before = json.loads(old.read_text(encoding="utf-8"))["seconds"]
    table = Table(title=f"Against {old}")
    for column in ("row", "before", "now", "now over before"):
        table.add_column(column, justify="left" if column == "row" else "right")
    for name in new["seconds"]:
        if name in before:
            was, now = (statistics.median(ratios(s, name)) for s in (before, new["seconds"]))
            table.add_row(name, f"{was:.3f}", f"{now:.3f}", f"{now / was:.2f}")
    return table
