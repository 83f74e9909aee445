"""Methods, models and loggers by name: the one place that commands, files, reports, bench and paper look at.

A new estimator, model or logger is its own file and one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmc.estimators.estimator import Estimator
    from lmc.nn.model import Model


@dataclass(frozen=True)
class Method:
    """An estimator under its names.

    Attributes:
        path: `module:class`, imported when it is used.
        title: as people write it.
        in_paper: as the paper's tables write it; None where they do not have it.
        trains: whether it is a way to train; if not, it is a reference to measure others by.
    """

    path: str
    title: str
    in_paper: str | None = None
    trains: bool = True

    def load(self) -> Callable[..., Estimator]:
        """The class of the estimator."""
        return _imported(self.path)


@dataclass(frozen=True)
class ModelKind:
    """A model under its names.

    Attributes:
        path: `module:class`, imported when it is used.
        title: as people and the paper write it.
    """

    path: str
    title: str

    def load(self) -> Callable[..., Model]:
        """The class of the model, which takes features in, hidden width and features out first."""
        return _imported(self.path)


@dataclass(frozen=True)
class LoggerKind:
    """A logger under its names.

    Attributes:
        path: `module:class`, imported when it is used.
        title: as people write it.
        package: what has to be installed; the extra of `lmc` that brings it is called as the logger is.
    """

    path: str
    title: str
    package: str

    def load(self) -> Callable[..., Any]:
        """The class of the logger, a `lmc.runs.loggers.Logger`."""
        return _imported(self.path)


METHODS: dict[str, Method] = {
    "gd": Method("lmc.estimators.full_batch:FullBatch", "full batch", "GD"),
    "sgd": Method("lmc.estimators.backward_sgd:BackwardSGD", "backward SGD", trains=False),
    "cluster": Method("lmc.estimators.cluster_gcn:ClusterGCN", "Cluster-GCN", "CLUSTER"),
    "gas": Method("lmc.estimators.gas:GAS", "GAS", "GAS"),
    "fm": Method("lmc.estimators.graphfm:GraphFM", "GraphFM", "FM"),
    "lmc": Method("lmc.estimators.lmc:LMC", "LMC", "LMC"),
}

MODELS: dict[str, ModelKind] = {
    "gcn": ModelKind("lmc.nn.gcn:GCN", "GCN"),
    "gcnii": ModelKind("lmc.nn.gcnii:GCNII", "GCNII"),
}

LOGGERS: dict[str, LoggerKind] = {
    "tensorboard": LoggerKind("lmc.runs.tensorboard:TensorBoard", "TensorBoard", "tensorboard"),
    "wandb": LoggerKind("lmc.runs.wandb:WandB", "Weights & Biases", "wandb"),
    "mlflow": LoggerKind("lmc.runs.mlflow:MLflow", "MLflow", "mlflow"),
}

TRAINING_METHODS = tuple(name for name, method in METHODS.items() if method.trains)


def _imported(path: str) -> Callable[..., Any]:
    """What is found at `module:name`."""
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
