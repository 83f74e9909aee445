"""The benchmark: rows take turns, round after round, and are compared within each round."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import lmc
from lmc.bench import rows, tables
from lmc.bench.worker import Load, Make, Worker
from lmc.files import write_atomically
from lmc.runs.environment import environment

Job = tuple[Make, Load]

QUICK: dict[str, Make] = {
    tables.PYG: rows.pyg,
    "full batch": partial(rows.own, estimator=lmc.FullBatch()),
    "LMC 80/40, alpha 0": partial(rows.own, estimator=lmc.LMC(0), parts_per_batch=40),
    "LMC 80/40, alpha 0, PyG's GCN wrapped": partial(
        rows.own, estimator=lmc.LMC(0), parts_per_batch=40, make_model=rows.wrapped_gcn
    ),
    tables.FLOOR: rows.products,
}
EPOCHS: dict[str, Make] = QUICK | {
    "LMC 80/10, alpha 0": partial(rows.own, estimator=lmc.LMC(0), parts_per_batch=10),
    "LMC 80/1, alpha 0": partial(rows.own, estimator=lmc.LMC(0), parts_per_batch=1),
    "LMC 80/40, alpha 1": partial(rows.own, estimator=lmc.LMC(1, "1"), parts_per_batch=40),
    "GAS 80/40": partial(rows.own, estimator=lmc.GAS(), parts_per_batch=40),
    "ClusterGCN 80/40": partial(rows.own, estimator=lmc.ClusterGCN(), parts_per_batch=40),
    "preparation": rows.preparation,
}
GCNII: dict[str, Make] = {
    tables.PYG_GCNII: partial(rows.pyg, architecture="gcnii"),
    "LMC 80/40, alpha 0, GCNII": partial(
        rows.own, estimator=lmc.LMC(0), parts_per_batch=40, make_model=rows.gcnii
    ),
}
MEMORY = ("LMC 80/1, alpha 0", "LMC 80/10, alpha 0", "LMC 80/40, alpha 0", "full batch")
GROWTH: dict[str, Job] = {
    str(nodes): (EPOCHS["LMC 80/40, alpha 0"], partial(lmc.synthetic, nodes))
    for nodes in (100_000, 300_000, 1_000_000)
}
# Many small clusters: batches that are closer to the graph in their statistics, and many steps an epoch.
FINE = partial(rows.own, parts=1280, parts_per_batch=80, decay_over=20)
ACCURACY: dict[str, tuple[Make, int]] = {  # and the epochs
    tables.PYG: (rows.pyg, 60),
    "full batch": (EPOCHS["full batch"], 60),
    "LMC 80/10, alpha 0": (EPOCHS["LMC 80/10, alpha 0"], 40),
    "LMC 1280/80, alpha 0, cosine": (partial(FINE, estimator=lmc.LMC(0)), 20),
    "LMC 1280/80, alpha 0.4, cosine": (partial(FINE, estimator=lmc.LMC(0.4)), 20),
    "GAS 1280/80, cosine": (partial(FINE, estimator=lmc.GAS()), 20),
    "GraphFM 1280/80, cosine": (partial(FINE, estimator=lmc.GraphFM()), 20),
    "ClusterGCN 1280/80, cosine": (partial(FINE, estimator=lmc.ClusterGCN()), 20),
}


def bench(data: str, root: str | None, rounds: int, quick: bool, out: Path | None) -> dict[str, Any]:
    """Measure, print and (with `out`) keep the raw numbers as JSON."""
    console = Console()
    if not console.is_terminal:
        console.width = 120  # a log has room for the tables
    load: Load = partial(lmc.load, data, root)
    result: dict[str, Any] = {"data": data, "machine": environment()}
    if quick:
        result["seconds"] = seconds_of(_on(QUICK, load), rounds, "epochs", console)
    else:
        # One group after the other: together they would not fit in memory.
        result["seconds"] = seconds_of(_on(EPOCHS, load), rounds, "GCN", console)
        result["seconds"] |= seconds_of(_on(GCNII, load), rounds, "GCNII", console)
        result["peak_bytes"] = peaks_of(_on({name: EPOCHS[name] for name in MEMORY}, load), "memory", console)
        result["growth"] = seconds_of(GROWTH, rounds, "growth", console)
        result["curves"] = _curves(load, console)
    for table in tables.of(result):
        console.print(table)
    if out is not None:
        write_atomically(out, lambda file: file.write(json.dumps(result, indent=2).encode()))
        console.print(f"raw numbers: {out}")
    return result


@contextmanager
def _workers(jobs: dict[str, Job]) -> Iterator[dict[str, Worker]]:
    workers = {name: Worker(*job) for name, job in jobs.items()}
    try:
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


def _on(makes: dict[str, Make], load: Load) -> dict[str, Job]:
    return {name: (make, load) for name, make in makes.items()}


def seconds_of(jobs: dict[str, Job], rounds: int, title: str, console: Console) -> dict[str, list[float]]:
    """Seconds of every row, round after round; the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    with _workers(jobs) as workers:
        for _ in track(range(rounds + 1), title, console=console):
            for name, worker in workers.items():
                seconds[name].append(worker.ask("epoch"))
    return {name: measured[1:] for name, measured in seconds.items()}


def peaks_of(jobs: dict[str, Job], title: str, console: Console) -> dict[str, int]:
    """Peak memory of the second epoch of every row, when histories and the optimizer are in place."""
    peaks = {}
    for name, job in track(jobs.items(), title, console=console):
        worker = Worker(*job, keep_buffers=False)
        try:
            worker.ask("epoch")
            peaks[name] = worker.ask("memory")
        finally:
            worker.close()
    return peaks


def _curves(load: Load, console: Console) -> dict[str, list[tuple[float, float]]]:
    """(seconds so far, validation accuracy) of every row after each epoch, in turns."""
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in ACCURACY}
    with _workers({name: (make, load) for name, (make, _) in ACCURACY.items()}) as workers:
        for epoch in track(range(ACCURACY[tables.PYG][1]), "accuracy", console=console):
            for name, worker in workers.items():
                if epoch < ACCURACY[name][1]:
                    before = curves[name][-1][0] if curves[name] else 0.0
                    seconds = worker.ask("epoch")
                    curves[name].append((before + seconds, worker.ask("accuracy")))
    return curves
