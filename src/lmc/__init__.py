"""Train graph neural networks on one large graph by mini-batches, with gradients you can trust."""

from lmc.batch import Batch
from lmc.batching import Reserved, batches, prefetch, reserved_messages
from lmc.datasets import load
from lmc.errors import ArgumentError, DatasetError, GraphError, LMCError
from lmc.graph import Graph
from lmc.normalization import normalize
from lmc.partition import partition
from lmc.sparse import CSR
from lmc.synthetic import synthetic

__version__ = "0.1.0"

__all__ = [
    "CSR",
    "ArgumentError",
    "Batch",
    "DatasetError",
    "Graph",
    "GraphError",
    "LMCError",
    "Reserved",
    "batches",
    "load",
    "normalize",
    "partition",
    "prefetch",
    "reserved_messages",
    "synthetic",
]
