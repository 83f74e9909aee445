"""`lmc compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmc.cli import completion
from lmc.cli.loading import loading_torch
from lmc.cli.paths import FOLDER, as_typed, made_folder
from lmc.cli.settings import SEEDS_FLAG, flag_of_own_model, say_embedded_graph, settings, tree_of
from lmc.cli.signals import end_interrupted, going_on_by
from lmc.errors import ArgumentError
from lmc.runs.registry import COMPARED_METHODS, METHODS

if TYPE_CHECKING:
    from lmc.runs.comparison import Asked
    from lmc.runs.config import Config


@click.command("compare")
@settings
@click.option(
    "--methods",
    type=completion.METHOD_LIST,
    help=f"Separated by commas; by default {','.join(COMPARED_METHODS)}.",
)
@SEEDS_FLAG
@click.option("--target", type=float, help="Validation metric to reach; by default what all reach.")
@click.option("--out", type=FOLDER, default=None, help="Folder; its runs of the same settings are resumed.")
@click.option("--resume", type=FOLDER, help="Folder of a comparison to go on with, as it was started.")
@click.option("--quiet", is_flag=True, help="The table only.")
def command(
    methods: str | None,
    seeds: int,
    target: float | None,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Train several methods from one start on the same batches. Then say how they did."""
    from rich.console import Console

    from lmc.runs.display import display_of

    console = Console()
    with display_of(console, quiet, False) as display:
        loading_torch(display, console)
        from lmc.runs.comparison import Asked, started_comparison

        tree = tree_of(options)
        if resume is None:
            given = ",".join(COMPARED_METHODS) if methods is None else methods
            names = [each.strip() for each in given.split(",")]
            asked = Asked(names, tree, target, seeds)
        else:
            named = tree.get("model", {}).get("name")  # a model of one's own, to have it imported
            is_changed = tree not in ({}, {"model": {"name": named}})
            if is_changed or methods is not None or out is not None or seeds > 1:
                rule = "only --target may be changed, and --model names a model of yours again"
                raise ArgumentError(f"--resume: goes on as it was started; {rule}")
            asked = started_comparison(resume)
            if named not in (None, own := asked.settings.get("model", {}).get("name")):
                raise ArgumentError(f"--model {named}: the model of the comparison is {own}")
            asked = asked if target is None else replace(asked, target=target)
    run_all(asked, resume or made_folder(out, "compare"), quiet)


def run_all(asked: Asked, out: Path, quiet: bool) -> None:
    """Train each method, or go on with it; then write and show how they did."""
    from rich.console import Console

    from lmc.report import write_report
    from lmc.runs import comparison
    from lmc.runs.display import display_of, watching
    from lmc.runs.places import check_holds_no_run, check_unused
    from lmc.runs.seeds import seeded, train_each

    check_holds_no_run(out)
    check_unused(out, comparison.WRITTEN, comparison.STARTED, "a comparison")
    console, configs, seeds = Console(), _configs(asked.settings, asked.methods), asked.seeds
    if not quiet:
        say_embedded_graph(asked.settings)
    first = next(iter(configs.values()))
    with display_of(console, quiet, False) as display:
        display.on_phase(f"loading {first.data['name']}")
        graph = first.load_graph()
    comparison.begin(out, asked)
    runs = {
        method if seeds == 1 else f"{method}/{name}": of_seed
        for method, config in configs.items()
        for name, of_seed in seeded(config, seeds).items()
    }
    own_model = flag_of_own_model(asked.settings.get("model", {}))
    afterwards = f"`lmc compare --resume {as_typed(out)}{own_model}` goes on"
    with going_on_by(afterwards):
        results = train_each(runs, out, graph, lambda name: watching(console, quiet, False, name))
    if results is None:
        end_interrupted(afterwards)
    target, rows = comparison.compare(results, asked.target)
    if seeds > 1:
        rows = comparison.over_seeds(
            {method: rows[place * seeds : (place + 1) * seeds] for place, method in enumerate(configs)}
        )
    comparison.write(out, rows, target)
    console.print(comparison.table(rows, target))
    page = write_report([out / name for name in runs], out / "report.html")
    print(f"report: {page}")


def _configs(tree: dict[str, Any], methods: list[str]) -> dict[str, Config]:
    """The settings of each method's run; a method is given those of the settings that it has."""
    from lmc import checks
    from lmc.runs.config import Config, for_method
    from lmc.runs.methods import understood_by

    for key, value in tree.get("method", {}).items():
        if key != "name" and not any(
            understood_by(checks.one_of("--methods", m, METHODS), {key: 0}) for m in methods
        ):
            raise ArgumentError(f"method.{key}={value}: none of the methods {', '.join(methods)} has it")
    configs: dict[str, Config] = {}
    for method in methods:
        checks.one_of("--methods", method, METHODS)
        if method in configs:
            raise ArgumentError(f"--methods {','.join(methods)}: {method} is there twice")
        own = understood_by(method, tree.get("method", {}))
        config = Config.of(for_method(tree, {**own, "name": method}))
        config.check_values()
        configs[method] = config
    return configs
