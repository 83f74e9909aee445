"""Train graph neural networks on one large graph by mini-batches, with gradients you can trust."""

import os
import warnings

# Dense products whose sums do not depend on the number of threads. MKL reads this at its first use, so it has
# to be known before; whoever has set it otherwise is left alone.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

if _threads := os.environ.get("LMC_THREADS"):
    import torch

    if _threads.isdecimal() and int(_threads) > 0:
        torch.set_num_threads(int(_threads))
    else:
        warnings.warn(f"LMC_THREADS={_threads!r} is ignored: must be a whole number, 1 or more", stacklevel=2)


from lmc.batching.partition import partition
from lmc.batching.prefetch import prefetch
from lmc.batching.reserved import Reserved, reserved_messages
from lmc.batching.samplers import batches
from lmc.data.batch import Batch
from lmc.data.datasets import load
from lmc.data.graph import Graph
from lmc.data.normalization import normalize
from lmc.data.synthetic import synthetic
from lmc.errors import ArgumentError, DatasetError, GraphError, LMCError, RunError
from lmc.estimators.backward_sgd import BackwardSGD
from lmc.estimators.cluster_gcn import ClusterGCN
from lmc.estimators.estimator import Estimator
from lmc.estimators.full_batch import FullBatch
from lmc.estimators.gas import GAS
from lmc.estimators.gradient_error import GradientErrors, gradient_error
from lmc.estimators.graphfm import GraphFM
from lmc.estimators.lmc import LMC
from lmc.nn.from_pyg import from_pyg
from lmc.nn.gcn import GCN
from lmc.nn.gcnii import GCNII
from lmc.nn.gnn import GNN
from lmc.nn.inference import predict
from lmc.runs.fit import fit
from lmc.sparse import CSR
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.options import TrainingOptions
from lmc.training.records import Record, Result

__version__ = "0.1.0"

__all__ = [
    "CSR",
    "GAS",
    "GCN",
    "GCNII",
    "GNN",
    "LMC",
    "ArgumentError",
    "BackwardSGD",
    "Batch",
    "Callback",
    "ClusterGCN",
    "DatasetError",
    "Estimator",
    "FullBatch",
    "GradientErrors",
    "Graph",
    "GraphError",
    "GraphFM",
    "LMCError",
    "Record",
    "Reserved",
    "Result",
    "RunError",
    "Training",
    "TrainingOptions",
    "batches",
    "fit",
    "from_pyg",
    "gradient_error",
    "load",
    "normalize",
    "partition",
    "predict",
    "prefetch",
    "reserved_messages",
    "synthetic",
]
