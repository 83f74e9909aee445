"""`lmc tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmc.cli.paths import FOLDER, as_typed, made_folder
from lmc.cli.settings import check_flags_of_method, flag_of_own_model, settings, tree_of
from lmc.cli.signals import end_interrupted, going_on_by
from lmc.runs.registry import METHODS

if TYPE_CHECKING:
    from lmc.runs.study import Study, Trial


@click.command("tune")
@settings
@click.option("--method", help=f"One of {', '.join(METHODS)}.")
@click.option(
    "--search",
    multiple=True,
    metavar="SECTION.KEY=VALUES",
    help="What to try: log:1e-4:1e-1, 0:0.8 or 32,64,128; again for more. By default learning rate,"
    " weight decay, width and dropout, as far as no other flag sets them.",
)
@click.option("--trials", type=click.IntRange(1), default=20, show_default=True, help="How many in all.")
@click.option(
    "--pruner",
    default="median",
    show_default=True,
    help="What ends poor trials early: median, hyperband or none.",
)
@click.option("--out", type=FOLDER, help="Folder; what is there of the same search goes on.")
@click.option("--quiet", is_flag=True, help="Errors only.")
def command(
    method: str | None,
    search: tuple[str, ...],
    trials: int,
    pruner: Any,
    out: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Search for the settings with the best validation metric."""
    from rich.console import Console

    from lmc.report.study_page import write_study_page
    from lmc.runs import tuning
    from lmc.runs.display import watching
    from lmc.runs.search_space import SearchSpace

    tree = tree_of(options, method)
    check_flags_of_method(tree, options)
    space = SearchSpace.of(list(search), tree)
    folder = made_folder(out, "tune")
    console = Console()

    def tell(study: Study, trial: Trial) -> None:
        if not quiet:
            print(f"trial {trial.number}/{trials}: {_trial_text(study, trial)}", flush=True)

    afterwards = f"the same command with --out {as_typed(folder)} goes on"
    with going_on_by(afterwards):
        study = tuning.tune(
            tree,
            space,
            folder,
            trials,
            pruner,
            # In a log, a line for each trial is enough.
            watch=lambda n: watching(console, quiet or not console.is_terminal, False, f"trial {n}/{trials}"),
            tell=tell,
        )
        page = write_study_page(folder, folder / "report.html")
    if any(trial.state == "running" for trial in study.trials):
        end_interrupted(afterwards)
    if not quiet:
        _show(study, folder, flag_of_own_model(tree.get("model", {})))
        print(f"report: {page}")


def _trial_text(study: Study, trial: Trial) -> str:
    tried = "  ".join(f"{place.partition('.')[2]} {_short(value)}" for place, value in trial.settings.items())
    if trial.error is not None:
        return f"failed: {trial.error}  ({tried})"
    value = "-" if trial.val is None else f"{trial.val:.4f}"
    best = f"  best {study.best.val:.4f}" if study.best is not None else ""
    pruned = f", pruned in epoch {trial.epochs}" if trial.state == "pruned" else ""
    return f"val {study.metric} {value}{pruned}{best}  {tried}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _show(study: Study, folder: Path, own_model: str) -> None:
    if study.best is None:
        return
    test = "" if study.best.test is None else f", test {study.best.test:.4f}"
    print(f"best of {len(study.trials)} trials: {study.metric} val {study.best.val:.4f}{test}")
    print(f"`lmc train {as_typed(folder / 'best.toml')}{own_model}` trains with its settings")
