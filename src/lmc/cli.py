"""The command line: thin, every command a few calls of the library."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import lmc


@click.group()
@click.version_option(lmc.__version__)
def main() -> None:
    """Train graph neural networks on one large graph by mini-batches."""


@main.command()
def demo() -> None:
    """Partition the embedded graph and show what a batch holds."""
    console = Console()
    graph = lmc.synthetic()
    parts = 40
    console.print(f"{graph}, cut into {parts} clusters by METIS")
    clusters = lmc.partition(graph, parts)
    table = Table(title="What a batch holds (means over an epoch)")
    for column in ("clusters a batch", "batches", "nodes", "halo", "messages", "inside the batch"):
        table.add_column(column, justify="right")
    for parts_per_batch in (1, 5, 10, 20, 40):
        table.add_row(str(parts_per_batch), *_means(graph, clusters, parts_per_batch))
    console.print(table)


def _means(graph: lmc.Graph, clusters: object, parts_per_batch: int) -> list[str]:
    """Cells of the demo's table: number of batches, mean nodes, halo and messages, and share inside."""
    nodes = halo = messages = inside = count = 0
    for batch in lmc.batches(graph, clusters, parts_per_batch):
        block = batch.block()
        count += 1
        nodes += batch.num_nodes
        halo += batch.num_halo
        messages += block.num_entries
        inside += int((block.indices < batch.num_nodes).sum())
    means = (f"{total / count:,.0f}" for total in (nodes, halo, messages))
    return [str(count), *means, f"{inside / messages:.0%}"]


@main.command()
@click.option("--data", default="arxiv", show_default=True, help="Name or path of the graph.")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option("--rounds", default=5, show_default=True, help="How often the rows take turns.")
@click.option("--quick", is_flag=True, help="The main rows only.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Keep the raw numbers as JSON.")
@click.option("--compare", "old", type=click.Path(exists=True, path_type=Path), help="An earlier --out.")
def bench(data: str, root: str | None, rounds: int, quick: bool, out: Path | None, old: Path | None) -> None:
    """Time an epoch of every method against PyG's full batch, in one run."""
    from lmc.bench import run, tables

    try:
        lmc.load(data, root)
        result = run.bench(data, root, rounds, quick, out)
    except lmc.LMCError as error:
        raise click.ClickException(str(error)) from None
    if old is not None:
        Console().print(tables.compare(old, result))
