"""`lmc paper`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from lmc.checks import one_of
from lmc.cli.paths import FOLDER


@click.command("paper")
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="Say which experiments there are.")
@click.option("--all", "everything", is_flag=True, help="Run all of them, and write one page.")
@click.option("--data", multiple=True, help="A graph other than the experiment's own; may be repeated.")
@click.option("--root", default=None, help="Folder to look for graphs in.")
@click.option("--epochs", type=click.IntRange(1), default=None, help="Epochs of every run.")
@click.option("--runs", type=click.IntRange(1), default=None, help="Runs, each with its own seed.")
@click.option("--model", default=None, help="gcn or gcnii, where an experiment has both.")
@click.option("--method", "methods", multiple=True, help="One of them, in methods; may be repeated.")
@click.option(
    "--clusters",
    type=click.IntRange(1, 80),
    multiple=True,
    help="Clusters a batch, in batch-size; may be repeated.",
)
@click.option("--quick", is_flag=True, help="As little as shows that it works.")
@click.option("--out", type=FOLDER, default=Path("results"), show_default=True, help="Where files go.")
def command(name: str | None, listed: bool, everything: bool, out: Path, **scale: Any) -> None:
    """Run an experiment of the paper beside the paper's numbers."""
    from rich.console import Console

    from lmc.paper.experiments import EXPERIMENTS
    from lmc.paper.setup import Scale
    from lmc.paper.writing import write, write_page

    if listed:
        for known, about in EXPERIMENTS.items():
            print(f"{known:15} {about.source}: {about.title}")
        return
    if everything == (name is not None):
        raise click.UsageError("NAME: name one experiment, or give --all; --list says which there are")
    names = list(EXPERIMENTS) if everything else [one_of("NAME", str(name), list(EXPERIMENTS))]
    outcomes = {}
    for each in names:
        outcomes[each] = EXPERIMENTS[each].run(Scale(**scale, keep=partial(write, out, each)))
        file = write(out, each, outcomes[each])
        Console().print(*(table.markdown() for table in outcomes[each].tables), sep="\n\n", markup=False)
        print(file)
    if everything:
        write_page(out / "index.html", outcomes)
        print(out / "index.html")
