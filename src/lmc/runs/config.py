"""A run as a table of settings: TOML in, TOML out, every name checked against what it sets."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor

from lmc import checks, typed
from lmc.data import rules
from lmc.data.datasets import load
from lmc.data.graph import Graph
from lmc.device import chosen_device
from lmc.errors import ArgumentError, GraphError
from lmc.estimators.estimator import Estimator
from lmc.files import one_line, read_text_bytes
from lmc.nn.model import Model
from lmc.runs import methods, models
from lmc.runs.registry import METHODS
from lmc.runs.sections import Settings, check_section, defaults
from lmc.training.optimizers import OPTIMIZERS, SCHEDULERS
from lmc.training.options import TrainingOptions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTIONS = ("data", "model", "method", "training")
# Of sections, and of names, that are left out.
DEFAULTS: dict[str, Settings] = {
    "data": {"name": "synthetic"},
    "model": {"name": "gcn", "hidden": models.WIDTH, "layers": 2},
    "method": {"name": "lmc"},
}
# Both say how large a batch is.
_SAME_AS = {"batch_share": "parts_per_batch", "parts_per_batch": "batch_share"}
# What a file cannot say.
_OBJECTS = ("self", "loss")


@dataclass(frozen=True)
class Config:
    """All settings of a run, by section.

    >>> config = Config.of({"method": {"name": "gas"}, "training": {"parts": 8, "epochs": 3}})
    >>> config.training["epochs"], config.model["name"]
    (3, 'gcn')
    """

    data: Settings = field(default_factory=dict)
    model: Settings = field(default_factory=dict)
    method: Settings = field(default_factory=dict)
    training: Settings = field(default_factory=dict)

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Config:
        """From a tree of sections; where one is missing, there are defaults."""
        Config.check_sections(tree)
        sections = {name: dict(tree.get(name) or {}) for name in SECTIONS}
        sections["model"] = {**model_brought_by(sections["method"].get("name")), **sections["model"]}
        for name in ("data", "model", "method"):
            sections[name] = sections[name] or dict(DEFAULTS[name])
            sections[name].setdefault("name", DEFAULTS[name]["name"])
        config = Config(**sections)
        config.check()
        return config._resolved()

    @staticmethod
    def check_sections(tree: Mapping[str, Any]) -> None:
        """Raise ArgumentError unless a tree has known sections only."""
        for name, section in tree.items():
            checks.one_of("section", name, SECTIONS)
            if not isinstance(section, dict):
                raise ArgumentError(f"{name}={section!r}: must be a section, [{name}]")

    @staticmethod
    def read(file: Path) -> dict[str, Any]:
        """The tree of a TOML file."""
        try:
            return tomllib.loads(read_text_bytes(file).decode())
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(f"{file}: not a TOML file that can be read ({one_line(error)})") from None

    def _resolved(self) -> Config:
        """With every default written out, so that a run stays the same when defaults change."""
        return Config(
            self.data,
            models.resolved(self.model),
            methods.resolved(self.method),
            defaults(_parameters(TrainingOptions)) | self.training,
        )

    def check(self) -> None:
        """Every name and every type; ranges are checked by what is built."""
        typed.read("data.name", self.data["name"], str)
        check_section("data", self.data, load, [name for name in _parameters(load) if name != "name_or_path"])
        models.check_model(self.model)
        methods.check_method(self.method)
        method = METHODS[self.method["name"]]
        if method.model not in (None, self.model["name"]):
            rule = f"the method {self.method['name']} trains the model {method.model} alone"
            raise ArgumentError(f"model.name={self.model['name']!r}: {rule}; leave the model out, or name it")
        training = [name for name in _parameters(TrainingOptions) if name not in _OBJECTS]
        check_section("training", self.training, TrainingOptions, training)

    def check_values(self) -> None:
        """Every range, before a graph is loaded, as far as they do not depend on it."""
        options = TrainingOptions(**self.training)
        checks.one_of("optimizer", options.optimizer, OPTIMIZERS)
        if options.scheduler is not None:
            checks.one_of("scheduler", options.scheduler, SCHEDULERS)
        chosen_device(options.device)
        self.build_estimator().check_batches(options.batches)
        models.check_values(self.model)

    # -- what it stands for ------------------------------------------------------------------------

    def load_graph(self, other: str | None = None, root: str | None = None) -> Graph:
        """The graph; or another one, with features that are made as those of this one are."""
        own = {key: value for key, value in self.data.items() if key != "name"}
        if other is not None:
            return load(other, root, features=own.get("features"))
        return load(self.data["name"], **(own if root is None else own | {"root": root}))

    def build_model(self, in_features: int, out_features: int, degrees: Tensor | None = None) -> Model:
        """The model, with weights drawn from the run's seed."""
        torch.manual_seed(checks.whole_number("seed", self.training.get("seed", 0), 0))
        return models.built(self.model, in_features, out_features, degrees)

    def build_model_for(self, graph: Graph) -> Model:
        """The model for a graph, in the type of its features; GraphError where there are no labels."""
        graph = graph.by_cluster
        try:
            rules.trainable(graph.train_mask, graph.y, graph.task)
        except GraphError as error:
            raise GraphError(f"{self.data['name']}: {error}") from None
        model = self.build_model(graph.num_features, graph.num_classes, models.degree_histogram(graph))
        return model.to(graph.x.dtype)

    def build_estimator(self) -> Estimator:
        """The estimator."""
        return methods.built(self.method)

    def to_toml(self) -> str:
        """As a TOML file; what is None is left out."""
        return tomli_w.dumps(
            {
                section: {key: value for key, value in settings.items() if value is not None}
                for section, settings in self.to_tree().items()
            }
        )

    def as_read(self) -> dict[str, Settings]:
        """As a tree that was read from a file: lists for tuples, and nothing that is None."""
        return tomllib.loads(self.to_toml())

    def to_tree(self) -> dict[str, Settings]:
        """As a tree of sections."""
        return {name: getattr(self, name) for name in SECTIONS}


