"""`prepare`: nodes in the order of their clusters, on disk, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks, memory_use
from lmc.array_files import write_array
from lmc.batching.choice import check_shards, choose_batches
from lmc.batching.partition import PartitionMethod, fitting_method
from lmc.batching.partition import partition as cut
from lmc.batching.shards import cut_into_shards
from lmc.data.extents import Form, write_extents
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.data.prepared import (
    FORMAT,
    MANIFEST,
    OF_EDGES,
    OF_NODES,
    TABLES,
    VERSION,
    Order,
    Prepared,
    digest_of,
)
from lmc.data.spool import Spool, Told, spool_folder
from lmc.errors import ArgumentError, GraphError
from lmc.files import check_fillable, filling, one_line, write_atomically, write_synced
from lmc.sparse import CSR, index_dtype

BYTES_PER_NODE = 64
"""Numbers, places, clusters and offsets of nodes, and what it takes to make them, about."""
LEAST = 1 << 28
"""Bytes beside those of nodes: Python and libraries, and buckets of a few megabytes."""
SHARE = 32
"""A bucket, of which a few copies are made, is this part of what memory is left; and a piece that is read."""
MOST_BUCKETS = 256


def prepare(
    graph: Graph,
    out: str | Path,
    *,
    parts: int | None = None,
    partition: PartitionMethod = "auto",
    seed: int = 0,
    memory: int | str | None = None,
    shards: int = 1,
    told: Told = lambda *_: None,
) -> Prepared:
    """Write a graph into a folder in which each cluster's rows of every array lie together.

    Features, labels, masks and rows of neighbours are read once, in their order, put aside in buckets on
    disk, and written cluster by cluster: memory follows nodes, not features or edges.

    Args:
        graph: the graph, perhaps memory-mapped, as `lmc.load` opens the folder of a saved one.
        out: the folder; a graph that was prepared there is an error.
        parts: how many clusters; None for as many as a run would have.
        partition: how it is cut, as for `lmc.partition`; `"auto"` keeps to `memory`.
        seed: of the clusters.
        memory: bytes that may be taken, such as `"2GB"`, the graph's own arrays not counted; None for what is
            free.
        shards: into how many sets of clusters the graph is divided: those of a shard lie together, and a run
            with as many `shards` has these. Must be a divisor of `parts`.
        told: is told what is done, how much of it is, and how much there is.

    >>> import lmc, tempfile
    >>> graph = lmc.synthetic(nodes=500)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     prepared = lmc.prepare(graph, f"{folder}/graph", parts=5)
    ...     prepared, prepared.rows("x", 0).shape[1]
    (Prepared(500 nodes, 4,418 edges, 5 clusters), 64)
    """
    check_graph(graph)
    folder = checks.path("out", out)
    if (folder / MANIFEST).exists():
        raise ArgumentError(f"{folder}: holds a prepared graph already; remove it, or choose another folder")
    check_fillable(folder, MANIFEST, "a prepared graph")
    bucket = _bucket_bytes(graph.num_nodes, memory)
    shards = checks.whole_number("shards", shards, 1)
    if parts is None:
        parts = choose_batches(graph.num_nodes).in_shards(graph.num_nodes, shards).parts
    check_shards(shards, parts)
    if partition == "auto" and memory is not None:
        partition = fitting_method(graph, checks.byte_count("memory", memory))
    told("clusters", 0, 1)
    clusters = cut(graph, parts, partition, seed)
    if shards > 1:
        clusters = _shard_by_shard(clusters, cut_into_shards(graph, clusters, shards))
    told("clusters", 1, 1)
    try:
        with filling(folder, MANIFEST), spool_folder(folder) as aside:
            _write(graph, order_of(clusters.numpy()), shards, folder, _Aside(aside, bucket), told)
    except OSError as error:
        raise GraphError(f"{folder}: cannot be written ({one_line(error)})") from None
    return Prepared(folder)


def _bucket_bytes(num_nodes: int, memory: int | str | None) -> int:
    """How large a bucket may be; ArgumentError where memory is not enough for nodes alone."""
    least = LEAST + BYTES_PER_NODE * num_nodes
    given = memory_use.free() or 2 * least if memory is None else checks.byte_count("memory", memory)
    if given < least:
        raise ArgumentError(f"memory={given / 1e9:.3g} GB: {least / 1e9:.3g} GB is the least that would do")
    return max(1 << 16, (given - least) // SHARE)


def _shard_by_shard(clusters: Tensor, of_cluster: Tensor) -> Tensor:
    """(nodes,) the same clusters, under numbers in the order of their shards."""
    number = torch.empty_like(of_cluster)
    number[of_cluster.argsort(stable=True)] = torch.arange(len(of_cluster))
    return number[clusters]


def order_of(clusters: NDArray[np.int64]) -> Order:
    """Nodes in the order of their clusters."""
    nodes = np.argsort(clusters, kind="stable")
    places = np.empty_like(nodes)
    places[nodes] = np.arange(len(nodes))
    return Order(nodes, places, np.concatenate([[0], np.cumsum(np.bincount(clusters))]))


def _buckets(order: Order, offsets: NDArray[np.int64], bucket_bytes: int) -> NDArray[np.int64]:
    """(buckets + 1,) the first cluster of each bucket, where places have bytes at these offsets."""
    ends = offsets[order.starts]
    count = int(np.clip(ends[-1] // bucket_bytes + 1, 1, min(MOST_BUCKETS, len(order.starts) - 1)))
    bounds = np.searchsorted(ends, np.arange(count) * (ends[-1] / count), side="right") - 1
    return np.unique([*bounds, 0, len(order.starts) - 1])


class _Aside(NamedTuple):
    """Where rows are put aside, and how many bytes of them make a bucket."""

    folder: Path
    bucket_bytes: int

    def spool(self, name: str, dtype: Any) -> Spool:
        """Buckets of numbers of a type."""
        return Spool(self.folder, name, dtype)


def _write(graph: Graph, order: Order, shards: int, folder: Path, aside: _Aside, told: Told) -> None:
    lengths = graph.adjacency.row_lengths().numpy().astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(lengths[order.nodes])])
    tables: dict[str, NDArray[Any]] = dict(zip(TABLES, (*order, indptr), strict=True))
    forms: dict[str, Form] = {}

    def write(name: str, form: Form, rows: Iterator[NDArray[Any]]) -> None:
        forms[name] = form
        tables[f"{name}.extents"] = write_extents(folder / f"{name}.bin", _said(rows, name, order, told))

    for name, array in _arrays(graph, OF_NODES).items():
        write(name, _form(array), _rows_by_cluster(array, order, aside))
    edges = graph.adjacency, order, indptr, aside
    write("indices", Form(f"<i{index_dtype(graph.num_nodes).itemsize}", ()), _edges_by_cluster(None, *edges))
    for name, array in _arrays(graph, OF_EDGES[1:]).items():
        write(name, _form(array), _edges_by_cluster(array, *edges))
    for name, table in tables.items():
        write_synced(folder / f"{name}.npy", partial(write_array, array=table))
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "task": graph.task,
        "num_classes": graph.num_classes,
        "class_names": graph.class_names,
        "feature_names": graph.feature_names,
        "undirected": graph.is_undirected,
        "shards": shards,
        "tables": {name: digest_of(folder / f"{name}.npy") for name in tables},
        "arrays": forms,
    }
    content = json.dumps(manifest, indent=2).encode()
    write_atomically(folder / MANIFEST, lambda file: file.write(content))


def _arrays(graph: Graph, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Those that the graph has."""
    found = {name: getattr(graph, name) for name in names}
    return {name: np.asarray(array) for name, array in found.items() if array is not None}


