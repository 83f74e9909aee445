"""`lmc train`."""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmc.cli import completion
from lmc.cli.loading import loading_torch
from lmc.cli.paths import FOLDER, as_typed, made_folder
from lmc.cli.processes import rank_here, run_as, started_again
from lmc.cli.settings import (
    SEEDS_FLAG,
    check_flags_of_method,
    config_of,
    flag_of_own_model,
    say_embedded_graph,
    settings,
    tree_of,
)
from lmc.cli.signals import end_interrupted, going_on_by
from lmc.errors import ArgumentError
from lmc.runs.registry import LOGGERS, METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmc.runs.config import Config
    from lmc.runs.display import Watch
    from lmc.training.callbacks import Callback
    from lmc.training.records import Result


def _methods() -> str:
    """Their names, each with what it stands for where it does not say so itself."""
    return ", ".join(
        name if method.title.lower() == name else f"{name} ({method.title})"
        for name, method in METHODS.items()
    )


@click.command("train")
@settings
@click.option("--method", type=completion.METHOD, help=f"One of {_methods()}.")
@SEEDS_FLAG
@click.option(
    "--out", type=FOLDER, help="Folder; by default runs/DATA-MODEL-METHOD. Several --seeds in it go on."
)
@click.option("--resume", type=FOLDER, help="Folder of a run to go on with, perhaps with more --epochs.")
@click.option("--quiet", is_flag=True, help="Errors only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per epoch.")
@click.option("--processes", type=click.IntRange(1), default=1, help="Of this machine, that share --shards.")
@click.option(
    "--max-restarts", type=click.IntRange(0), default=0, help="Of --processes, from the last checkpoint."
)
@click.option("--log", "loggers", multiple=True, help=f"Also tell {', '.join(LOGGERS)}; again for more.")
def command(
    method: str | None,
    seeds: int,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    as_json: bool,
    processes: int,
    max_restarts: int,
    loggers: tuple[str, ...],
    **options: Any,
) -> None:
    """Train a model and keep the run in a folder."""
    if max_restarts and processes == 1:
        raise ArgumentError(f"--max-restarts {max_restarts}: is of --processes, which must be 2 or more")
    if processes > 1 and "WORLD_SIZE" in os.environ:
        raise ArgumentError("--processes: torchrun has started this process already; leave it out")
    if rank_here() > 0:  # the first of several processes speaks for all
        quiet = True
        warnings.simplefilter("ignore")

    from rich.console import Console

    from lmc.runs.display import display_of, watching

    if seeds > 1 and resume is not None:
        raise ArgumentError("--seeds: the command that began them, with --out, goes on; without --resume")
    began, console = time.monotonic(), Console()
    with display_of(console, quiet, as_json) as display:
        loading_torch(display, console)
        from lmc.runs import run
        from lmc.runs.places import METRICS

        tree = tree_of(options, method)
        if resume is None:
            check_flags_of_method(tree, options)
        config = config_of(tree, options) if resume is None else _resumed(tree, resume, out)
        _warn_of_unused(config, options)
        if processes > 1:
            raise click.exceptions.Exit(_as_processes(config, processes, resume or out, max_restarts))
        if resume is None and not quiet and not as_json:
            say_embedded_graph(tree)
        name = _name(config)
        # Of several processes the first alone writes.
        folder = resume or (made_folder(out, name) if rank_here() == 0 else out or Path(name))
        going_on = resume is not None or (started_again() and (folder / METRICS).exists())
        if seeds == 1:
            told: list[str | Callback] = [display, *loggers]
            result = run.train_run(config, folder, going_on, told, began=began)
    if seeds > 1:

        def watch(name: str) -> Watch:
            return watching(console, quiet, as_json, name, loggers)

        _train_seeds(config, seeds, folder, watch, quiet or as_json)
        return
    if not quiet and not as_json:
        _show(result, folder)
    if result.stopped == "interrupted":
        end_interrupted(_afterwards(config, folder), quiet=rank_here() > 0)


def _as_processes(config: Config, count: int, folder: Path | None, restarts: int) -> int:
    """Run this command as so many processes that share a folder; gives the exit code."""
    from lmc.training.sharding import check_divides

    check_divides(config.training["shards"], count)
    out = [] if folder is not None else ["--out", str(made_folder(None, _name(config)))]
    return run_as(count, [*_without_processes(), *out], restarts)


