"""Edges of a table that may be larger than memory: read in pieces, sorted on disk, saved as a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmc import checks
from lmc.array_files import DAMAGED_ARRAY, Pieces
from lmc.data import storage
from lmc.data.graph import Graph
from lmc.data.saved import content
from lmc.data.sorted_edges import SortedEdges
from lmc.data.splits import MASKS
from lmc.data.spool import Told, spool_folder
from lmc.data.table_files import columns_in_pieces, is_nameless
from lmc.data.tables import ends_of
from lmc.errors import ArgumentError, DatasetError
from lmc.files import one_line, regular
from lmc.sparse import index_dtype

OF_NODES = ("x", "y", *MASKS)


def import_edges(
    edges: str | Path,
    out: str | Path,
    nodes: int,
    arrays: str | Path | None = None,
    *,
    undirected: bool = False,
    told: Told = lambda *_: None,
) -> Graph:
    """Save the graph of a table of edges that may be larger than memory; it takes memory for nodes alone.

    Args:
        edges: CSV or Parquet with a row per edge: columns source and target, or src and dst, or from and to,
            or else the first two. They hold numbers of nodes, from 0 on.
        out: the folder of the graph.
        nodes: how many there are.
        arrays: a folder of `.npy` files with a row per node: `x`, `y`, `train_mask`, `val_mask` and
            `test_mask`, as far as they are there.
        undirected: whether every edge goes both ways; then repeated ones are one.
        told: is told what is done, how much of it is, and how much there is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/edges.csv").write_text("source,target\\n0,1\\n2,1\\n")
    ...     import_edges(f"{folder}/edges.csv", f"{folder}/graph", nodes=3)
    Graph(3 nodes, 2 edges, 0 features, no labels, directed)
    """
    file, folder = checks.path("edges", edges), checks.path("out", out)
    nodes = checks.whole_number("nodes", nodes, 1)
    storage.replaced(folder)  # raises where it may not be written
    given: dict[str, Any] = {} if arrays is None else _arrays(checks.path("arrays", arrays), nodes)
    with spool_folder(folder) as aside:
        count, pieces = columns_in_pieces(file, partial(_ends_alone, file))
        sorted_edges = SortedEdges(aside, nodes, (2 if undirected else 1) * count)
        found = 0
        for source, target in pieces:
            _check(file, source, target, nodes)
            sorted_edges.add(target, source)
            if undirected:
                sorted_edges.add(source, target)
            found += len(source)
            told("edges", found, max(found, count))
        index = np.dtype(str(index_dtype(max(nodes, 2 * found))).removeprefix("torch."))
        offsets = np.zeros(nodes + 1, index)

        def columns() -> Iterator[NDArray[np.int64]]:
            rows = 0
            pieces = sorted_edges.once() if undirected else sorted_edges.every()
            for number, (lengths, columns) in enumerate(pieces):
                offsets[rows + 1 : rows + 1 + len(lengths)] = offsets[rows] + np.cumsum(lengths)
                rows += len(lengths)
                yield columns
                told("rows of neighbours", number + 1, sorted_edges.buckets)

        given.setdefault("x", np.empty((nodes, 0), np.float32))
        about, checked = content(Graph(np.empty((2, 0), np.int64), **given))
        of_nodes = {name: checked[name] for name in OF_NODES}
        # Where rows begin is known when all are written.
        storage.save(folder, about, {"indices": Pieces(index, (), columns()), "indptr": offsets, **of_nodes})
    return Graph.open(folder)


def _ends_alone(file: Path, names: list[str]) -> list[str]:
    """The columns of the ends; a warning names those that are not read."""
    ends = ends_of(names)
    if unread := [repr(name) for name in names if name not in ends and not is_nameless(name)]:
        others = "weights and types of edges are read by lmc.read_tables, or lmc import without --nodes"
        text = f"{file}: left out: {', '.join(unread)}; read are {', '.join(ends)}; {others}"
        warnings.warn(text, stacklevel=2)
    return ends


def _check(file: Path, source: NDArray[np.int64], target: NDArray[np.int64], nodes: int) -> None:
    for column in (source, target):
        wrong = (column < 0) | (column >= nodes)
        if wrong.any():
            raise DatasetError(
                f"{file}: node {column[wrong][0]}: must be from 0 to {nodes - 1} (nodes={nodes})"
            )


def _arrays(folder: Path, nodes: int) -> dict[str, NDArray[Any]]:
    """Those that are in a folder, read through maps; a warning names others."""
    if not folder.is_dir():
        raise DatasetError(f"{folder}: no such folder")
    others = sorted(file.stem for file in folder.glob("*.npy") if file.stem not in OF_NODES)
    if others:
        left_out = f"{', '.join(map(repr, others))} left out; read are {', '.join(OF_NODES)}"
        warnings.warn(f"{folder}: {left_out}", stacklevel=3)
    found: dict[str, NDArray[Any]] = {}
    for name in OF_NODES:
        file = folder / f"{name}.npy"
        if not file.exists():
            continue
        try:
            found[name] = np.lib.format.open_memmap(regular(file), mode="r")
        except DAMAGED_ARRAY as error:
            raise DatasetError(f"{file}: cannot be read ({one_line(error)})") from None
        if found[name].shape[:1] != (nodes,):
            raise ArgumentError(f"{file}: has shape {found[name].shape}; must have nodes={nodes} rows")
    return found
