"""The settings of a run that was made of objects, as far as text can say them."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from types import FunctionType
from typing import Any

import torch
from torch import nn

from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator
from lmc.estimators.spider import Spider
from lmc.nn.hooks import is_changed
from lmc.nn.model import Model
from lmc.nn.recipe import is_text
from lmc.nn.weights import weights_of
from lmc.runs import methods
from lmc.runs.config import Config
from lmc.runs.models import module_of
from lmc.runs.registry import METHODS, OwnKind, model_kind
from lmc.runs.sections import IN_MEMORY, Settings, in_memory, is_in_memory
from lmc.training.loop import Training
from lmc.training.optimizers import OPTIMIZERS
from lmc.training.options import TrainingOptions

# Attributes of PyG's modules that only say how they came to their tensors, or to the modules in them.
_BY_THE_WAY = ("training", "in_channels", "init_avg_deg_lin", "init_avg_deg_log", "norm", "norm_kwargs")


def described(training: Training, given: Config | None = None) -> Config:
    """The settings of a run: those it was made of, or what text can say.

    Without any that it was made of, an object that settings cannot say stands there as being in memory.
    """
    if given is not None:
        return given
    return Config(
        _data(training.graph),
        model_settings(training.model, training.graph.num_features),
        _method(training.estimator),
        _training(training.options) | _frozen(training.model),
    )


def _data(graph: Graph) -> Settings:
    return {"name": IN_MEMORY} if graph.source is None else dict(graph.source)


def model_settings(model: Model, in_features: int) -> Settings:
    """The `[model]` section that builds a model anew for so many features.

    >>> import lmc
    >>> model_settings(lmc.GCN(8, 16, 3, layers=3), 8)["hidden"]
    16
    >>> from torch_geometric.nn import GCNConv
    >>> model_settings(lmc.GNN([GCNConv(8, 3)]), 8)
    {'name': 'in memory: GNN'}
    """
    recipe = model.recipe
    options = {} if recipe is None else _without_none(recipe.options)
    if recipe is not None and is_text(options):
        settings = {"name": recipe.name, **options}
        if isinstance(model_kind(recipe.name), OwnKind):
            return settings  # the very call that made it
        try:
            with torch.device("meta"):
                again = module_of(settings, in_features, recipe.out_features)
            if alike(again, model.original):
                return settings
        except ArgumentError:
            pass
    return {"name": in_memory(type(model.original).__name__)}


def alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules differ in nothing but the values of their tensors, and neither has hooks.

    >>> alike(nn.Dropout(0.5), nn.Dropout(0.5)), alike(nn.Dropout(0.5), nn.Dropout(0.3))
    (True, False)
    """
    first, second = (dict(module.named_modules(remove_duplicate=False)) for module in (one, other))
    if first.keys() != second.keys() or shapes_of(one) != shapes_of(other):
        return False
    pairs = [(module, second[name]) for name, module in first.items()]
    same = all(type(a) is type(b) and _attributes(a) == _attributes(b) for a, b in pairs)
    return same and not any(is_changed(part) for pair in pairs for part in pair)


def shapes_of(module: nn.Module) -> dict[str, torch.Size]:
    """The shape of every tensor by its name."""
    return {name: value.shape for name, value in weights_of(module).items()}


def _attributes(module: nn.Module) -> Settings:
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name not in _BY_THE_WAY
        and (value is None or is_text(value) or isinstance(value, FunctionType))
    }


def _without_none(settings: Settings) -> Settings:
    """What files hold: they leave out what is None."""
    return {key: value for key, value in settings.items() if value is not None}


def _method(estimator: Estimator) -> Settings:
    """The estimator by its name and what it was called with."""
    if isinstance(estimator, Spider):
        inner = _method(estimator.inner)
        on_top = _without_none({methods.EVERY: estimator.every, methods.LARGE: estimator.large})
        return {"name": in_memory(repr(estimator))} if is_in_memory(inner["name"]) else inner | on_top
    name = next((name for name, method in METHODS.items() if method.load() is type(estimator)), None)
    taken = signature(type(estimator)).parameters
    options = _without_none({key: getattr(estimator, key, NotImplemented) for key in taken})
    left_out = [parameter for key, parameter in taken.items() if key not in options]
    if name is not None and is_text(options) and all(parameter.default is None for parameter in left_out):
        return {"name": name, **options}
    return {"name": in_memory(repr(estimator))}


def _training(options: TrainingOptions) -> Settings:
    """The options; optimizers of torch by their names."""
    names: dict[Any, str] = {kind: name for name, kind in OPTIMIZERS.items()}
    given = {each.name: getattr(options, each.name) for each in fields(TrainingOptions)}
    given["optimizer"] = names.get(options.optimizer, options.optimizer)
    return {
        name: value if is_text(value) else in_memory(getattr(value, "__name__", type(value).__name__))
        for name, value in _without_none(given).items()
    }


def _frozen(model: Model) -> Settings:
    """Parameters that are not trained, which only a script can say."""
    names = [name for name, value in model.original.named_parameters() if not value.requires_grad]
    return {"frozen": in_memory(", ".join(names))} if names else {}
