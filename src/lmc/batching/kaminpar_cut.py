"""Clusters by KaMinPar, an optional package: cuts like METIS's, in an eighth to a quarter of its memory.

It takes graphs from files alone: the rows are written as they are, in the format of ParHIP.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from lmc.errors import ArgumentError
from lmc.sparse import CSR

UNWEIGHTED, SMALL_IDS = 3, 8
"""Bits of the file's version: neither nodes nor edges have weights; nodes are 32 bits."""
IMBALANCE = 0.03
"""As METIS: a cluster has at most so much more than its share."""


def kaminpar_cut(neighbours: CSR, parts: int, seed: int) -> NDArray[np.int64]:
    """(nodes,) the cluster of every node; by one thread, so that a seed says which.

    Args:
        neighbours: (nodes, nodes) without its diagonal, symmetric, perhaps memory-mapped.
        parts: how many clusters.
        seed: of its random choices.
    """
    try:
        import kaminpar
    except ImportError:
        raise ArgumentError(
            "partition='kaminpar': the package is not installed; pip install 'lmc[kaminpar]'"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.parhip"
        with open(file, "wb") as opened:
            write_parhip(opened, neighbours)
        graph = kaminpar.load_graph(str(file), kaminpar.GraphFileFormat.PARHIP)
    kaminpar.reseed(seed % 2**31)
    context = kaminpar.largek_context() if parts >= 1024 else kaminpar.default_context()
    return np.asarray(kaminpar.KaMinPar(1, context).compute_partition(graph, parts, IMBALANCE), np.int64)


def write_parhip(file: BinaryIO, neighbours: CSR) -> None:
    """Write rows in the format of ParHIP: sizes, where in the file each row begins, and columns."""
    header = np.array([UNWEIGHTED | SMALL_IDS, neighbours.shape[0], neighbours.num_entries], np.uint64)
    file.write(header.tobytes())
    indptr = neighbours.indptr.numpy().astype(np.uint64)
    file.write((np.uint64(header.nbytes + indptr.nbytes) + np.uint64(4) * indptr).tobytes())
    for _, rows in neighbours.pieces():
        file.write(rows.indices.numpy().astype(np.uint32).tobytes())
