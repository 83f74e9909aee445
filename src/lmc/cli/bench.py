"""`lmc bench`."""

from __future__ import annotations

from pathlib import Path

import click

import lmc
from lmc.cli.completion import DATA
from lmc.cli.paths import FILE


@click.command("bench")
@click.option("--data", type=DATA, default="arxiv", show_default=True, help="Name or path of the graph.")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="How often the rows take turns."
)
@click.option("--quick", is_flag=True, help="The main rows only.")
@click.option(
    "--processes", type=click.IntRange(2), default=None, help="Only this: one process beside so many."
)
@click.option("--out", type=FILE, default=None, help="Keep the raw numbers as JSON.")
@click.option("--compare", "old", type=click.Path(exists=True, path_type=Path), help="An earlier --out.")
def command(
    data: str,
    root: str | None,
    rounds: int,
    quick: bool,
    processes: int | None,
    out: Path | None,
    old: Path | None,
) -> None:
    """Time an epoch of every method beside PyG's full batch."""
    from rich.console import Console

    from lmc.bench import run, tables

    graph = lmc.load(data, root)
    if processes is not None:
        from lmc.bench import shared, time_model

        one, several = (shared.cost(data, root, processes, count) for count in (1, processes))
        Console().print(shared.table(graph, one, several, processes))
        Console().print(time_model.table(graph, one.seconds))
        return
    before = tables.earlier(old) if old is not None else None
    result = run.bench(data, root, rounds, quick, out)
    if before is not None:
        Console().print(tables.compare(before, result["seconds"]))
