"""`lmc inspect`."""

from __future__ import annotations

from typing import Any

import click

import lmc
from lmc import checks
from lmc.cli.completion import DATA, FEATURES
from lmc.cli.loading import loading_torch


@click.command("inspect")
@click.argument("data", type=DATA)
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option(
    "--features", type=FEATURES, help="Made of the edges, for a graph without: degree or structure."
)
@click.option("--hidden", default=256, show_default=True, help="Width to estimate memory for.")
@click.option("--layers", default=3, show_default=True, help="Depth to estimate memory for.")
@click.option("--memory", default=None, help="Say only how lmc train --memory would keep to so much: 2GB.")
def command(data: str, root: str | None, features: Any, hidden: int, layers: int, memory: str | None) -> None:
    """Say what a graph holds, and what a batch of it would.

    DATA is a name such as synthetic, cora or arxiv, a .npz file, or a folder from Graph.save.
    """
    from rich.console import Console

    from lmc.runs.display import display_of

    console = Console()
    with display_of(console, quiet=not console.is_terminal, as_json=False) as display:
        loading_torch(display, console)
        from lmc.report.inspection import inspect
        from lmc.report.inspection_tables import tables_of

        display.on_phase(f"loading {data}")
        graph = lmc.load(data, root, features=features)
        display.on_phase("looking at it")
        if memory is None:
            tables: list[Any] = [*tables_of(inspect(graph.by_cluster, hidden=hidden, layers=layers))]
        else:
            tables = [_plan(graph, memory, hidden, layers)]
    for table in tables:
        console.print(table)


def _plan(graph: lmc.Graph, memory: str, hidden: int, layers: int) -> str:
    """How a training of a GCN would keep to so much memory."""
    from lmc.training.options import TrainingOptions
    from lmc.training.plan import make_plan

    model = lmc.GCN(graph.num_features, hidden, max(1, graph.num_classes), layers=layers)
    given = checks.byte_count("memory", memory)
    return str(make_plan(graph, model, lmc.LMC(), TrainingOptions(), given, to_disk=True))
