"""Train graph neural networks on one large graph by mini-batches, with gradients you can trust."""

import os
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmc.batching.partition import partition
    from lmc.batching.prefetch import prefetch
    from lmc.batching.prepare import prepare
    from lmc.batching.reserved import Reserved, reserved_messages
    from lmc.batching.samplers import batches
    from lmc.data.batch import Batch
    from lmc.data.datasets import load
    from lmc.data.graph import Graph
    from lmc.data.normalization import normalize
    from lmc.data.streamed_edges import import_edges
    from lmc.data.synthetic import synthetic
    from lmc.data.tables import read_tables
    from lmc.errors import ArgumentError, DatasetError, DivergedError, GraphError, LMCError, RunError
    from lmc.estimators.backward_sgd import BackwardSGD
    from lmc.estimators.cluster_gcn import ClusterGCN
    from lmc.estimators.estimator import Estimator
    from lmc.estimators.full_batch import FullBatch
    from lmc.estimators.gas import GAS
    from lmc.estimators.gradient_error import GradientErrors, gradient_error
    from lmc.estimators.graph_saint import GraphSAINT
    from lmc.estimators.graphfm import GraphFM
    from lmc.estimators.layer_sampling import LADIES, FastGCN
    from lmc.estimators.lmc import LMC
    from lmc.estimators.mvs_gnn import MVSGNN
    from lmc.estimators.neighbor_sampling import NeighborSampling
    from lmc.estimators.precomputed import Precomputed
    from lmc.estimators.spider import Spider
    from lmc.estimators.top import TOP
    from lmc.estimators.vr_gcn import VRGCN
    from lmc.nn.from_pyg import from_pyg
    from lmc.nn.gcn import GCN
    from lmc.nn.gcnii import GCNII
    from lmc.nn.gnn import GNN
    from lmc.nn.inference import predict
    from lmc.nn.sign import SIGN
    from lmc.runs.fit import fit
    from lmc.runs.loaded_run import Run, load_run
    from lmc.runs.models import build_model
    from lmc.runs.predictions import probabilities, write_predictions
    from lmc.sparse import CSR
    from lmc.training.callbacks import Callback
    from lmc.training.loop import Training
    from lmc.training.options import TrainingOptions
    from lmc.training.records import Record, Result

__version__ = "0.1.0"

# Each module is imported when one of its names is first used, so that `lmc --help` need not wait for torch.
_MODULE_OF = {
    "CSR": "lmc.sparse",
    "GAS": "lmc.estimators.gas",
    "GCN": "lmc.nn.gcn",
    "GCNII": "lmc.nn.gcnii",
    "GNN": "lmc.nn.gnn",
    "LADIES": "lmc.estimators.layer_sampling",
    "LMC": "lmc.estimators.lmc",
    "MVSGNN": "lmc.estimators.mvs_gnn",
    "SIGN": "lmc.nn.sign",
    "TOP": "lmc.estimators.top",
    "VRGCN": "lmc.estimators.vr_gcn",
    "ArgumentError": "lmc.errors",
    "BackwardSGD": "lmc.estimators.backward_sgd",
    "Batch": "lmc.data.batch",
    "Callback": "lmc.training.callbacks",
    "ClusterGCN": "lmc.estimators.cluster_gcn",
    "DatasetError": "lmc.errors",
    "DivergedError": "lmc.errors",
    "Estimator": "lmc.estimators.estimator",
    "FastGCN": "lmc.estimators.layer_sampling",
    "FullBatch": "lmc.estimators.full_batch",
    "GradientErrors": "lmc.estimators.gradient_error",
    "Graph": "lmc.data.graph",
    "GraphError": "lmc.errors",
    "GraphFM": "lmc.estimators.graphfm",
    "GraphSAINT": "lmc.estimators.graph_saint",
    "LMCError": "lmc.errors",
    "NeighborSampling": "lmc.estimators.neighbor_sampling",
    "Precomputed": "lmc.estimators.precomputed",
    "Record": "lmc.training.records",
    "Reserved": "lmc.batching.reserved",
    "Result": "lmc.training.records",
    "Run": "lmc.runs.loaded_run",
    "RunError": "lmc.errors",
    "Spider": "lmc.estimators.spider",
    "Training": "lmc.training.loop",
    "TrainingOptions": "lmc.training.options",
    "batches": "lmc.batching.samplers",
    "build_model": "lmc.runs.models",
    "fit": "lmc.runs.fit",
    "from_pyg": "lmc.nn.from_pyg",
    "gradient_error": "lmc.estimators.gradient_error",
    "import_edges": "lmc.data.streamed_edges",
    "load": "lmc.data.datasets",
    "load_run": "lmc.runs.loaded_run",
    "normalize": "lmc.data.normalization",
    "partition": "lmc.batching.partition",
    "predict": "lmc.nn.inference",
    "prefetch": "lmc.batching.prefetch",
    "prepare": "lmc.batching.prepare",
    "probabilities": "lmc.runs.predictions",
    "read_tables": "lmc.data.tables",
    "reserved_messages": "lmc.batching.reserved",
    "synthetic": "lmc.data.synthetic",
    "write_predictions": "lmc.runs.predictions",
}

__all__ = [
    "CSR",
    "GAS",
    "GCN",
    "GCNII",
    "GNN",
    "LADIES",
    "LMC",
    "MVSGNN",
    "SIGN",
    "TOP",
    "VRGCN",
    "ArgumentError",
    "BackwardSGD",
    "Batch",
    "Callback",
    "ClusterGCN",
    "DatasetError",
    "DivergedError",
    "Estimator",
    "FastGCN",
    "FullBatch",
    "GradientErrors",
    "Graph",
    "GraphError",
    "GraphFM",
    "GraphSAINT",
    "LMCError",
    "NeighborSampling",
    "Precomputed",
    "Record",
    "Reserved",
    "Result",
    "Run",
    "RunError",
    "Spider",
    "Training",
    "TrainingOptions",
    "batches",
    "build_model",
    "fit",
    "from_pyg",
    "gradient_error",
    "import_edges",
    "load",
    "load_run",
    "normalize",
    "partition",
    "predict",
    "prefetch",
    "prepare",
    "probabilities",
    "read_tables",
    "reserved_messages",
    "synthetic",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'lmc' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _limit_threads(asked: str) -> None:
    """Have torch use this many threads, whether it is loaded already or will be later."""
    if not asked.isdecimal() or int(asked) == 0:
        warnings.warn(f"LMC_THREADS={asked!r} is ignored: must be a whole number, 1 or more", stacklevel=3)
    elif "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(asked))
    else:
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(int(asked))
        # As torch.set_num_threads does: more threads than cores, if asked.
        os.environ["MKL_DYNAMIC"] = "FALSE"


# Dense products whose sums do not depend on the number of threads; where MKL does not keep to it there is
# `nn/products.py`. MKL reads this at its first use, so it is set before; a value that is there stays.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
# oneDNN keeps what it has built for 1,024 shapes of products, megabytes each: large ones have few shapes (see
# `nn/products.py`), but small batches have shapes of their own.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

if os.environ.get("LMC_THREADS"):
    _limit_threads(os.environ["LMC_THREADS"])
