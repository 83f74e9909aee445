"""Cora, CiteSeer and PubMed from the files of Planetoid (Yang et al., 2016)."""

from __future__ import annotations

import math
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lmc import memory_use
from lmc.data.graph import Graph
from lmc.data.plain_pickle import MOST_OPERATIONS, read_pickle
from lmc.errors import DatasetError
from lmc.files import one_line, read_text_bytes

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATING = 500
MOST_NODES = 10_000_000


def files_of(name: str) -> tuple[str, ...]:
    """The names of the files of a data set.

    >>> files_of("cora")[-1]
    'ind.cora.test.index'
    """
    return tuple(f"ind.{name}.{part}" for part in PARTS)


def read_planetoid(folder: Path, name: str) -> Graph:
    """The graph of the files `ind.NAME.x` and so on in a folder, with the public split.

    `allx` holds the features of the first nodes, `tx` those of the nodes in `test.index`, row by row; `ally`
    and `ty` their labels, one column a class. A node in neither, such as CiteSeer's 15 without text, has no
    features and the first class, as in PyG, and is in no mask. The first nodes train (as many as `y` has),
    and the next 500 validate. Self-loops are dropped, and repeated citations are one edge.
    """
    x, tx, allx, y, ty, ally, graph, test_index = (folder / file for file in files_of(name))
    test = _test_nodes(test_index)
    tables = {file: _matrix(file) for file in (x, tx, allx, y, ty, ally)}
    num_known, num_train = tables[allx].shape[0], tables[y].shape[0]
    _require(allx, num_known >= num_train, f"has {num_known} rows: {y.name} has {num_train}")
    for file, like in ((x, y), (ally, allx), (ty, tx)):
        rows, rule = tables[file].shape[0], tables[like].shape[0]
        _require(file, rows == rule, f"has {rows} rows: must have {rule}, as {like.name} has")
    for file, like in ((x, allx), (tx, allx), (y, ally), (ty, ally)):
        columns, rule = tables[file].shape[1], tables[like].shape[1]
        _require(file, columns == rule, f"has {columns} columns: must have {rule}, as {like.name} has")
    rows = tables[tx].shape[0]
    _require(test_index, len(test) == rows, f"has {len(test)} nodes: must have {rows}, as {tx.name} has rows")
    unique = len(np.unique(test)) == len(test) and test.min(initial=num_known) >= num_known
    _require(test_index, unique, f"must name nodes from {num_known} on, each once")

    num_nodes = max(num_known, int(test.max(initial=-1)) + 1)
    masks = np.zeros((3, num_nodes), dtype=bool)
    masks[0, :num_train] = True
    masks[1, num_train : min(num_train + VALIDATING, num_known)] = True
    masks[2, test] = True
    return Graph.from_csr(
        *_adjacency(graph, num_nodes),
        _joined(tables[allx], tables[tx], test, num_nodes, allx),
        _joined(tables[ally], tables[ty], test, num_nodes, ally).argmax(axis=1),
        *masks,
        num_classes=tables[ally].shape[1],
    )


def _test_nodes(file: Path) -> NDArray[np.int64]:
    try:
        nodes = np.array([int(line) for line in read_text_bytes(file).split()], dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise DatasetError(f"{file}: not a list of nodes ({one_line(error)})") from None
    _require(file, bool((nodes < MOST_NODES).all()), f"has a node from {MOST_NODES:,} on")
    return nodes


def _matrix(file: Path) -> Any:
    """A sparse or a dense one."""
    matrix = read_pickle(file)
    right = isinstance(matrix, (np.ndarray, sparse.csr_array)) and matrix.ndim == 2
    _require(file, right, f"holds {_kind(matrix)}: must be a matrix")
    return matrix


def _joined(
    known: Any, tested: Any, test: NDArray[np.int64], num_nodes: int, file: Path
) -> NDArray[np.float32]:
    """(nodes, columns) the rows of the first nodes, those of the test nodes, and zeros between them."""
    shape, free = (num_nodes, known.shape[1]), memory_use.free()
    # The parts are dense for a moment, too.
    needed = 2 * np.dtype(np.float32).itemsize * math.prod(shape)
    if free is not None and needed > free:
        sizes = f"takes {needed / 1e9:.2g} GB, {free / 1e9:.2g} GB are free"
        raise DatasetError(f"{file}: a matrix of {shape[0]} x {shape[1]} {sizes}")
    joined = np.zeros(shape, dtype=np.float32)
    joined[: known.shape[0]] = _dense(known)
    joined[test] = _dense(tested)
    return joined


def _dense(matrix: Any) -> NDArray[np.float32]:
    dense = matrix.toarray() if isinstance(matrix, sparse.csr_array) else matrix
    return np.asarray(dense, dtype=np.float32)


def _adjacency(file: Path, num_nodes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and columns of the CSR of in-neighbours, from {node: [neighbour, ...]}."""
    graph = read_pickle(file)
    _require(file, isinstance(graph, dict), f"holds {_kind(graph)}: must be a dict")
    neighbours = list(graph.values())
    _require(file, all(isinstance(row, list) for row in neighbours), "must have a list for every node")
    # One list can be the neighbours of every node, and few bytes any number of edges.
    lengths = np.fromiter(map(len, neighbours), np.int64, len(neighbours))
    _require(file, lengths.sum() <= MOST_OPERATIONS, f"has more than {MOST_OPERATIONS:,} edges")
    known = all(type(node) is int and 0 <= node < num_nodes for node in chain(graph, *neighbours))
    _require(file, known, f"must name nodes in 0..{num_nodes - 1}")
    source = np.repeat(np.fromiter(graph, np.int64, len(graph)), lengths)
    target = np.fromiter(chain(*neighbours), np.int64, lengths.sum())
    apart = source != target
    ends = (target[apart], source[apart])
    merged = sparse.coo_array((np.ones(apart.sum(), np.float32), ends), shape=(num_nodes, num_nodes)).tocsr()
    return merged.indptr, merged.indices


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _require(file: Path, right: bool | np.bool_, rule: str) -> None:
    if not right:
        raise DatasetError(f"{file}: {rule}")
