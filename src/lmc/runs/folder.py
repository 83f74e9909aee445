"""The folder of a run: configuration, environment, metrics, checkpoints, best weights, summary."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from lmc import typed
from lmc.batching.choice import Choice
from lmc.batching.samplers import choice_of
from lmc.errors import ArgumentError, RunError
from lmc.estimators.disk_history import DiskHistories
from lmc.estimators.extent_file import DamagedHistoryError
from lmc.files import check_writable, one_line, regular, remove_partial_files, write_atomically
from lmc.processes import ALONE, Processes
from lmc.runs import checkpoint
from lmc.runs.chosen import read_choice
from lmc.runs.config import Config
from lmc.runs.description import described
from lmc.runs.environment import environment
from lmc.runs.going_on import refusal
from lmc.runs.metrics_file import append_metrics, write_metrics
from lmc.runs.places import LOCK, METRICS, check_unused
from lmc.runs.sections import is_in_memory
from lmc.runs.summary import summary_of
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.options import TrainingOptions
from lmc.training.records import Record, Result
from lmc.training.sharding import load_shards, shard_states

CONFIG, ENVIRONMENT, SUMMARY = "config.toml", "environment.json", "summary.json"
CHECKPOINTS, BEST, BATCHES = "checkpoints", "best.safetensors", "batches.json"
HISTORIES = "histories"
PLAN, PREPARED, SEEDS = "plan.json", "prepared", "seeds.json"
SETTINGS = "settings"  # of a checkpoint: those that the run began with
SAVING_SHARE = 20  # times as long as a save takes must pass before the next
MIDWAY_SECONDS = 60.0  # of an epoch that a run may lose, where saving takes less than a twentieth of them


class RunFolder(Callback):
    """Keeps all that a run needs to be resumed, judged and used.

    Args:
        folder: made where it is missing.
        resume: whether to go on with the run in it; if not, there must be none.
        config: the settings of the run; None describes it as far as text can.
        processes: that share the run; the first one reads and writes the folder, which others need not see.

    Only one process at a time can hold a folder; it is let go at the end of the context.
    """

    def __init__(
        self, folder: Path, resume: bool, config: Config | None = None, processes: Processes = ALONE
    ) -> None:
        self.folder, self.resume, self.config, self._processes = folder, resume, config, processes
        self._writes = processes.rank == 0
        self._about: dict[str, Any] = {}
        self._best_saved: int | None = None
        self._saved_at = self._save_took = 0.0
        self._on_disk: DiskHistories | None = None
        # Where the file system has no locks, a soft lock in their place would outlive a killed process.
        self._lock = FileLock(folder / LOCK, thread_local=False, fallback_to_soft=False)

    def check_free(self) -> None:
        """Raise ArgumentError where there is a run but should be none, or the other way round.

        And RunError where nothing can be written: before minutes are spent on a graph.
        """
        if not self._writes:
            return
        with self._writing():  # a name may be too long
            check_writable(self.folder)
            is_folder, holds_run = self.folder.is_dir(), (self.folder / METRICS).exists()
            has_begun = holds_run or (self.folder / CONFIG).exists()
            holds_seeds = (self.folder / SEEDS).exists()
        if self.resume and not has_begun:
            missing = "holds no run" if is_folder else "no such folder"
            raise ArgumentError(f"{self.folder}: {missing}; there is no run to resume")
        if not self.resume and holds_run:
            raise ArgumentError(f"{self.folder}: holds a run already; resume it, or choose another folder")
        if not self.resume and holds_seeds:
            raise ArgumentError(f"{self.folder}: holds runs of several seeds; choose another folder")
        if not self.resume:
            check_unused(self.folder, (CONFIG, ENVIRONMENT, SUMMARY, BEST, BATCHES), LOCK, "a run")

    def check_goes_on(self, options: TrainingOptions) -> None:
        """Raise what names of files alone say of a run that is to go on: it is past the end, or not kept."""
        if not self._writes:
            return
        done = checkpoint.epochs_done(self.folder / CHECKPOINTS) if self.resume else None
        if done is not None and done > options.epochs:
            rule = f"the run has {done} already; epochs count from its beginning"
            raise ArgumentError(f"{self.folder}: epochs={options.epochs}: {rule}")
        if self.resume and done is None and options.checkpoints == 0:
            raise RunError(f'{self.folder}: checkpoint="none" keeps nothing to go on from; begin it anew')

    def choice(self, options: TrainingOptions) -> Choice | None:
        """The batches that the run in the folder has, which a later version may choose otherwise.

        None where there is none to go on with, or where settings say it all; ArgumentError where the options
        say otherwise.
        """
        file = self.folder / BATCHES
        if not self._writes or not self.resume or not file.exists():
            return None
        choice = read_choice(file)
        for name in ("parts", "parts_per_batch"):
            given, kept = getattr(options, name), getattr(choice, name)
            if given is not None and given < kept:  # more than the graph has nodes became fewer
                rule = f"training.{name} is {kept}, and cannot become {given}"
                raise ArgumentError(f"{self.folder}: goes on with the settings of the run: {rule}")
        return choice

    def histories(self, options: TrainingOptions) -> DiskHistories | None:
        """Where histories are kept in the folder, if they are to be; the same at every call."""
        if self._on_disk is None and options.history_memory is not None:
            place, checkpoints = self.folder / HISTORIES, options.checkpoints
            self._on_disk = DiskHistories(place, options.history_memory, checkpoints)
        return self._on_disk

    def __enter__(self) -> RunFolder:
        self.check_free()
        if not self._writes:
            return self
        files = CONFIG, ENVIRONMENT, METRICS, SUMMARY, CHECKPOINTS, BEST, BATCHES, HISTORIES, LOCK
        for name in (*files, PLAN, PREPARED):
            if (self.folder / name).is_symlink():  # which would lead writing out of the folder
                raise RunError(f"{self.folder / name}: a symbolic link; a run writes none")
        with self._writing():
            (self.folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            (self.folder / LOCK).touch()
            regular(self.folder / LOCK)
        self._hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_disk is not None:
            self._on_disk.rest()
        if self._writes:
            self._lock.release()

    def _check_settings(self, config: Config) -> None:
        """Raise ArgumentError where the run in the folder has other settings."""
        file = self.folder / CONFIG
        if not file.is_file():
            return
        kept = Config.read(file)
        Config.check_sections(kept)
        if reason := refusal(kept, config.as_read()):
            raise ArgumentError(f"{self.folder}: {reason}")

    def _check_begun_with(self, state: dict[str, Any], config: Config) -> None:
        """Raise ArgumentError where a checkpoint is of other settings: the folder's were edited."""
        if SETTINGS not in state:  # a checkpoint of an older version
            return

        def failing(line: str) -> RunError:
            return RunError(f"{self.folder}: its checkpoint: {line}")

        kept = typed.read(SETTINGS, state[SETTINGS], dict[str, dict[str, Any]], failing)
        if reason := refusal(kept, config.as_read()):
            another = f"`lmc train {self.folder / CONFIG} --out NEW` begins another run"
            raise ArgumentError(f"{self.folder}: its checkpoint {reason}; {another}")

    def _check_graph(self, training: Training, state: dict[str, Any], config: Config) -> None:
        """Raise RunError where the run in the folder is on another graph."""
        file = self.folder / CONFIG
        if training.is_on_graph_of(state) or not file.is_file():
            return
        kept, given = Config.read(file).get("data", {}).get("name"), config.data["name"]
        which = f"{given}, which has changed" if kept == given else f"{kept}, and {given} is another graph"
        if is_in_memory(given):  # which says no more than that
            which = f"another graph than {training.graph}"
        rule = "edges, features, labels and masks must be the same"
        raise RunError(f"{self.folder}: its checkpoint is of a run on {which}; {rule}")

    def _hold(self) -> None:
        """Take the folder for this process; the system lets it go when the process ends, however it ends."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise RunError(f"{self.folder}: another process is training in it") from None
        except OSError:  # a file system without locks
            return

    def train(self, training: Training) -> Result:
        """Run a training in this folder; a resumed one goes on from the last checkpoint."""
        config = described(training, self.config)
        if self._writes:
            for place in (self.folder, self.folder / CHECKPOINTS):
                remove_partial_files(place)  # of a process that was killed
        if self.resume:
            self._go_on(training, config)
        if self._on_disk is not None:
            self._on_disk.settle()
            remove_partial_files(self.folder / HISTORIES)
        self._config = config
        training.callbacks.append(self)
        result = training.run()
        summary = summary_of(training, result)
        if self._writes:
            with self._writing():
                _write_json(self.folder / SUMMARY, asdict(summary))
        return result

    def _go_on(self, training: Training, config: Config) -> None:
        """Take the state of the last checkpoint that is whole; the first process reads it for all."""

        def go_on(state: dict[str, Any]) -> None:
            self._check_begun_with(state, config)
            self._check_graph(training, state, config)
            _restore(training, state, self.folder)

        state: dict[str, Any] | None = None
        if self._writes:
            self._check_settings(config)
            use = go_on if self._processes.count == 1 else lambda state: None
            state = checkpoint.load_latest(self.folder / CHECKPOINTS, use)
            if state is None and training.options.checkpoints == 0:
                raise RunError(f'{self.folder}: checkpoint="none" keeps nothing to go on from; begin it anew')
            file = self.folder / METRICS
            if state is None and file.exists() and file.stat().st_size:  # else it was killed before its start
                lost = "has epochs behind it and no checkpoint to go on from"
                raise RunError(f"{self.folder}: {lost}; begin it anew, in another folder")
        if self._processes.count > 1:
            data = self._processes.share_bytes(b"" if state is None else checkpoint.to_bytes(state))
            if data:
                go_on(checkpoint.from_bytes(data))

    # -- what the run reports -----------------------------------------------------------------------

    def on_start(self, training: Training) -> None:
        """Write what is known before the first step."""
        if not self._writes:
            self._save(training)
            return
        with self._writing():
            self._about = _about(training, self._config)
            text = self._config.to_toml()
            write_atomically(self.folder / CONFIG, lambda file: file.write(text.encode()))
            if choice := choice_of(training.sampler):
                _write_json(self.folder / BATCHES, choice._asdict())
            if not (self.folder / ENVIRONMENT).exists():
                _write_json(self.folder / ENVIRONMENT, environment())
            # Epochs that were logged after the checkpoint are trained again, and a torn line goes.
            write_metrics(self.folder / METRICS, training.records)
            (self.folder / SUMMARY).unlink(missing_ok=True)  # it describes the run as it was
            self._save(training)

    def on_step(self, training: Training, loss: float) -> None:
        """Save in the middle of an epoch that takes long."""
        if self._due(training, least=MIDWAY_SECONDS):
            with self._writing():
                self._save(training)

    def on_epoch(self, training: Training, record: Record) -> None:
        """Append to the metrics; save where that costs little of the time that has passed."""
        with self._writing():
            if self._writes:
                append_metrics(self.folder / METRICS, record)
            if self._due(training):
                self._save(training)

    def on_end(self, training: Training) -> None:
        """Save where the run stands."""
        with self._writing():
            self._save(training)

    def _due(self, training: Training, least: float = 0.0) -> bool:
        asked = training.options.checkpoint_seconds
        wait = max(least, SAVING_SHARE * self._save_took) if asked is None else asked
        return self._processes.agree(time.monotonic() - self._saved_at >= wait)

    def _save(self, training: Training) -> None:
        start = time.monotonic()
        if keep := training.options.checkpoints:
            place = (training.epoch, training.step)
            state, shards = training.state(), shard_states(training.stepping)
            state[SETTINGS] = self._config.as_read()
            if self._writes:
                checkpoint.save(self.folder / CHECKPOINTS, *place, state, keep, shards)
            else:
                deque(shards, maxlen=0)  # which go to the first process
            self._processes.meet()
            if self._on_disk is not None:
                self._on_disk.keep()
        best = None if training.best.record is None else training.best.record.epoch
        if self._writes and best is not None and best != self._best_saved:
            checkpoint.save_weights(self.folder / BEST, training.best_weights, self._about)
            self._best_saved = best
        self._saved_at = time.monotonic()
        self._save_took = self._saved_at - start

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A write that fails becomes one line; the last checkpoint is still there."""
        try:
            yield
        except RunError:
            raise
        except Exception as error:
            if not isinstance(error, OSError) and "SafetensorError" not in type(error).__name__:
                raise
            raise RunError(f"{self.folder}: cannot be written to ({one_line(error)})") from None


def _about(training: Training, config: Config) -> dict[str, Any]:
    """What is needed to build the model again, kept with the best weights."""
    graph, recipe = training.graph, training.model.recipe
    named = {"class_names": graph.class_names, "feature_names": graph.feature_names}
    return {
        **{key: list(names) for key, names in named.items() if names is not None},
        "config": config.to_tree(),
        "task": graph.task,
        "in_features": graph.num_features,
        "is_undirected": graph.is_undirected,
        "out_features": graph.num_classes if recipe is None else recipe.out_features,
    }


def _restore(training: Training, state: dict[str, Any], folder: Path) -> None:
    try:
        training.load_state(state)
        files = [folder / CHECKPOINTS / name for name in state.get(checkpoint.SHARDS, [])]
        load_shards(training.stepping, [partial(checkpoint.read_shard, file) for file in files])
    except (ArgumentError, DamagedHistoryError):
        raise
    except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise RunError(f"{folder}: its checkpoint is of another run ({one_line(error)})") from None


def _write_json(file: Path, content: dict[str, Any]) -> None:
    write_atomically(file, lambda opened: opened.write((json.dumps(content, indent=2) + "\n").encode()))
