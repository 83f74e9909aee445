"""`lmc compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from lmc.cli.paths import FOLDER, free_folder
from lmc.cli.settings import SEEDS_FLAG, settings, tree_of
from lmc.runs.registry import METHODS, TRAINING_METHODS


@click.command("compare")
@settings
@click.option("--methods", default=",".join(TRAINING_METHODS), show_default=True, help="Separated by commas.")
@SEEDS_FLAG
@click.option("--target", type=float, help="Validation metric to reach; by default what all reach.")
@click.option(
    "--out", type=FOLDER, default=None, help="Folder; runs in it with the same settings are resumed."
)
@click.option("--quiet", is_flag=True, help="The table only.")
def command(
    methods: str, seeds: int, target: float | None, out: Path | None, quiet: bool, **options: Any
) -> None:
    """Train several methods from the same start on the same batches, and say how they did."""
    run_all(tree_of(options), methods.split(","), target, out or free_folder("compare"), quiet, seeds)


def run_all(
    tree: dict[str, Any], methods: list[str], target: float | None, out: Path, quiet: bool, seeds: int = 1
) -> None:
    """Train each method, or go on with it; then write and show how they did."""
    from rich.console import Console

    from lmc import checks
    from lmc.report import write_report
    from lmc.runs import comparison
    from lmc.runs.config import DEFAULTS, Config, merged, understood
    from lmc.runs.display import display_of
    from lmc.runs.seeds import seeded, train_each
    from lmc.training.options import TrainingOptions

    console = Console()
    configs: dict[str, Config] = {}
    for method in methods:
        checks.one_of("--methods", method, METHODS)
        own = understood(method, tree.get("method", {}))
        base = {} if "parts" in tree.get("training", {}) else {"training": DEFAULTS["training"]}
        rest = {name: section for name, section in tree.items() if name != "method"}
        config = Config.of(merged(base, rest, {"method": {**own, "name": method}}))
        config.build_estimator().check_batches(TrainingOptions(**config.training).batches)
        configs[method] = config
    graph = next(iter(configs.values())).load_graph()
    runs = {
        method if seeds == 1 else f"{method}/{name}": of_seed
        for method, config in configs.items()
        for name, of_seed in seeded(config, seeds).items()
    }
    results = train_each(runs, out, graph, lambda name: [display_of(console, quiet, False, title=name)])
    if results is None:
        print(f"lmc: interrupted; the same command with --out {out} goes on", file=sys.stderr)
        return
    target, rows = comparison.compare(results, target)
    if seeds > 1:
        rows = comparison.over_seeds(
            {method: rows[place * seeds : (place + 1) * seeds] for place, method in enumerate(configs)}
        )
    comparison.write(out, rows, target)
    console.print(comparison.table(rows, target))
    page = write_report([out / name for name in runs], out / "report.html")
    print(f"report: {page}")
