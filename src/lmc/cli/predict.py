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
@click.option("--model", default=None, help="module:function that made the model, if it was one of yours.")
def command(run: Path, data: str | None, root: str | None, out: Path, model: str | None) -> None:
    """Predict every node of a graph with a run's best weights: .parquet, .csv or .npz."""
    from lmc.runs.predictions import check_suffix, write_predictions

    check_suffix(out)
    loaded = lmc.load_run(run, model)
    graph = lmc.load(data, root) if data else loaded.load_graph(root)
    prediction = loaded.predict(graph)
    write_predictions(out, graph, prediction, loaded.task)
    print(f"{out}: {len(prediction):,} nodes")
