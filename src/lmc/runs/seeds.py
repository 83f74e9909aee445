"""The same settings with several seeds: one run each, and the mean and deviation of all."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lmc import checks, memory_use
from lmc.data.graph import Graph
from lmc.files import write_atomically
from lmc.runs.config import Config, merged
from lmc.runs.display import Watch
from lmc.runs.folder import SEEDS
from lmc.runs.going_on import refusal
from lmc.runs.mean_of_runs import MeanOfRuns, mean_of
from lmc.runs.places import METRICS
from lmc.runs.run import read_config, train_run
from lmc.runs.stacked_table import StackedTable
from lmc.training.records import Result


@dataclass(frozen=True)
class SeedRun:
    """What came out of one seed: the best validation epoch, and the metric there."""

    seed: int
    epoch: int | None
    val: float | None
    test: float | None
    seconds: float


@dataclass(frozen=True)
class Seeds:
    """Several seeds of the same settings.

    Attributes:
        metric: what `val` and `test` are.
        val: mean and deviation of the best validation metrics; None where a run has none.
        test: of the test metrics at these epochs.
        runs: in the order of their seeds.
    """

    metric: str
    val: MeanOfRuns | None
    test: MeanOfRuns | None
    runs: Sequence[SeedRun]


def seeded(config: Config, count: int) -> dict[str, Config]:
    """The same settings with its seed and those that follow, by the names of their folders.

    >>> [*seeded(Config.of({"training": {"seed": 3, "parts": 4}}), 2)]
    ['seed-3', 'seed-4']
    """
    checks.whole_number("seeds", count, 1)
    first = config.training["seed"]
    return {
        f"seed-{seed}": Config.of(merged(config.to_tree(), {"training": {"seed": seed}}))
        for seed in range(first, first + count)
    }


def train_each(
    configs: Mapping[str, Config], out: Path, graph: Graph, watch: Callable[[str], Watch]
) -> dict[str, Result] | None:
    """Train each in a folder of its name, or go on with what is there; None where one was interrupted.

    Args:
        configs: by name.
        out: where the folders are.
        graph: which all are trained on.
        watch: gives the callbacks of a run, from its name.
    """
    results = {}
    for name, config in configs.items():
        gc.collect()
        memory_use.restart_peak()  # what the run before it held is not its own
        begun = (out / name / METRICS).exists() and _goes_on(read_config(out / name), config)
        with watch(name) as told:
            results[name] = train_run(config, out / name, begun, told, graph)
        if results[name].stopped == "interrupted":
            return None
    return results


def _goes_on(kept: Config, asked: Config) -> bool:
    return refusal(kept.as_read(), asked.as_read()) is None


def summarised(configs: Mapping[str, Config], results: Sequence[Result]) -> Seeds:
    """What came out of all of them."""
    runs = [
        SeedRun(
            config.training["seed"],
            None if result.best is None else result.best.epoch,
            None if result.best is None else result.best.val,
            None if result.best is None else result.best.test,
            result.seconds,
        )
        for config, result in zip(configs.values(), results, strict=True)
    ]
    val, test = mean_of([run.val for run in runs]), mean_of([run.test for run in runs])
    return Seeds(results[0].metric.name, val, test, runs)


def table(seeds: Seeds) -> StackedTable:
    """For a terminal: a line a seed, and the mean."""
    lines = [
        [
            str(run.seed),
            "-" if run.epoch is None else str(run.epoch),
            _number(run.val),
            _number(run.test),
            f"{run.seconds:.1f}",
        ]
        for run in seeds.runs
    ]
    seconds = MeanOfRuns([run.seconds for run in seeds.runs])
    means = ["-" if mean is None else mean.shown(4) for mean in (seeds.val, seeds.test)]
    lines.append(["mean", "", *means, seconds.shown(1)])
    title = f"{len(seeds.runs)} seeds, {seeds.metric}: mean ± deviation"
    return StackedTable(title, ["seed", "best epoch", "val", "test", "seconds"], lines, last_apart=True)


def write_seeds(folder: Path, seeds: Seeds) -> None:
    """`seeds.json` in a folder."""
    means = {"val": seeds.val, "test": seeds.test}
    content = {
        "metric": seeds.metric,
        **{k: m and {"mean": m.mean, "deviation": m.deviation} for k, m in means.items()},
        "runs": [asdict(run) for run in seeds.runs],
    }
    text = json.dumps(content, indent=2) + "\n"
    write_atomically(folder / SEEDS, lambda file: file.write(text.encode()))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
