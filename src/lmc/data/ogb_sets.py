"""Data sets of the Open Graph Benchmark, without the pickled copies that it keeps of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lmc.array_files import handed_over
from lmc.data.graph import Graph
from lmc.errors import DatasetError


@dataclass(frozen=True)
class OGBSet:
    """One of OGB's node classification sets whose files are tables, such as `"ogbn-arxiv"`."""

    name: str

    def download(self, folder: Path) -> None:
        """Download OGB's archive, and have its folders `raw` and `split` in `folder`."""
        with _from_ogb():
            from ogb.utils.url import download_url, extract_zip
        about = self._about()
        with tempfile.TemporaryDirectory(dir=folder) as packed:
            extract_zip(download_url(about["url"], packed), packed)
            for unpacked in (Path(packed) / about["download_name"]).iterdir():
                unpacked.rename(folder / unpacked.name)

    def parse(self, raw: Path) -> Graph:
        """The graph, by OGB's own reader; citations count in both directions, as is usual for these."""
        with _from_ogb():
            from ogb.io.read_graph_raw import read_csv_graph_raw
        from torch_geometric.utils import to_undirected

        about = self._about()
        graph = read_csv_graph_raw(str(raw))[0]
        masks = torch.zeros(3, graph["num_nodes"], dtype=torch.bool)
        for mask, part in zip(masks, ("train", "valid", "test"), strict=True):
            mask[_table(raw.parent / "split" / about["split"] / f"{part}.csv.gz")[:, 0]] = True
        labels = _table(raw / "node-label.csv.gz")[:, 0]
        return Graph(
            to_undirected(torch.tensor(graph["edge_index"]), num_nodes=graph["num_nodes"]),
            handed_over(graph["node_feat"]),
            np.where(np.isnan(labels), -1, labels).astype(np.int64),
            *masks,
            num_classes=int(about["num classes"]),
        )

    def _about(self) -> Any:
        """What OGB says of the set."""
        with _from_ogb():
            import ogb
            import pandas as pd
        return pd.read_csv(Path(ogb.__file__).parent / "nodeproppred" / "master.csv", index_col=0)[self.name]


def _table(file: Path) -> Any:
    import pandas as pd  # OGB brings it along

    return pd.read_csv(file, header=None).to_numpy(copy=True)


@contextmanager
def _from_ogb() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        package = str(error.name).split(".")[0]
        raise DatasetError(f"needs the package {package}; type: pip install 'lmc[ogb]'") from None
