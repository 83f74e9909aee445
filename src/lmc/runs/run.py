"""From a configuration to a finished run in its folder, and from such a folder back to a model."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from lmc import checks, typed
from lmc.data.graph import Graph
from lmc.data.rules import Task
from lmc.errors import ArgumentError, DatasetError, RunError
from lmc.files import one_line
from lmc.nn.inference import predict
from lmc.nn.model import Model
from lmc.runs import checkpoint
from lmc.runs.config import Config
from lmc.runs.folder import BEST, CONFIG, RunFolder
from lmc.runs.interruption import ended_by
from lmc.runs.loggers import callbacks_of
from lmc.training.callbacks import Callback
from lmc.training.loop import prepare_training
from lmc.training.options import TrainingOptions
from lmc.training.records import Result

STOPPING = (signal.SIGINT, signal.SIGTERM)
"""What ends a run after its step, with all saved."""


def train_run(
    config: Config,
    out: Path,
    resume: bool = False,
    callbacks: Sequence[str | Callback] = (),
    graph: Graph | None = None,
    began: float | None = None,
) -> Result:
    """Train what a configuration says, in a folder; interrupts end it after a step, with all saved.

    `began` is `time.monotonic()` when work on it began; None counts from now.
    """
    began = time.monotonic() if began is None else began
    told = callbacks_of(callbacks, out, config.to_tree())
    for callback in told if graph is None else ():
        callback.on_phase(f"loading {config.data['name']}")
    with _naming(out / CONFIG) if resume else nullcontext():
        graph = graph or config.load_graph()
        model = config.build_model(graph.num_features, graph.num_classes)
        options = TrainingOptions(**config.training)
        training = prepare_training(graph, model, config.build_estimator(), options, told)
        training.began = began
    about: dict[str, Any] = {
        "config": config.to_tree(),
        "task": graph.task,
        "in_features": graph.num_features,
        "out_features": graph.num_classes,
    }
    if graph.class_names is not None:
        about["class_names"] = list(graph.class_names)
    with RunFolder(out, resume, config.to_toml(), about) as folder, ended_by(training, STOPPING):
        return folder.train(training)


def read_config(folder: Path) -> Config:
    """The configuration of a run."""
    if not (folder / CONFIG).is_file():
        raise ArgumentError(f"{folder}: not the folder of a run (there is no {CONFIG} in it)")
    tree = Config.read(folder / CONFIG)
    with _naming(folder / CONFIG):
        return Config.of(tree)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors about settings name this file."""
    try:
        yield
    except (ArgumentError, DatasetError) as error:
        raise type(error)(f"{file}: {error}") from None


class BestModel(NamedTuple):
    """The model of a run with its best weights, the kind of labels it predicts, and the names of classes."""

    model: Model
    task: Task
    class_names: list[str] | None


def best_model(folder: Path) -> BestModel:
    """The best model of a run."""
    read_config(folder)  # first of all, an error if the folder is not that of a run
    weights, about = checkpoint.load_weights(folder / BEST)
    try:
        config = Config.of(about["config"])
        with torch.device("meta"):  # no memory is taken: the file may promise a larger model than it holds
            promised = config.build_model(about["in_features"], about["out_features"]).state_dict()
        if {name: value.shape for name, value in promised.items()} != {
            n: w.shape for n, w in weights.items()
        }:
            raise KeyError("its tensors are not those of its model")
        model = config.build_model(about["in_features"], about["out_features"])
        model.load_state_dict(weights)
        task = cast(Task, checks.one_of("task", about["task"], Task))
        return BestModel(model, task, typed.read("class_names", about.get("class_names"), list[str] | None))
    except (ArgumentError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise RunError(f"{folder / BEST}: not the weights of its run ({one_line(error)})") from None


def predictions(folder: Path, graph: Graph, nodes: Tensor | None = None) -> tuple[Tensor, BestModel]:
    """(nodes, out) what a run's best model says of a graph's nodes, and that model."""
    best = best_model(folder)
    return predict(graph, best.model, nodes=nodes), best
