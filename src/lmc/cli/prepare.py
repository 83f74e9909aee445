"""`lmc prepare`."""

from __future__ import annotations

from pathlib import Path

import click

import lmc
from lmc.cli import completion
from lmc.cli.paths import FOLDER
from lmc.cli.progress import bars


@click.command("prepare")
@click.argument("graph", type=completion.DATA)
@click.option("--root", type=click.Path(), help="Folder to look for it in.")
@click.option("--parts", type=int, help="Clusters to cut the graph into; by default, by its size.")
@click.option("--partition", type=completion.PARTITION, default="auto", help="How it is cut.")
@click.option("--shards", type=int, default=1, show_default=True, help="Sets of clusters that lie together.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the clusters.")
@click.option("--memory", help="Bytes that may be taken, such as 2GB; by default what is free.")
@click.option("--out", type=FOLDER, required=True, help="Folder of the prepared graph.")
def command(
    graph: str,
    root: str | None,
    parts: int | None,
    partition: str,
    shards: int,
    seed: int,
    memory: str | None,
    out: Path,
) -> None:
    """Write a graph into a folder in which the rows of each cluster lie together.

    GRAPH is a name or a path, as for lmc train. Features, labels, masks and neighbours are read once and
    sorted on disk; node numbers stay those of the graph.
    """
    with bars() as told:
        prepared = lmc.prepare(
            lmc.load(graph, root),
            out,
            parts=parts,
            partition=partition,  # type: ignore[arg-type]
            seed=seed,
            memory=memory,
            shards=shards,
            told=told,
        )
    print(f"{out}: {prepared}")
