"""`lmc inspect`."""

from __future__ import annotations

from typing import Any

import click

import lmc


@click.command("inspect")
@click.argument("data")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option("--features", default=None, help="Made of the edges, for a graph without: degree or structure.")
@click.option("--hidden", default=256, show_default=True, help="Width to estimate memory for.")
@click.option("--layers", default=3, show_default=True, help="Depth to estimate memory for.")
def command(data: str, root: str | None, features: Any, hidden: int, layers: int) -> None:
    """Say what a graph holds, and what a batch of it would.

    DATA is a name such as synthetic, cora or arxiv, a .npz file, or a folder from Graph.save.
    """
    from rich.console import Console

    from lmc.report.inspection import inspect
    from lmc.report.inspection_tables import tables_of

    graph = lmc.load(data, root, features=features)
    for table in tables_of(inspect(graph, hidden=hidden, layers=layers)):
        Console().print(table)
