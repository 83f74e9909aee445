"""Methods, models and loggers by name: the one place that commands, files, reports, bench and paper look at.

A new estimator, model or logger is its own file and one line here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from lmc.checks import one_of
from lmc.errors import ArgumentError
from lmc.files import one_line, place_in_own_code, raised_text

if TYPE_CHECKING:
    from torch import nn

    from lmc.estimators.estimator import Estimator

FROM_GRAPH = ("in_features", "out_features", "degrees", "graph")
"""What a model takes from the graph, and settings do not say."""


@dataclass(frozen=True)
class Method:
    """An estimator under its names.

    Attributes:
        path: `module:class`, imported when it is used.
        title: as people write it.
        in_paper: as the paper's tables write it; None where they do not have it.
        trains: whether it is a way to train; if not, it is a reference to measure others by.
        clusters: whether its batches are groups of clusters.
        any_model: whether it takes every model, whatever its layers do with messages.
        model: the only model that settings train by it; None where they may name another.
    """

    path: str
    title: str
    in_paper: str | None = None
    trains: bool = True
    clusters: bool = True
    any_model: bool = True
    model: str | None = None

    def load(self) -> Callable[..., Estimator]:
        """The class of the estimator."""
        return _imported(self.path)


@dataclass(frozen=True)
class ModelKind:
    """A model under its names.

    Attributes:
        path: `module:class`, imported when it is used.
        title: as people and the paper write it.
        in_paper: whether the paper's tables have it.
    """

    path: str
    title: str
    in_paper: bool = False

    def load(self) -> Callable[..., Any]:
        """What is called with what a model takes from the graph, and its options."""
        return _imported(self.path)

    def options(self) -> dict[str, Parameter]:
        """What settings may say of it."""
        parameters = signature(self.load()).parameters
        return {name: taken for name, taken in parameters.items() if name not in FROM_GRAPH}

    def build(self, from_graph: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
        """The module that has the weights, by the names they have in files."""
        load = self.load()
        takes = signature(load).parameters
        given = {name: value for name, value in from_graph.items() if name in takes}
        built: nn.Module = load(**given, **options)
        return built


class PygKind(ModelKind):
    """A model of PyG; `path` leads to its options."""

    def build(self, from_graph: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
        """The model of PyG, not wrapped yet."""
        made: Any = super().build(from_graph, options)
        built: nn.Module = made.build()
        return built


class OwnKind(ModelKind):
    """A model of a user's own: `path` leads to a function of features in, features out, and options."""

    def load(self) -> Callable[..., Any]:
        """The function; modules are looked for in the working folder too."""
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            found = _imported(self.path)
        except (Exception, SystemExit) as error:  # a module of a user may raise anything
            why = one_line(error) if place_in_own_code(error) is None else raised_text(error)
            module, _, function = self.path.partition(":")
            named = module.removesuffix(".py")
            hint = "" if named == module else f"; a module is named without .py, as in {named}:{function}"
            raise ArgumentError(f"model {self.path!r}: cannot be imported ({why}){hint}") from error
        if not callable(found):
            raise ArgumentError(f"model {self.path!r}: is a {type(found).__name__}; must be a function")
        return found

    def options(self) -> dict[str, Parameter]:
        """What it takes after the two widths."""
        return dict([*signature(self.load()).parameters.items()][2:])

    def build(self, from_graph: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
        """What the function gives."""
        load, widths = self.load(), (from_graph["in_features"], from_graph["out_features"])
        try:
            signature(load).bind(*widths, **options)
        except TypeError as error:
            raise ArgumentError(f"model {self.path!r}: {one_line(error)}") from None
        try:
            built: nn.Module = load(*widths, **options)
        except (Exception, SystemExit) as error:  # it may raise anything
            raise ArgumentError(f"model {self.path!r}: raised {raised_text(error)}") from error
        return built


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
    "gd": Method("lmc.estimators.full_batch:FullBatch", "full batch", "GD", clusters=False),
    "sgd": Method("lmc.estimators.backward_sgd:BackwardSGD", "backward SGD", trains=False),
    "cluster": Method("lmc.estimators.cluster_gcn:ClusterGCN", "Cluster-GCN", "CLUSTER"),
    "gas": Method("lmc.estimators.gas:GAS", "GAS", "GAS"),
    "fm": Method("lmc.estimators.graphfm:GraphFM", "GraphFM", "FM"),
    "lmc": Method("lmc.estimators.lmc:LMC", "LMC", "LMC"),
    "sage": Method(
        "lmc.estimators.neighbor_sampling:NeighborSampling", "neighbour sampling", "GraphSAGE", clusters=False
    ),
    "vrgcn": Method("lmc.estimators.vr_gcn:VRGCN", "VR-GCN", "VR-GCN", clusters=False, any_model=False),
    "fastgcn": Method(
        "lmc.estimators.layer_sampling:FastGCN", "FastGCN", "FastGCN", clusters=False, any_model=False
    ),
    "ladies": Method(
        "lmc.estimators.layer_sampling:LADIES", "LADIES", "LADIES", clusters=False, any_model=False
    ),
    "top": Method("lmc.estimators.top:TOP", "TOP", any_model=False),
    "saint": Method("lmc.estimators.graph_saint:GraphSAINT", "GraphSAINT", "GraphSAINT", clusters=False),
    "sign": Method(
        "lmc.estimators.precomputed:Precomputed",
        "SIGN",
        "SIGN",
        clusters=False,
        any_model=False,
        model="sign",
    ),
    "mvs": Method("lmc.estimators.mvs_gnn:MVSGNN", "MVS-GNN", "MVS-GNN", clusters=False),
}

