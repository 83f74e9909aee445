"""`lmc demo`."""

from __future__ import annotations

from pathlib import Path

import click

import lmc
from lmc.cli.compare import run_all
from lmc.cli.paths import FOLDER, made_folder


@click.command("demo")
@click.option("--epochs", default=20, show_default=True, help="How often every cluster is visited.")
@click.option("--out", type=FOLDER, default=None, help="Folder; by default a new one under runs/.")
def command(epochs: int, out: Path | None) -> None:
    """Train a GCN by full batch, GAS and LMC, and compare them. The graph is the embedded one."""
    from rich.console import Console

    from lmc.runs.comparison import Asked

    tree = {
        "data": {"name": "synthetic"},
        "model": {"name": "gcn", "hidden": 64, "layers": 3, "dropout": 0.3, "norm": "batch"},
        "training": {"parts": 40, "parts_per_batch": 10, "epochs": epochs},
    }
    Console().print(f"{lmc.synthetic()}, cut into 40 clusters, 10 a batch")
    run_all(Asked(["gd", "gas", "lmc"], tree), made_folder(out, "demo"), quiet=False)
