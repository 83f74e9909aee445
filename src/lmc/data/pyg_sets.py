"""Data sets that PyG can download and parse, without the pickled copies that it keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from lmc.data.graph import Graph
from lmc.data.planetoid import read_planetoid
from lmc.data.splits import Role, random_split

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True)
class PyGSet:
    """One of `torch_geometric.datasets`, by its class and the name that it has there, if any."""

    kind: str
    name: str | None = None

    def download(self, folder: Path) -> None:
        """Have PyG download the raw files into `folder/raw`."""

        class OnlyDownloaded(self._class()):  # type: ignore[misc]
            raw_dir = str(folder / "raw")

            def _process(self) -> None:
                pass

            def load(self, path: str) -> None:
                pass

        OnlyDownloaded(str(folder), *self._arguments())

    def parse(self, raw: Path) -> Graph:
        """The graph of the files in `raw`; with a random split, where none is published."""
        (graphs,) = self._parsed(raw)
        for data in graphs:
            if "train_mask" not in data:
                for name, mask in random_split(int(data.num_nodes)).items():
                    data[name] = torch.from_numpy(mask)
        return Graph.from_pyg_list(graphs)

    def _parsed(self, raw: Path) -> list[list[Data]]:
        """The graphs that PyG parses from raw files, split by split."""
        parsed: list[list[Data]] = []

        class KeptNotPickled(self._class()):  # type: ignore[misc]
            raw_dir = str(raw)

            def _download(self) -> None:
                pass

            def _process(self) -> None:
                self.process()

            def save(self, graphs: Sequence[Data], path: str) -> None:
                parsed.append(list(graphs))

            def load(self, path: str) -> None:
                pass

        KeptNotPickled(str(raw), *self._arguments())
        return parsed

    def _class(self) -> Any:
        import torch_geometric.datasets

        return getattr(torch_geometric.datasets, self.kind)

    def _arguments(self) -> list[str]:
        return [] if self.name is None else [self.name]


class GraphsWithRoles(PyGSet):
    """Several graphs, each of which trains, validates or tests as a whole."""

    def parse(self, raw: Path) -> Graph:
        """The union of the graphs."""
        parsed = dict(zip(get_args(Role), self._parsed(raw), strict=True))
        roles = [role for role, graphs in parsed.items() for _ in graphs]
        return Graph.from_pyg_list([graph for graphs in parsed.values() for graph in graphs], roles)


class WithoutFeatures(PyGSet):
    """The graph, the labels and the split alone."""

    def parse(self, raw: Path) -> Graph:
        """The graph with a feature matrix of no columns."""
        ((data,),) = self._parsed(raw)
        data.x = None
        return Graph.from_pyg(data)


class PlanetoidSet(PyGSet):
    """One of Planetoid's, whose files are pickles: PyG only downloads them."""

    def parse(self, raw: Path) -> Graph:
        """The graph, by our own reader."""
        assert self.name is not None
        return read_planetoid(raw, self.name.lower())
