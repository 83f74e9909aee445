"""`lmc train`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmc.cli import completion
from lmc.cli.loading import loading_torch
from lmc.cli.paths import FOLDER, free_folder
from lmc.cli.settings import say_embedded_graph, settings, tree_of
from lmc.errors import ArgumentError
from lmc.runs.registry import METHODS

if TYPE_CHECKING:
    from lmc.runs.config import Config
    from lmc.training.records import Result


@click.command("train")
@settings
@click.option("--method", type=completion.METHOD, help=f"One of {', '.join(METHODS)}.")
@click.option("--out", type=FOLDER, help="Folder of the run.")
@click.option("--resume", type=FOLDER, help="Folder of a run to go on with; --epochs may be changed.")
@click.option("--quiet", is_flag=True, help="Errors only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per epoch.")
@click.option("--tensorboard", is_flag=True, help="Also write for TensorBoard.")
def command(
    method: str | None,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    as_json: bool,
    tensorboard: bool,
    **options: Any,
) -> None:
    """Train a model and keep the run in a folder."""
    from rich.console import Console

    from lmc.runs.display import display_of

    began, console = time.monotonic(), Console()
    with display_of(console, quiet, as_json) as display:
        loading_torch(display, console)
        from lmc.runs import run
        from lmc.runs.config import Config
        from lmc.runs.tensorboard import TensorBoard
        from lmc.training.callbacks import Callback

        tree = tree_of(options, method)
        if resume is None and not quiet and not as_json:
            say_embedded_graph(tree)
        config = Config.of(tree) if resume is None else _resumed(tree, resume, out)
        folder = resume or out or free_folder(_name(config))
        callbacks: list[Callback] = [display]
        if tensorboard:
            callbacks.append(TensorBoard(folder / "tensorboard"))
        result = run.train_run(config, folder, resume is not None, callbacks, began=began)
    if result.stopped == "interrupted":
        print(f"lmc: interrupted; `lmc train --resume {folder}` goes on", file=sys.stderr)
    if not quiet and not as_json:
        _show(result, folder)


def _resumed(tree: dict[str, Any], folder: Path, out: Path | None) -> Config:
    """The settings of the run in a folder, with the epochs that a command asks for."""
    from lmc.runs.config import Config, merged
    from lmc.runs.run import read_config

    if out is not None or tree.keys() - {"training"} or tree.get("training", {}).keys() - {"epochs"}:
        raise ArgumentError("--resume: goes on with the settings of the run; only --epochs may be changed")
    kept = read_config(folder)
    if tree and kept.training.get("scheduler") == "cosine":
        raise ArgumentError("--epochs: the cosine schedule of this run ends with its epochs")
    return Config.of(merged(kept.to_tree(), tree))


def _name(config: Config) -> str:
    """The name of a run's folder where none was given."""
    return "-".join((Path(config.data["name"]).stem, config.model["name"], config.method["name"]))


def _show(result: Result, folder: Path) -> None:
    from lmc.training.result_view import best_text, seconds_text

    if result.best is not None:
        print(best_text(result))
    print(seconds_text(result))
    if result.stopped != "interrupted":
        print(f"{result.stopped}: {folder}; `lmc report {folder}` shows it")