def _without_processes() -> list[str]:
    """The arguments of this command, for one of several processes."""
    arguments, left_out = sys.argv[1:], ("--processes", "--max-restarts")
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument.partition("=")[0] not in left_out:
            kept.append(argument)
        skip = not skip and argument in left_out
    return kept


def _train_seeds(
    config: Config, count: int, folder: Path, watch: Callable[[str], Watch], quiet: bool
) -> None:
    """A run for each seed in a folder of its own; then the mean of them, and a report."""
    from rich.console import Console

    from lmc.report import write_report
    from lmc.runs.folder import SEEDS
    from lmc.runs.places import LOCK, check_holds_no_run, check_unused
    from lmc.runs.seeds import seeded, summarised, table, train_each, write_seeds

    check_holds_no_run(folder)
    check_unused(folder, (SEEDS, "report.html"), f"seed-*/{LOCK}", "--seeds")
    config.check_values()
    configs = seeded(config, count)
    afterwards = f"the same command with --out {as_typed(folder)} goes on"
    with going_on_by(afterwards):
        results = train_each(configs, folder, config.load_graph(), watch)
    if results is None:
        end_interrupted(afterwards)
    seeds = summarised(configs, list(results.values()))
    write_seeds(folder, seeds)
    page = write_report([folder / name for name in configs], folder / "report.html")
    if not quiet:
        Console().print(table(seeds))
        print(f"report: {page}")


def _resumed(tree: dict[str, Any], folder: Path, out: Path | None) -> Config:
    """The settings of the run in a folder, with what a command may change of them."""
    from lmc.runs.going_on import CHANGEABLE, refusal
    from lmc.runs.run import read_config, read_tree

    # A model of one's own is named again, to have it imported.
    given = {f"{section}.{key}" for section, settings in tree.items() for key in settings}
    unknown = given - CHANGEABLE - {"model.name"}
    if out is not None or unknown:
        rule = (
            "only --epochs, --device, --checkpoint, --checkpoint-seconds, --data, --root and "
            "training.history_cache may be changed, and --model names a model of yours again"
        )
        raise ArgumentError(f"--resume: goes on with the settings of the run; {rule}")
    if any(folder.glob("seed-*/config.toml")):
        raise ArgumentError(f"--resume {folder}: holds several seeds; the command that began them goes on")
    kept = read_tree(folder)
    named, own = tree.get("model", {}).get("name"), kept.get("model", {}).get("name")
    if named is not None and named != own:
        raise ArgumentError(f"--model {named}: the model of the run is {own}")
    config = read_config(folder, tree)
    if reason := refusal(kept, config.as_read()):
        raise ArgumentError(f"--resume {folder}: {reason}")
    return config


def _warn_of_unused(config: Config, options: dict[str, Any]) -> None:
    """Say which flags cannot matter: those of clusters, to a method that has none."""
    flags = ("--parts", "--parts-per-batch", "--batch-share", "--balance")
    given = [flag for flag in flags if options["training_" + flag[2:].replace("-", "_")] is not None]
    name = config.method["name"]
    if not METHODS[name].clusters and given:
        warnings.warn(f"{', '.join(given)}: {name} has no clusters, so this changes nothing", stacklevel=1)


def _afterwards(config: Config, folder: Path) -> str:
    """What can become of a run that was interrupted."""
    if config.training["checkpoint"] == "none":
        return f"{folder} keeps no checkpoint, so the run cannot go on; its best weights are there"
    return f"`lmc train --resume {as_typed(folder)}{flag_of_own_model(config.model)}` goes on"


def _name(config: Config) -> str:
    """The name of a run's folder where none was given."""
    model = config.model["name"].replace(":", ".")
    spider = ["spider"] * (config.method.get("spider") is not None)
    return "-".join((Path(config.data["name"]).stem, model, *spider, config.method["name"]))


def _show(result: Result, folder: Path) -> None:
    from lmc.training.result_view import best_text, seconds_text

    if result.best is not None:
        _say(best_text(result))
    if result.history:  # one that was interrupted before has its last line alone
        _say(seconds_text(result))
    if result.history and result.batches is not None:
        _say(f"batches: {result.batches}")
    if result.stopped != "interrupted":
        _say(f"{result.stopped}: {folder}; `lmc report {as_typed(folder)}` shows it")


def _say(text: str) -> None:
    """Print a line, which a terminal that is narrower breaks between words."""
    from rich.console import Console

    console = Console()
    console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=not console.is_terminal)
