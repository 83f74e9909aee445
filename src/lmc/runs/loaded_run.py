"""`load_run`: a run by its folder: settings, metrics, and the model with its best weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, cast

import torch
from torch import Tensor, nn

from lmc import checks, typed
from lmc.checks import counted
from lmc.data.graph import Graph
from lmc.data.rules import Task
from lmc.errors import ArgumentError, GraphError, RunError
from lmc.files import one_line
from lmc.nn.inference import predict
from lmc.nn.model import Model
from lmc.runs import checkpoint
from lmc.runs.config import Config
from lmc.runs.description import shapes_of
from lmc.runs.folder import BEST, CONFIG
from lmc.runs.metrics_file import read_metrics
from lmc.runs.models import as_model, built, check_model, module_of, resolved
from lmc.runs.places import METRICS
from lmc.runs.registry import OwnKind, allow_own_model, is_own, model_kind
from lmc.runs.run import read_tree
from lmc.runs.sections import IN_MEMORY, Settings, is_in_memory
from lmc.runs.text_files import in_file
from lmc.training.records import Record


def load_run(folder: str | Path, model: Model | nn.Module | str | None = None) -> Run:
    """A run by its folder.

    Args:
        folder: what `lmc.fit(out=...)` or `lmc train --out` wrote.
        model: None where the folder says how the model is built. A function of yours, `"module:function"`,
            is imported only if it is named here. A model that no text describes, of ours or of PyG, is given
            itself, and takes the weights.

    Raises:
        ArgumentError: the folder is none of a run; later, where the model is asked for, it is not given.

    >>> import lmc, tempfile
    >>> graph = lmc.synthetic(nodes=200)
    >>> model = lmc.build_model("sage", graph, hidden=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = lmc.fit(graph, model, lmc.LMC(), parts=4, epochs=2, out=f"{folder}/a")
    ...     run = lmc.load_run(f"{folder}/a")
    ...     run.settings["model"]["name"], len(run.metrics), run.predict(graph).shape
    ('sage', 2, torch.Size([200, 10]))
    """
    folder = checks.path("folder", folder)
    if not isinstance(model, (nn.Module, str, NoneType)):
        raise ArgumentError(f"model={checks.shown(model)}: must be a model, 'module:function' or None")
    if isinstance(model, str):
        allow_own_model(model)
    run = Run(folder, read_tree(folder), model)
    if isinstance(model, nn.Module):
        _ = run.model  # takes the weights now, or is refused
    return run


@dataclass(frozen=True)
class Run:
    """What the folder of a run holds; files are read when they are asked for.

    Attributes:
        folder: where it is.
        settings: by section: `data`, `model`, `method`, `training`.
        given: what `load_run` was given to build the model with.
    """

    folder: Path
    settings: dict[str, Settings]
    given: Model | nn.Module | str | None = None

    def __repr__(self) -> str:
        names = {part: self.settings.get(part, {}).get("name") for part in ("method", "model", "data")}
        data = "a graph in memory" if names["data"] == IN_MEMORY else names["data"]
        return f"Run({self.folder}: {names['method']}, {names['model']} on {data})"

    @cached_property
    def metrics(self) -> Sequence[Record]:
        """One record per epoch."""
        return read_metrics(self.folder / METRICS)

    @cached_property
    def model(self) -> Model:
        """With the weights of the best epoch, in evaluation mode; `model.original` is the one of PyG."""
        weights, about = self._kept
        try:
            name = about["config"]["model"]["name"]
        except (LookupError, TypeError) as error:
            raise RunError(f"{self.folder / BEST}: not the weights of a run ({one_line(error)})") from None
        self._check_given(name)
        try:
            model = self._built(weights, about)
            _check_names(model.original, weights)
            model.original.load_state_dict(weights)
            return model.eval()
        except (ArgumentError, LookupError, TypeError, AttributeError, RuntimeError) as error:
            whose = "the model that was given" if isinstance(self.given, nn.Module) else "its run"
            raise RunError(f"{self.folder / BEST}: not the weights of {whose} ({one_line(error)})") from None

    @property
    def task(self) -> Task:
        """The kind of labels that the model predicts."""
        try:
            return cast(Task, checks.one_of("task", self._kept[1]["task"], Task))
        except (ArgumentError, LookupError, TypeError) as error:
            raise RunError(f"{self.folder / BEST}: not the weights of a run ({one_line(error)})") from None

    @property
    def class_names(self) -> list[str] | None:
        """One per class, where they have names."""
        return self._names("class_names")

    @property
    def feature_names(self) -> list[str] | None:
        """One per feature that the model takes, where they have names."""
        return self._names("feature_names")

    def _names(self, of: str) -> list[str] | None:
        file = str(self.folder / BEST)
        names: list[str] | None = typed.read(of, self._kept[1].get(of), list[str] | None, in_file(file))
        return names

    def predict(
        self,
        graph: Graph | None = None,
        nodes: Tensor | None = None,
        device: str | torch.device | None = None,
    ) -> Tensor:
        """(nodes, out) what the model says of a graph, or of some of its nodes; None is the run's own.

        Features are taken by name where both this graph and that of the training have names of them. `device`
        is that of `lmc.predict`.
        """
        graph, model = self.load_graph() if graph is None else graph, self.model
        if isinstance(graph, Graph):
            graph = self._with_its_features(graph)
            self._warn_of_directions(graph)
        return predict(graph, model, nodes=nodes, device=device)

    def _warn_of_directions(self, graph: Graph) -> None:
        trained_both_ways = self._kept[1].get("is_undirected", graph.is_undirected)
        if graph.num_edges and graph.is_undirected != trained_both_ways:
            which = ("one way", "both ways") if trained_both_ways else ("both ways", "one way")
            text = f"{_name(graph)}: edges go {which[0]}, and {which[1]} where {self.folder} was trained"
            warnings.warn(text, stacklevel=3)

    def _with_its_features(self, graph: Graph) -> Graph:
        """The graph with the features that the model takes; ArgumentError where it has others."""
        names, needed = self.feature_names, self._kept[1].get("in_features")
        if names is not None and graph.feature_names is not None:
            try:
                return graph.select_features(names)
            except GraphError as error:
                takes = f"{error}, and the model of {self.folder} takes it"
                raise ArgumentError(f"{_name(graph)}: {takes}") from None
        if self.given is None and graph.num_features != needed:
            has = counted(graph.num_features, "feature")
            raise ArgumentError(f"{_name(graph)}: has {has}, and the model of {self.folder} takes {needed}")
        return graph

    def load_graph(self, other: str | None = None, root: str | None = None) -> Graph:
        """The graph that the run was trained on, or another one, with features made as those are."""
        data = self.settings.get("data", {})
        if other is not None:
            return Config(data).load_graph(other, root)
        name = data.get("name")
        if not isinstance(name, str) or is_in_memory(name):
            place = f"{self.folder / CONFIG}: data.name={name!r}"
            raise ArgumentError(f"{place}: names no graph; give one (--data, or predict(graph))")
        return Config(data).load_graph(root=root)

    # -- the model ---------------------------------------------------------------------------------

    @cached_property
    def _kept(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return checkpoint.load_weights(self.folder / BEST)

    def _built(self, weights: dict[str, Tensor], about: dict[str, Any]) -> Model:
        """What the weights are loaded into."""
        if isinstance(self.given, nn.Module):
            return as_model(self.given)
        settings = about["config"]["model"]
        check_model(settings)
        sizes = (resolved(settings), about["in_features"], about["out_features"])
        if not isinstance(model_kind(settings["name"]), OwnKind):
            with torch.device("meta"):  # no memory for what the file may only promise
                _check_names(module_of(*sizes), weights)
        return built(*sizes).to(next(value.dtype for value in weights.values() if value.is_floating_point()))

    def _check_given(self, name: object) -> None:
        """Raise ArgumentError where the model is one that must be given, and is not."""
        if isinstance(self.given, nn.Module):
            return
        if isinstance(self.given, str) and self.given != name:
            hint = f"; name that: --model {name}, or model={name!r}" if is_own(name) else "; leave model away"
            raise ArgumentError(f"{self.folder}: its model is {name!r}, not {self.given!r}{hint}")
        if is_in_memory(name):
            rule = "give it in Python: lmc.load_run(folder, model=...)"
            raise ArgumentError(f"{self.folder}: its model was {name}; {rule}")
        if is_own(name):
            try:
                model_kind(name)
            except ArgumentError as error:  # it is code, which only a call or a command may name
                raise ArgumentError(f"{self.folder}: {error}") from None


def _name(graph: Graph) -> str:
    return "graph" if graph.source is None else str(graph.source["name"])


def _check_names(module: nn.Module, weights: dict[str, Tensor]) -> None:
    own, given = shapes_of(module), {name: value.shape for name, value in weights.items()}
    for name in [*own, *given]:
        if own.get(name) != given.get(name):
            here, there = (
                f"has {tuple(shapes[name])}" if name in shapes else "has none" for shapes in (own, given)
            )
            raise ArgumentError(f"{name}: the model {here}, the file {there}")