MODELS: dict[str, ModelKind] = {
    "gcn": ModelKind("lmc.nn.gcn:GCN", "GCN", in_paper=True),
    "gcnii": ModelKind("lmc.nn.gcnii:GCNII", "GCNII", in_paper=True),
    "sign": ModelKind("lmc.nn.sign:SIGN", "SIGN"),
    "sage": PygKind("lmc.nn.pyg_options:GraphSAGEOptions", "GraphSAGE"),
    "gat": PygKind("lmc.nn.pyg_options:GATOptions", "GAT"),
    "gatv2": PygKind("lmc.nn.pyg_options:GATv2Options", "GATv2"),
    "gin": PygKind("lmc.nn.pyg_options:GINOptions", "GIN"),
    "pna": PygKind("lmc.nn.pyg_options:PNAOptions", "PNA"),
    "edgecnn": PygKind("lmc.nn.pyg_options:EdgeCNNOptions", "EdgeCNN"),
    "pyg-gcn": PygKind("lmc.nn.pyg_options:GCNOptions", "GCN of PyG"),
}

# Functions of users, by `module:function`, that a call or a command of this process has named.
_OWN_MODELS: dict[str, OwnKind] = {}
LOGGERS: dict[str, LoggerKind] = {
    "tensorboard": LoggerKind("lmc.runs.tensorboard:TensorBoard", "TensorBoard", "tensorboard"),
    "wandb": LoggerKind("lmc.runs.wandb:WandB", "Weights & Biases", "wandb"),
    "mlflow": LoggerKind("lmc.runs.mlflow:MLflow", "MLflow", "mlflow"),
}

TRAINING_METHODS = tuple(name for name, method in METHODS.items() if method.trains)
COMPARED_METHODS = tuple(name for name in TRAINING_METHODS if METHODS[name].any_model)
"""Those that are compared where none is named: whatever the model is."""


def method_title(name: str, spider: object = None) -> str:
    """A method as people write it, with `lmc.Spider` on top or without; a name that is not known stays.

    >>> method_title("gas"), method_title("gas", spider=10)
    ('GAS', 'SPIDER over GAS')
    """
    title = METHODS[name].title if name in METHODS else name
    return title if spider is None else f"SPIDER over {title}"


def is_own(name: object) -> bool:
    """Whether a name is of the form `module:function`.

    >>> is_own("mymodels:make"), is_own("gcn"), is_own("in memory: GNN")
    (True, False, False)
    """
    return (
        isinstance(name, str)
        and all(part.isidentifier() for end in name.split(":") for part in end.split("."))
        and name.count(":") == 1
    )


def allow_own_model(name: str) -> None:
    """Have a function of a user be a model of this name: no file can do that, only a call or a command."""
    if not is_own(name):
        raise ArgumentError(f"model={name!r}: must be module:function, such as mymodels:make")
    _OWN_MODELS[name] = OwnKind(name, name)
    _OWN_MODELS[name].load()  # what cannot be imported is said at once


def model_kind(name: object) -> ModelKind:
    """The model of a name; else ArgumentError."""
    if isinstance(name, str) and name in _OWN_MODELS:
        return _OWN_MODELS[name]
    if is_own(name):
        rule = f"is code, and no file has it imported; name it: --model {name}, or model={name!r}"
        raise ArgumentError(f"model.name={name!r}: {rule}")
    return MODELS[one_of("model.name", name, MODELS)]


def _imported(path: str) -> Callable[..., Any]:
    """What is found at `module:name`."""
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
