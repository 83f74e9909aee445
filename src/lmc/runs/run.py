"""From a configuration to a finished run in its folder."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from lmc.data.graph import Graph
from lmc.errors import ArgumentError, DatasetError
from lmc.runs.config import Config, merged
from lmc.runs.folder import CONFIG, RunFolder
from lmc.runs.loggers import callbacks_of
from lmc.runs.sections import Settings
from lmc.training.callbacks import Callback
from lmc.training.loop import Training, prepare_training
from lmc.training.options import TrainingOptions
from lmc.training.records import Result


def train_run(
    config: Config,
    out: Path,
    resume: bool = False,
    callbacks: Sequence[str | Callback] = (),
    graph: Graph | None = None,
) -> Result:
    """Train what a configuration says, in a folder; interrupts end it after a step, with all saved."""
    with _naming(out / CONFIG) if resume else nullcontext():
        graph = graph or config.load_graph()
        model = config.build_model_for(graph)
        options = TrainingOptions(**config.training)
        told = callbacks_of(callbacks, out, config.to_tree())
        training = prepare_training(graph, model, config.build_estimator(), options, told)
    with RunFolder(out, resume, config) as folder, _interruptible(training):
        return folder.train(training)


def read_config(folder: Path, changes: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a run, with what is to be otherwise."""
    tree = read_tree(folder)
    with _naming(folder / CONFIG):
        return Config.of(merged(tree, changes or {}))


def read_tree(folder: Path) -> dict[str, Settings]:
    """The settings of a run by section, whether or not text says them all."""
    if not (folder / CONFIG).is_file():
        raise ArgumentError(f"{folder}: not the folder of a run (there is no {CONFIG} in it)")
    tree = Config.read(folder / CONFIG)
    with _naming(folder / CONFIG):
        Config.check_sections(tree)
    return tree


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors about settings name this file."""
    try:
        yield
    except (ArgumentError, DatasetError) as error:
        raise type(error)(f"{file}: {error}") from None


@contextmanager
def _interruptible(training: Training) -> Iterator[None]:
    """Ctrl-C or SIGTERM ends the run after the step; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        training.stop("interrupted")
        signal.signal(number, before[number])

    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
