"""`lmc predict`."""

from __future__ import annotations

import warnings
from pathlib import Path

import click

import lmc
from lmc.checks import counted
from lmc.cli.completion import DATA, DEVICE
from lmc.cli.paths import FILE, FOLDER


@click.command("predict")
@click.argument("run", type=FOLDER)
@click.option("--data", type=DATA, help="Name or path of a graph; by default that of the run.")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option("--nodes", type=FILE, default=None, help="File of ids, one a line; by default all nodes.")
@click.option(
    "--out", type=FILE, default=Path("predictions.parquet"), show_default=True, help=".parquet, .csv or .npz."
)
@click.option("--model", default=None, help="module:function that made the model, if it was one of yours.")
@click.option("--device", type=DEVICE, default="auto", show_default=True, help="cpu, cuda, cuda:1, mps.")
def command(
    run: Path,
    data: str | None,
    root: str | None,
    nodes: Path | None,
    out: Path,
    model: str | None,
    device: str,
) -> None:
    """Predict nodes of a graph with the best weights of a run. The graph needs no labels."""
    from lmc.runs.predictions import check_suffix, nodes_in_file, write_predictions

    check_suffix(out)
    loaded = lmc.load_run(run, model)
    _refuse_what_is_read(out, nodes, data or loaded.settings.get("data", {}).get("name"))
    _ = loaded.model  # what is wrong with it is said before a graph is loaded
    graph = loaded.load_graph(data, root)
    if data is not None and loaded.settings.get("data", {}).get("features") == "structure":
        text = "data.features=structure says where a node is in the graph of the run, and nothing in another"
        warnings.warn(text, stacklevel=1)
    wanted = None if nodes is None else nodes_in_file(nodes, graph)
    prediction = loaded.predict(graph, wanted, device)
    write_predictions(out, graph, prediction, loaded.task, wanted, loaded.class_names)
    print(f"{out}: {counted(len(prediction), 'node')}")


def _refuse_what_is_read(out: Path, nodes: Path | None, data: str | None) -> None:
    read = [nodes] if data is None else [nodes, Path(data), Path(f"{data}.npz")]
    for file in filter(None, read):
        if out.exists() and file.expanduser().exists() and out.samefile(file.expanduser()):
            raise lmc.ArgumentError(f"--out {out}: is read for this; choose another file")
