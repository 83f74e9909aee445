"""Partition: the cluster of every node, cached on disk."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csgraph
from torch import Tensor

from lmc import checks, hashed_random, memory_use
from lmc.array_files import DAMAGED_ARRAY, write_array
from lmc.batching.kaminpar_cut import kaminpar_cut
from lmc.batching.streaming import stream
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.errors import LMCError
from lmc.files import cache_folder, one_line, regular, write_atomically

PartitionMethod = Literal["auto", "metis", "kaminpar", "stream", "bfs", "random"]
METIS_BYTES = 80
"""That METIS takes for each entry of the adjacency, about, beside what the process holds."""


def partition(
    graph: Graph, parts: int, method: PartitionMethod = "auto", seed: int = 0, cache: bool = True
) -> Tensor:
    """Cut a graph into clusters of about equal size, with few edges between them.

    Args:
        graph: the graph; a directed one is cut as if every edge had its reverse. METIS counts a repeated
            edge as often as it is there.
        parts: how many clusters to make. None is empty, so there may be fewer on a small graph.
        method: `"auto"` is `"metis"` where the machine has the memory for it, about 120 bytes per edge in
            each direction, and `"stream"` otherwise. `"stream"` reads the edges 40 times, from disk if they
            are there; it takes memory for nodes alone, balances edges, too (a cluster has at most twice the
            mean, but for hubs), and cuts a few percent more of them than METIS. `"kaminpar"` cuts like
            METIS in a fraction of its memory, where that package is installed. `"random"`; or `"bfs"`, runs
            of a breadth-first order, which stands in where pymetis is missing and cuts far more edges.
        seed: of the method's random choices.
        cache: whether to keep the result on disk, under `$LMC_CACHE` or the user's cache folder, and
            to look for it there first. A cache that cannot be read or written is ignored.

    Returns:
        (nodes,) int64, the cluster of every node, from 0 without gaps.

    >>> import lmc
    >>> clusters = lmc.partition(lmc.synthetic(nodes=200), parts=4)
    >>> clusters.shape, clusters.unique().tolist()
    (torch.Size([200]), [0, 1, 2, 3])
    """
    check_graph(graph)
    checks.one_of("method", method, PartitionMethod)
    parts, seed = checks.whole_number("parts", parts, 1), checks.whole_number("seed", seed, 0)
    if method == "auto":
        method = fitting_method(graph, memory_use.most())
    if method == "metis" and not has_metis():
        warnings.warn('pymetis is not installed: method="bfs" is used instead', stacklevel=2)
        method = "bfs"
    file = _cache_file(graph, parts, method, seed) if cache else None
    clusters = _read(file, graph.num_nodes)
    if clusters is None:
        clusters = _without_gaps(_cut(graph, parts, method, seed))
        _write(file, clusters)
    return torch.from_numpy(clusters.astype(np.int64))


def fitting_method(graph: Graph, memory: int | None) -> PartitionMethod:
    """METIS, or the stream where METIS would need more bytes than these, if it is known how many there are.

    A third of them is left for what the process holds besides, and for what METIS takes beyond the usual.
    By default they are the machine's, not those that are free: a run that goes on finds the same clusters.
    """
    too_large = memory is not None and METIS_BYTES * graph.neighbours.num_entries > memory * 2 // 3
    return "stream" if too_large else "metis"


def _cut(graph: Graph, parts: int, method: PartitionMethod, seed: int) -> NDArray[np.int64]:
    num_nodes = graph.num_nodes
    if parts >= num_nodes:
        return np.arange(num_nodes)
    if method == "random":
        return _runs(hashed_random.permutation(num_nodes, seed), parts)
    if method == "bfs":
        order = csgraph.reverse_cuthill_mckee(graph.neighbours.to_scipy(), symmetric_mode=True)
        return _runs(order, parts)
    if method == "kaminpar":
        return kaminpar_cut(graph.neighbours, parts, seed)
    if method == "stream":
        return stream(graph.neighbours, parts, seed).astype(np.int64)
    return _metis(graph, parts, seed)


def _metis(graph: Graph, parts: int, seed: int) -> NDArray[np.int64]:
    neighbours = graph.neighbours
    counts = None if neighbours.values is None else neighbours.values.numpy()
    return metis(neighbours.indptr.numpy(), neighbours.indices.numpy(), parts, seed, counts)


def metis(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    parts: int,
    seed: int,
    edges: NDArray[Any] | None = None,
    nodes: NDArray[Any] | None = None,
) -> NDArray[np.int64]:
    """(nodes,) the part of each, by METIS.

    Args:
        indptr: (nodes + 1,) where the neighbours of each begin.
        indices: (entries,) neighbours, each edge both ways.
        parts: how many.
        seed: of METIS.
        edges: (entries,) what each costs to cut; None for one.
        nodes: (nodes,) what parts have as much of as others; None for one each.
    """
    import pymetis

    if parts == 1:  # METIS divides by parts - 1
        return np.zeros(len(indptr) - 1, dtype=np.int64)
    dtype = pymetis.zero_copy_dtype()
    eweights, vweights = (None if each is None else each.astype(dtype) for each in (edges, nodes))
    adjacency = pymetis.CSRAdjacency(indptr.astype(dtype, copy=False), indices.astype(dtype, copy=False))
    options = pymetis.Options(seed=seed % 2**31)
    try:
        found = pymetis.part_graph(parts, adjacency, eweights=eweights, vweights=vweights, options=options)
    except (RuntimeError, MemoryError) as error:
        rule = 'perhaps for want of memory; partition="stream" takes far less'
        raise LMCError(f"parts={parts}: METIS has failed ({one_line(error)}), {rule}") from None
    return np.asarray(found.vertex_part)


def has_metis() -> bool:
    """Whether pymetis is installed."""
    try:
        import pymetis  # noqa: F401
    except ImportError:
        return False
    return True


def _runs(order: NDArray[np.integer], parts: int) -> NDArray[np.int64]:
    """Clusters of equal size (within one), each a run of `order`."""
    clusters = np.empty(len(order), dtype=np.int64)
    clusters[order] = np.arange(len(order)) * parts // len(order)
    return clusters


def _without_gaps(clusters: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(clusters, return_inverse=True)[1]


# -- the cache -----------------------------------------------------------------------------------


def _cache_file(graph: Graph, parts: int, method: PartitionMethod, seed: int) -> Path:
    """Named by a fingerprint of all that the result depends on."""
    digest = hashlib.blake2b(digest_size=16)
    neighbours = graph.neighbours
    for array in (neighbours.indptr, neighbours.indices, neighbours.values):
        if array is not None:
            digest.update(array.numpy().data)
    digest.update(repr((parts, method, seed, _version(method))).encode())
    return cache_folder() / "partitions" / f"{digest.hexdigest()}.npy"


def _version(method: PartitionMethod) -> str:
    package = {"metis": "pymetis", "bfs": "scipy", "kaminpar": "kaminpar"}.get(method, "lmc")
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _read(file: Path | None, num_nodes: int) -> NDArray[np.int64] | None:
    """The stored clusters, or None where there is no file with one cluster per node."""
    if file is None:
        return None
    try:
        clusters: NDArray[np.int64] = np.array(np.lib.format.open_memmap(regular(file), mode="r"))
    except DAMAGED_ARRAY:
        return None
    fits = clusters.shape == (num_nodes,) and np.issubdtype(clusters.dtype, np.integer)
    return clusters if fits and np.array_equal(_without_gaps(clusters), clusters) else None


def _write(file: Path | None, clusters: NDArray[np.int64]) -> None:
    """A disk that is full or closed costs the cache, not the result."""
    if file is None:
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda opened: write_array(opened, clusters.astype(np.int32)))