def merged(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Sections merged entry by entry; later trees win.

    A section that names another method, or another model, keeps what all of them take, and no more.
    Of `batch_share` and `parts_per_batch`, which both say how large a batch is, the later is kept; a later
    `alpha = "auto"` ends what was said of LMC's β.

    >>> merged({"model": {"name": "gcn", "layers": 2}}, {"model": {"layers": 3}})
    {'model': {'name': 'gcn', 'layers': 3}}
    """
    result: dict[str, Any] = {}
    for tree in trees:
        for name, section in tree.items():
            before = result.get(name, {})
            if not isinstance(section, dict) or not isinstance(before, dict):
                result[name] = section
                continue
            renamed = name in ("model", "method") and section.get("name", before.get("name")) != before.get(
                "name"
            )
            kept = before
            if renamed and before:
                keep = models.understood_by if name == "model" else methods.on_top
                kept = keep(section["name"], before)
            if name == "training":
                kept = {key: value for key, value in before.items() if _SAME_AS.get(key) not in section}
            if name == "method" and section.get("alpha") == "auto":
                kept = {key: value for key, value in kept.items() if key not in _OF_A_NUMBER_ALPHA}
            result[name] = {**kept, **section}
    return result


def for_method(tree: Mapping[str, Any], method: Settings) -> dict[str, Any]:
    """The same settings for another method, and for the model that it brings, if it brings one.

    >>> for_method({"model": {"name": "gcn", "hidden": 8, "residual": True}}, {"name": "sign"})
    {'model': {'hidden': 8, 'name': 'sign'}, 'method': {'name': 'sign'}}
    """
    rest = {name: section for name, section in tree.items() if name != "method"}
    return merged(rest, {"model": model_brought_by(method["name"])}, {"method": method})


def model_brought_by(method: object) -> Settings:
    """The name of the only model that a method trains; nothing where it takes others, or is not known."""
    known = METHODS.get(method) if isinstance(method, str) else None
    return {} if known is None or known.model is None else {"name": known.model}


_OF_A_NUMBER_ALPHA = ("score", "backward_score", "mix")


def parse_setting(text: str) -> dict[str, Settings]:
    """`section.key=value`, with a TOML value; a word without quotes is a string.

    >>> parse_setting("model.theta=0.5")
    {'model': {'theta': 0.5}}
    """
    place, equals, value = text.partition("=")
    section, dot, key = place.strip().partition(".")
    if not (equals and dot and key):
        raise ArgumentError(f"--set {text}: must be section.key=value, such as model.theta=0.5")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value.strip()
    return {section: {key: parsed}}


def _parameters(of: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(of).parameters
