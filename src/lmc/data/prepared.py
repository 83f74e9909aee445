"""A prepared folder: a graph whose nodes lie in the order of their clusters, read cluster by cluster.

Arrays are in extents (`extents.py`), a file each, and the manifest is written last: a folder without it holds
nothing. Rows lie by places, which are numbers of nodes in the order of clusters, and so are columns of the
adjacency; whatever goes in or comes out is in the user's own numbers.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmc import checks
from lmc.array_files import DAMAGED_ARRAY
from lmc.data.extents import Extents, Form
from lmc.data.splits import MASKS
from lmc.errors import GraphError
from lmc.files import one_line, read_text_bytes, regular

MANIFEST, FORMAT, VERSION = "prepared.json", "lmc-prepared", 1
OF_NODES, OF_EDGES = ("x", "y", *MASKS, "id"), ("indices", "edge_weight", "edge_attr", "edge_type")
TABLES = ("nodes", "places", "starts", "indptr")
"""Plain arrays: whose place it is, where a node is, where clusters begin, where rows of neighbours begin."""


class Order(NamedTuple):
    """Nodes in the order of their clusters.

    Attributes:
        nodes: (nodes,) whose place it is; rising in each cluster.
        places: (nodes,) where a node is.
        starts: (clusters + 1,) the first place of each cluster.
    """

    nodes: NDArray[np.int64]
    places: NDArray[np.int64]
    starts: NDArray[np.int64]


def digest_of(file: Path) -> str:
    """What the manifest says of a small file."""
    digest = hashlib.blake2b(digest_size=16)
    with open(regular(file), "rb") as opened:
        while piece := opened.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


class Prepared:
    """A graph in a folder that `lmc.prepare` wrote; the rows of a cluster are one read.

    Args:
        folder: the folder.

    Attributes:
        num_nodes: how many nodes there are.
        num_edges: how many messages one aggregation sends.
        parts: how many clusters.
        shards: how many shards they make: each is a run of as many clusters.
        names: of the arrays: `x`, `y`, masks, `indices`, and what else the graph has.

    Raises:
        GraphError: where it is damaged, or is no such folder; one line.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = checks.path("folder", folder)
        self.about = about = self._manifest()
        try:
            tables = {name: self._table(name, digest) for name, digest in about["tables"].items()}
            self._nodes, self._places, self._starts, self._indptr = (tables[name] for name in TABLES)
            forms = {name: Form(form[0], tuple(form[1])) for name, form in about["arrays"].items()}
            self._arrays = {
                name: Extents(self.folder / f"{name}.bin", tables[f"{name}.extents"], form)
                for name, form in forms.items()
            }
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise GraphError(
                f"{self.folder / MANIFEST}: does not describe a prepared graph ({error})"
            ) from None
        self.num_nodes, self.parts = len(self._nodes), len(self._starts) - 1
        self.num_edges, self.names = int(self._indptr[-1]), tuple(self._arrays)
        self.shards = about.get("shards", 1)
        if type(self.shards) is not int or self.shards < 1 or self.parts % self.shards:
            rule = f"must be a divisor of its {self.parts} clusters"
            raise GraphError(f"{self.folder / MANIFEST}: shards={self.shards!r}: {rule}")

    def check(self) -> None:
        """Read everything once; GraphError where a byte is not the one that was written."""
        for array in self._arrays.values():
            array.check()

    @property
    def order(self) -> Order:
        """Where nodes are."""
        return Order(self._nodes, self._places, self._starts)

    def mapped(self) -> dict[str, NDArray[Any]]:
        """All arrays by name, rows in the order of places, read through maps; `indptr` among them."""
        found = {name: array.mapped(self._count(name)) for name, array in self._arrays.items()}
        return found | {"indptr": self._indptr}

    def _count(self, name: str) -> int:
        """Rows of an array."""
        return self.num_edges if name in OF_EDGES else self.num_nodes

    def nodes(self, cluster: int) -> NDArray[np.int64]:
        """(nodes,) the user's numbers of the nodes of a cluster, in the order of its rows."""
        return np.array(self._nodes[self._starts[cluster] : self._starts[cluster + 1]])

    def clusters(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(nodes,) which cluster nodes are in, and so which extents have their rows."""
        return np.searchsorted(self._starts, self._places[nodes], side="right") - 1

    def rows(self, name: str, cluster: int) -> NDArray[Any]:
        """(nodes, ...) the rows of an array of nodes; (edges, ...) of edges, in the order of `neighbours`."""
        first, last = int(self._starts[cluster]), int(self._starts[cluster + 1])
        if name in OF_EDGES:
            first, last = int(self._indptr[first]), int(self._indptr[last])
        return self._arrays[name].read(cluster, last - first)

    def neighbours(self, cluster: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(nodes + 1,) where rows begin, and (edges,) the user's numbers of those who send to them."""
        begins = self._indptr[self._starts[cluster] : self._starts[cluster + 1] + 1]
        return begins - begins[0], np.array(self._nodes[self.rows("indices", cluster)])

    def __repr__(self) -> str:
        sizes = {"node": self.num_nodes, "edge": self.num_edges, "cluster": self.parts}
        if self.shards > 1:
            sizes["shard"] = self.shards
        return f"Prepared({', '.join(checks.counted(number, noun) for noun, number in sizes.items())})"

    def _manifest(self) -> dict[str, Any]:
        file = self.folder / MANIFEST
        try:
            about = json.loads(read_text_bytes(file))
        except FileNotFoundError:
            raise GraphError(f"{self.folder}: not a prepared graph, {MANIFEST} is missing") from None
        except (OSError, ValueError, RecursionError) as error:
            raise GraphError(f"{file}: cannot be read ({one_line(error)})") from None
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise GraphError(f"{file}: does not describe a prepared graph")
        if about.get("version") != VERSION:
            raise GraphError(f"{file}: version {about.get('version')!r}; this version of lmc reads {VERSION}")
        return about

    def _table(self, name: str, digest: str) -> NDArray[np.int64]:
        file = self.folder / f"{name}.npy"
        try:
            if digest_of(file) != digest:
                raise GraphError(f"{file}: is not what was written; prepare the graph anew")
            return np.lib.format.open_memmap(file, mode="r")
        except DAMAGED_ARRAY as error:
            raise GraphError(f"{file}: cannot be read ({one_line(error)})") from None
