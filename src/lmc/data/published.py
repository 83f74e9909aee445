"""Published data sets through the parsers of PyG and OGB, but never through their pickled copies."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch

from lmc.data import storage
from lmc.data.graph import Graph
from lmc.data.pyg import Role
from lmc.errors import DatasetError, GraphError, LMCError
from lmc.files import one_line

if TYPE_CHECKING:
    from torch_geometric.data import Data


def _flickr(folder: Path) -> Graph:
    from torch_geometric.datasets import Flickr

    return Graph.from_pyg_list(_parsed(Flickr, folder)[0])


def _reddit(folder: Path) -> Graph:
    from torch_geometric.datasets import Reddit

    return Graph.from_pyg_list(_parsed(Reddit, folder)[0])


def _ppi(folder: Path) -> Graph:
    from torch_geometric.datasets import PPI

    parsed = dict(zip(get_args(Role), _parsed(PPI, folder), strict=True))
    roles = [role for role, graphs in parsed.items() for _ in graphs]
    return Graph.from_pyg_list([graph for graphs in parsed.values() for graph in graphs], roles)


def _parsed(dataset: Any, folder: Path) -> list[list[Data]]:
    """The graphs that a PyG data set parses from its raw files, split by split."""
    parsed: list[list[Data]] = []

    class KeptNotPickled(dataset):  # type: ignore[misc]
        def _process(self) -> None:
            self.process()

        def save(self, graphs: Sequence[Data], path: str) -> None:
            parsed.append(list(graphs))

        def load(self, path: str) -> None:
            pass

    KeptNotPickled(str(folder))
    return parsed


def _ogb(folder: Path) -> Graph:
    """OGB's own CSV reader; citations count in both directions, as is usual for these graphs."""
    try:
        import ogb
        import pandas as pd
        from ogb.io.read_graph_raw import read_csv_graph_raw
        from ogb.utils.url import download_url, extract_zip
        from torch_geometric.utils import to_undirected
    except ImportError as error:
        raise DatasetError(f"{folder.name}: needs the package {error.name}; pip install 'lmc[ogb]'") from None

    def table(file: Path) -> Any:
        return pd.read_csv(file, header=None).to_numpy(copy=True)

    master = pd.read_csv(Path(ogb.__file__).parent / "nodeproppred" / "master.csv", index_col=0)
    about = master[folder.name.replace("_", "-")]
    with contextlib.redirect_stdout(sys.stderr):
        if not (folder / "raw").is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
                extract_zip(download_url(about["url"], partial), partial)
                (Path(partial) / about["download_name"]).rename(folder)
        graph = read_csv_graph_raw(str(folder / "raw"))[0]
    masks = torch.zeros(3, graph["num_nodes"], dtype=torch.bool)
    for mask, part in zip(masks, ("train", "valid", "test"), strict=True):
        mask[table(folder / "split" / about["split"] / f"{part}.csv.gz")[:, 0]] = True
    labels = table(folder / "raw" / "node-label.csv.gz")[:, 0]
    unknown = np.isnan(labels)
    return Graph(
        to_undirected(torch.tensor(graph["edge_index"]), num_nodes=graph["num_nodes"]),
        graph["node_feat"],
        np.where(unknown, -1, labels).astype(np.int64),
        *masks,
        num_classes=int(about["num classes"]),
    )


_OGB_FILES = ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
_OGB_RAW = tuple(f"{name}.csv.gz" for name in _OGB_FILES)
_PPI_RAW = tuple(
    f"{part}_{name}"
    for part in ("train", "valid", "test")
    for name in ("feats.npy", "graph_id.npy", "graph.json", "labels.npy")
)

LOADERS: dict[str, tuple[Callable[[Path], Graph], str, tuple[str, ...]]] = {
    # name: parser, folder, files of its raw/ folder
    "ogbn-arxiv": (_ogb, "ogbn_arxiv", _OGB_RAW),
    "ogbn-products": (_ogb, "ogbn_products", _OGB_RAW),
    "flickr": (_flickr, "flickr", ("adj_full.npz", "feats.npy", "class_map.json", "role.json")),
    "reddit": (_reddit, "reddit", ("reddit_data.npz", "reddit_graph.npz")),
    "ppi": (_ppi, "ppi", _PPI_RAW),
}


def load(name: str, roots: Sequence[Path]) -> Graph:
    """The graph of one of `LOADERS`, from the first of `roots` that has its files.

    Where none has, it is downloaded into the first. The parsed graph is kept beside the raw files, as a
    folder that opens at once the next time.
    """
    parse, folder_name, raw = LOADERS[name]
    folders = [root / folder_name for root in roots]
    for folder in folders:
        if (folder / "graph" / storage.HEADER).is_file():
            return Graph.open(folder / "graph")
    complete = [f for f in folders if all((f / "raw" / file).is_file() for file in raw)]
    folder = complete[0] if complete else folders[0]
    try:
        graph = parse(folder)
    except LMCError as error:
        raise type(error)(f"{name} in {folder}: {error}") from None
    except Exception as error:  # a parser, a network or a disk of someone else's
        for made in (folder / "raw", folder):
            with contextlib.suppress(OSError):
                made.rmdir()  # only what is empty goes
        raise DatasetError(_reason(name, folder, raw, error)) from None
    with contextlib.suppress(GraphError):  # a disk that cannot be written costs time, not the graph
        graph.save(folder / "graph")
    return graph


def _reason(name: str, folder: Path, raw: tuple[str, ...], error: Exception) -> str:
    why = f"{type(error).__name__}: {one_line(error)}"
    missing = [folder / "raw" / file for file in raw if not (folder / "raw" / file).is_file()]
    if not missing:
        return f"{name}: the files in {folder} cannot be read ({why})"
    rule = "put it there, or name another folder with root= or LMC_DATA"
    return f"{name}: {missing[0]} is missing and cannot be downloaded ({why}); {rule}"
