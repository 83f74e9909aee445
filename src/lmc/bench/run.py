"""The benchmark: rows take turns, round after round, and are compared within each round."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import lmc
from lmc.batching.samplers import BatchOptions
from lmc.bench import rows, tables
from lmc.bench.torch_sampling import pyg_neighbors
from lmc.bench.worker import Load, Make, Worker
from lmc.files import write_atomically
from lmc.runs.environment import environment
from lmc.runs.registry import METHODS, TRAINING_METHODS
from lmc.tidying import tidying

Job = tuple[Make, Load]

COARSE, MIDDLE, SINGLE = rows.COARSE, BatchOptions(80, 10), BatchOptions(80, 1)
# Many small clusters: batches that are closer to the graph in their statistics, and many steps an epoch.
FINE = BatchOptions(1280, 80)

ALPHA_0 = lmc.LMC(alpha=0)


def _by_name(name: str, **options: Any) -> Make:
    """A method with its default options, and the model that it brings; else the GCN of the benchmark."""
    method = METHODS[name]
    model = None if method.model is None else partial(rows.brought, method.model)
    return partial(rows.own, estimator=method.load()(), make_model=model, **options)


# Rows that take turns are alive at the same time: a group has as many as fit in memory, beside the row of PyG
# that it begins with.
QUICK: dict[str, Make] = {
    tables.PYG: rows.pyg,
    tables.PYG_KEEPING: rows.pyg_keeping_buffers,
    tables.FULL_BATCH: partial(rows.own, estimator=lmc.FullBatch()),
    tables.LMC_COARSE: partial(rows.own, estimator=ALPHA_0, batches=COARSE),
    "LMC 80/40, alpha 0, PyG's GCN wrapped": partial(
        rows.own, estimator=ALPHA_0, batches=COARSE, make_model=rows.wrapped_gcn
    ),
    tables.COARSE_BF16: partial(rows.own, estimator=ALPHA_0, batches=COARSE, precision="bf16"),
    "LMC 80/10, alpha 0": partial(rows.own, estimator=ALPHA_0, batches=MIDDLE),
    tables.MIDDLE_BF16: partial(rows.own, estimator=ALPHA_0, batches=MIDDLE, precision="bf16"),
    tables.LMC_MIDDLE_HALF: partial(rows.own, estimator=ALPHA_0, batches=MIDDLE, precision="half"),
    tables.LMC_MIDDLE: partial(rows.own, estimator=lmc.LMC(), batches=MIDDLE),
    tables.FLOOR: rows.products,
}
# Every training method with its default options: on the same clusters, or on batches of its own.
ON_CLUSTERS = [name for name in TRAINING_METHODS if METHODS[name].clusters]
ON_OWN_BATCHES = [name for name in TRAINING_METHODS if not METHODS[name].clusters and name != "gd"]
SAME_CLUSTERS: dict[str, Make] = {
    tables.PYG: rows.pyg,
    tables.LMC_SINGLE: partial(rows.own, estimator=ALPHA_0, batches=SINGLE),
    "LMC 80/40, alpha 1": partial(rows.own, estimator=lmc.LMC(alpha=1, score="1"), batches=COARSE),
    **{
        f"{METHODS[name].title} 80/40": partial(rows.own, estimator=METHODS[name].load()(), batches=COARSE)
        for name in ON_CLUSTERS
    },
    "preparation": rows.preparation,
}
OWN_BATCHES: dict[str, Make] = {
    tables.PYG: rows.pyg,
    **{METHODS[name].title: _by_name(name) for name in ON_OWN_BATCHES},
    "neighbour sampling in PyG": pyg_neighbors,
}
GCNII: dict[str, Make] = {
    "PyG full batch, GCNII": partial(rows.pyg, architecture="gcnii"),
    "LMC 80/40, alpha 0, GCNII": partial(rows.own, estimator=ALPHA_0, batches=COARSE, make_model=rows.gcnii),
}
MORE_OF_LMC: dict[str, Make] = {
    tables.PYG: rows.pyg,
    tables.LMC_MIDDLE: QUICK[tables.LMC_MIDDLE],
    # Small steps alone: no epoch that is timed has another large batch.
    tables.SPIDER: partial(
        rows.own, estimator=lmc.Spider(lmc.LMC(), every=1_000_000, large=10), batches=MIDDLE
    ),
}
GROUPS = {
    **{"GCN": QUICK, "same clusters": SAME_CLUSTERS, "own batches": OWN_BATCHES},
    **{"more of LMC": MORE_OF_LMC, "GCNII": GCNII},
}
MEMORY = (
    tables.PYG,
    tables.LMC_SINGLE,
    "LMC 80/10, alpha 0",
    tables.LMC_MIDDLE_HALF,
    tables.MIDDLE_BF16,
    tables.LMC_MIDDLE,
    tables.LMC_COARSE,
    tables.COARSE_BF16,
    tables.GAS_COARSE,
    tables.TOP_COARSE,
    tables.FULL_BATCH,
)
GROWTH: dict[str, Job] = {
    str(nodes): (QUICK[tables.LMC_COARSE], partial(lmc.synthetic, nodes))
    for nodes in (100_000, 300_000, 1_000_000)
}
_fine = partial(rows.own, batches=FINE, decay_over=20)
ACCURACY: list[dict[str, tuple[Make, int]]] = [  # and the epochs
    {
        tables.PYG: (rows.pyg, 60),
        tables.FULL_BATCH: (QUICK[tables.FULL_BATCH], 60),
        "LMC 80/10, alpha 0": (QUICK["LMC 80/10, alpha 0"], 40),
        "LMC 1280/80, alpha 0, cosine": (partial(_fine, estimator=ALPHA_0), 20),
        **{
            f"{METHODS[name].title} 1280/80, cosine": (partial(_fine, estimator=METHODS[name].load()()), 20)
            for name in ON_CLUSTERS
        },
    },
    {
        tables.PYG: (rows.pyg, 60),
        **{f"{METHODS[name].title}, cosine": (_by_name(name, decay_over=20), 20) for name in ON_OWN_BATCHES},
    },
]


def bench(data: str, root: str | None, rounds: int, quick: bool, out: Path | None) -> dict[str, Any]:
    """Measure, print and (with `out`) keep the raw numbers as JSON."""
    console = Console()
    if not console.is_terminal:
        console.width = 120  # a log has room for the tables
    load: Load = partial(lmc.load, data, root)
    result: dict[str, Any] = {"data": data, "machine": environment()}
    # One group after the other: together they would not fit in memory.
    groups = {"GCN": QUICK} if quick else GROUPS
    result["seconds"] = [
        seconds_of(_on(group, load), rounds, title, console) for title, group in groups.items()
    ]
    makes = {name: make for group in groups.values() for name, make in group.items()}
    in_memory = _on({name: makes[name] for name in MEMORY if name in makes}, load)
    result["peak_bytes"] = peaks_of(in_memory, "memory of a step", console)
    result["process_bytes"] = process_peaks_of(in_memory, "process peak", console)
    if not quick:
        result["growth"] = seconds_of(GROWTH, rounds, "growth", console)
        result["curves"] = [_curves(group, load, console) for group in ACCURACY]
    for table in tables.of(result):
        console.print(table)
    if out is not None:
        write_atomically(out, lambda file: file.write(json.dumps(result, indent=2).encode()))
        console.print(f"raw numbers: {out}")
    return result


@contextmanager
def _workers(jobs: dict[str, Job]) -> Iterator[dict[str, Worker]]:
    with ExitStack() as stack:
        workers = {}
        for name, job in jobs.items():
            workers[name] = Worker(*job)
            stack.enter_context(tidying(workers[name].close))
        yield workers


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
    """What the second epoch of every row takes at most above features, graph and histories."""
    peaks = {}
    for name, job in track(jobs.items(), title, console=console):
        worker = Worker(*job, keep_buffers=False)
        with tidying(worker.close):
            worker.ask("epoch")
            peaks[name] = worker.ask("memory")
    return peaks


def process_peaks_of(jobs: dict[str, Job], title: str, console: Console) -> dict[str, int]:
    """All that the process of every row held at most, in two epochs with their evaluations."""
    peaks = {}
    for name, job in track(jobs.items(), title, console=console):
        worker = Worker(*job)
        try:
            for asked in ("epoch", "accuracy", "epoch", "accuracy"):
                worker.ask(asked)
            peaks[name] = worker.ask("process")
        finally:
            worker.close()
    return peaks


def _curves(
    group: dict[str, tuple[Make, int]], load: Load, console: Console
) -> dict[str, list[tuple[float, float]]]:
    """(seconds so far, validation accuracy) of every row after each epoch, in turns."""
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in group}
    with _workers({name: (make, load) for name, (make, _) in group.items()}) as workers:
        for epoch in track(range(group[tables.PYG][1]), "accuracy", console=console):
            for name, worker in workers.items():
                if epoch < group[name][1]:
                    before = curves[name][-1][0] if curves[name] else 0.0
                    seconds = worker.ask("epoch")
                    curves[name].append((before + seconds, worker.ask("accuracy")))
    return curves