def _form(array: NDArray[Any]) -> Form:
    return Form(array.dtype.str, array.shape[1:])


def _said(clusters: Iterator[NDArray[Any]], what: str, order: Order, told: Told) -> Iterator[NDArray[Any]]:
    total = len(order.starts) - 1
    for number, rows in enumerate(clusters):
        yield rows
        told(what, number + 1, total)


def _rows_by_cluster(array: NDArray[Any], order: Order, aside: _Aside) -> Iterator[NDArray[Any]]:
    """The rows of each cluster, of an array with a row per node."""
    row_bytes = max(1, _form(array).row_bytes)
    bounds = _buckets(order, np.arange(len(array) + 1) * row_bytes, aside.bucket_bytes)
    ends = order.starts[bounds]  # places
    spool, at_once = aside.spool("rows", np.uint8), max(1, aside.bucket_bytes // row_bytes)
    for start in range(0, len(array), at_once):
        bucket = np.searchsorted(ends, order.places[start : start + at_once], side="right") - 1
        for number, chosen in _by_bucket(bucket, len(bounds)):
            spool.add(number, _as_bytes(array[start + chosen]))
    for number, (begin, end) in enumerate(pairwise(ends.tolist())):
        content = spool.take(number).view(array.dtype).reshape(end - begin, *array.shape[1:])
        rows = np.empty_like(content)
        # They were put aside in the order of the user's numbers.
        rows[order.places[np.sort(order.nodes[begin:end])] - begin] = content
        for first, last in _clusters(order, bounds, number):
            yield rows[first - begin : last - begin]


def _clusters(order: Order, bounds: NDArray[np.int64], bucket: int) -> Iterator[tuple[int, int]]:
    """The first place of each cluster of a bucket, and the one after its last."""
    for cluster in range(bounds[bucket], bounds[bucket + 1]):
        yield int(order.starts[cluster]), int(order.starts[cluster + 1])


def _edges_by_cluster(
    values: NDArray[Any] | None, adjacency: CSR, order: Order, indptr: NDArray[np.int64], aside: _Aside
) -> Iterator[NDArray[Any]]:
    """Of each cluster the places of those who send, row by row and rising; or values of these edges."""
    num_nodes = len(order.nodes)
    of_values = Form("<i8", ()) if values is None else Form(values.dtype.str, values.shape[1:])
    bounds = _buckets(order, indptr * (8 + of_values.row_bytes), aside.bucket_bytes)
    ends = order.starts[bounds]
    keys, put = aside.spool("keys", np.int64), aside.spool("values", np.uint8)
    done = 0
    for rows, part in adjacency.pieces(max(1, aside.bucket_bytes // 64)):
        row = order.places[rows.start + part.row_ids().numpy().astype(np.int64)]
        key = row * num_nodes + order.places[part.indices.numpy()]
        for number, chosen in _by_bucket(np.searchsorted(ends, row, side="right") - 1, len(bounds)):
            keys.add(number, key[chosen])
            if values is not None:
                put.add(number, _as_bytes(values[done : done + len(key)][chosen]))
        done += len(key)
    index = index_dtype(num_nodes)
    for number in range(len(bounds) - 1):
        key = keys.take(number)
        rising = np.argsort(key, kind="stable")  # repeated edges stay as they follow
        if values is None:
            found = torch.from_numpy(key[rising] % num_nodes).to(index).numpy()
        else:
            found = put.take(number).view(values.dtype).reshape(len(key), *values.shape[1:])[rising]
        begin = indptr[ends[number]]
        for start, stop in _clusters(order, bounds, number):
            yield found[indptr[start] - begin : indptr[stop] - begin]


def _by_bucket(bucket: NDArray[np.int64], count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each bucket below `count` that is there, and where, in order."""
    places = np.argsort(bucket, kind="stable")
    cuts = np.searchsorted(bucket[places], np.arange(count))
    for number in np.flatnonzero(np.diff(cuts)).tolist():
        yield number, places[cuts[number] : cuts[number + 1]]


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
