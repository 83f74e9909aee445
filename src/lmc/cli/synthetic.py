"""`lmc synthetic`."""

from __future__ import annotations

from pathlib import Path

import click

from lmc.cli.paths import FOLDER, refuse_graph
from lmc.cli.progress import bars
from lmc.cli.settings import count


@click.command("synthetic")
@click.option("--nodes", type=count, default="20000", show_default=True, help="How many nodes, such as 10e6.")
@click.option("--degree", type=float, default=10.0, show_default=True, help="Mean number of neighbours.")
@click.option("--classes", type=count, default="10", show_default=True, help="How many classes.")
@click.option("--features", type=count, default="64", show_default=True, help="How many features.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is random.")
@click.option("--out", type=FOLDER, required=True, help="Folder of the graph.")
def command(nodes: int, degree: float, classes: int, features: int, seed: int, out: Path) -> None:
    """Write a graph of any size, with degrees by a power law, and communities in classes.

    It is the graph of lmc.synthetic, made in memory for nodes alone: edges and features stay on disk.
    """
    refuse_graph(out)
    from lmc.data.synthetic import write_synthetic
    from lmc.data.synthetic_blocks import SyntheticBlocks

    blocks = SyntheticBlocks(nodes, degree, classes, features, seed)
    with bars() as told:
        write_synthetic(out, blocks, told)
    print(f"{out}: {nodes:,} nodes; `lmc train --data {out}` trains on it")
