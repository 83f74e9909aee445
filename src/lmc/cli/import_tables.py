"""`lmc import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import lmc
from lmc.cli.paths import FILE, FOLDER, as_typed, refuse_graph
from lmc.cli.progress import bars
from lmc.cli.settings import count

if TYPE_CHECKING:
    from lmc.data.graph import Graph


@click.command("import")
@click.argument("edges", type=FILE)
@click.option("--features", type=FILE, help="A row per node: its id, and numbers.")
@click.option("--labels", type=FILE, help="A row per labelled node: its id, and its label.")
@click.option("--splits", type=FILE, help="A row per node: its id, and train, val or test.")
@click.option("--nodes", type=count, help="So many, numbered from 0: edges may be larger than memory.")
@click.option("--arrays", type=FOLDER, help="With --nodes: folder of x.npy, y.npy, train_mask.npy, ...")
@click.option("--undirected", is_flag=True, help="Every edge goes both ways; rows a,b and b,a are one edge.")
@click.option("--task", help="multiclass, multilabel or regression; by default what labels look like.")
@click.option("--out", type=FOLDER, required=True, help="Folder of the graph.")
def command(
    edges: Path,
    features: Path | None,
    labels: Path | None,
    splits: Path | None,
    nodes: int | None,
    arrays: Path | None,
    undirected: bool,
    task: Any,
    out: Path,
) -> None:
    """Make a graph of CSV or Parquet files. Each has a line of names.

    EDGES has a row per edge: columns source and target (or src and dst, from and to; else the first two), and
    perhaps weight and edge_type. In the other files a column id (or node; else the first) says which node a
    row is about; labels are in a column label (or y, class, target; the first that is there), and splits in
    a column split (train, val or test), or in columns train, val and test of zeros and ones. Without
    --splits, 60 % of the labelled nodes train, 20 % validate and 20 % test. What is left out is named.

    With --nodes, ids are numbers, and edges are read in pieces and sorted on disk; the rest comes from
    --arrays.
    """
    refuse_graph(out)
    tables = {"--features": features, "--labels": labels, "--splits": splits, "--task": task}
    if nodes is None:
        if arrays is not None:
            raise lmc.ArgumentError("--arrays: is read with --nodes alone")
        graph = lmc.read_tables(edges, features, labels, splits, undirected=undirected, task=task)
        graph.save(out)
    else:
        for flag, table in tables.items():
            if table is not None:
                raise lmc.ArgumentError(f"{flag}: with --nodes, what nodes have is read from --arrays")
        with bars() as told:
            graph = lmc.import_edges(edges, out, nodes, arrays, undirected=undirected, told=told)
    print(f"{out}: {graph}; {_use(graph, out)}")
    if not undirected and not graph.is_undirected:
        print("messages go from source to target alone; --undirected makes every edge go both ways")


def _use(graph: Graph, folder: Path) -> str:
    """What can be done with it."""
    if not bool(graph.train_mask.any()):
        return f"`lmc predict RUN --data {as_typed(folder)}` predicts it"
    if graph.num_features == 0:
        made = "--features structure` trains on features that are made of its edges"
        return f"--features were not given; `lmc train --data {as_typed(folder)} {made}"
    return f"`lmc train --data {as_typed(folder)}` trains on it"
