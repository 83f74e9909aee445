"""`lmc import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import lmc
from lmc.cli.paths import FILE, FOLDER


@click.command("import")
@click.argument("edges", type=FILE)
@click.option("--features", type=FILE, help="A row per node: its id, and numbers.")
@click.option("--labels", type=FILE, help="A row per labelled node: its id, and its label.")
@click.option("--splits", type=FILE, help="A row per node: its id, and train, val or test.")
@click.option("--undirected", is_flag=True, help="Every edge goes both ways.")
@click.option("--task", help="multiclass, multilabel or regression; by default what labels look like.")
@click.option("--out", type=FOLDER, required=True, help="Folder of the graph.")
def command(
    edges: Path,
    features: Path | None,
    labels: Path | None,
    splits: Path | None,
    undirected: bool,
    task: Any,
    out: Path,
) -> None:
    """Make a graph of CSV or Parquet files: EDGES has a row per edge, its source and its target."""
    graph = lmc.read_tables(edges, features, labels, splits, undirected=undirected, task=task)
    graph.save(out)
    print(f"{out}: {graph}; `lmc train --data {out}` trains on it")
