"""From a configuration to a finished run in its folder."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from lmc.data.graph import Graph
from lmc.errors import ArgumentError, DatasetError
from lmc.runs.config import Config, merged
from lmc.runs.folder import CONFIG, RunFolder
from lmc.runs.going_on import OLDER
from lmc.runs.interruption import ended_by
from lmc.runs.loggers import callbacks_of
from lmc.runs.planning import planned
from lmc.runs.sections import Settings
from lmc.torch_processes import joined
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
    began, processes = time.monotonic() if began is None else began, joined()
    with processes.reporting():
        kept = RunFolder(out, resume, config, processes)
        kept.check_free()
        with _naming(out / CONFIG) if resume else nullcontext():
            config.check_values()
            options = TrainingOptions(**config.training)
        kept.check_goes_on(options)
        told = callbacks_of(callbacks, out, config) if processes.rank == 0 else []
        for callback in told if graph is None else ():
            callback.on_phase(f"loading {config.data['name']}")
        with ExitStack() as to_its_plan:
            with _naming(out / CONFIG) if resume else nullcontext():
                graph = graph or config.load_graph()
                model = config.build_model_for(graph)
                choice = kept.choice(options)
                estimator = config.build_estimator()
                given = (graph, model, estimator, options, out, resume, told)
                graph, options = to_its_plan.enter_context(planned(*given))
                on_disk = kept.histories(options)
                training = prepare_training(
                    graph, model, estimator, options, told, choice, on_disk, processes
                )
                training.began = began
            with kept as folder, ended_by(training, STOPPING):
                return folder.train(training)


def read_config(folder: Path, changes: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a run, with what is to be otherwise."""
    tree = read_tree(folder)
    with _naming(folder / CONFIG):
        return Config.of(merged(tree, changes or {}))


def check_folder(folder: Path) -> None:
    """Raise ArgumentError where a folder is none of a run."""
    if not folder.exists():
        raise ArgumentError(f"{folder}: no such folder")
    if not (folder / CONFIG).is_file():
        runs = sorted(f"{file.parent}" for file in folder.glob(f"*/{CONFIG}"))
        hint = f"; it holds {len(runs)}, {runs[0]} among them" if runs else ""
        raise ArgumentError(f"{folder}: not the folder of a run (there is no {CONFIG} in it){hint}")


def read_tree(folder: Path) -> dict[str, Settings]:
    """The settings of a run by section, whether or not text says them all."""
    check_folder(folder)
    tree = Config.read(folder / CONFIG)
    with _naming(folder / CONFIG):
        Config.check_sections(tree)
    if "training" in tree:
        tree["training"].setdefault("balance", OLDER["balance"])
    return tree


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Errors about settings name this file."""
    try:
        yield
    except (ArgumentError, DatasetError) as error:
        raise type(error)(f"{file}: {error}") from None
