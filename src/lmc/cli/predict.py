"""`lmc predict`."""

from __future__ import annotations

from pathlib import Path

import click

import lmc
from lmc.cli.paths import FILE, FOLDER


@click.command("predict")
@click.argument("run", type=FOLDER)
@click.option("--data", default=None, help="Name or path of a graph; by default that of the run.")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option("--out", type=FILE, default=Path("predictions.parquet"), show_default=True, help="File.")
def command(run: Path, data: str | None, root: str | None, out: Path) -> None:
    """Predict every node of a graph with a run's best weights: .parquet, .csv or .npz."""
    from lmc.runs.predictions import check_suffix, write_predictions
    from lmc.runs.run import predictions, read_config

    check_suffix(out)
    config = read_config(run)
    graph = lmc.load(data, root) if data else lmc.load(config.data["name"], root or config.data.get("root"))
    prediction, task = predictions(run, graph)
    write_predictions(out, graph, prediction, task)
    print(f"{out}: {len(prediction):,} nodes")
