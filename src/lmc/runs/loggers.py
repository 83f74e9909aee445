"""Loggers by name: callbacks that tell a service, such as TensorBoard, of a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from lmc import checks, typed
from lmc.errors import ArgumentError, LMCError
from lmc.files import one_line, write_atomically
from lmc.runs.config import Config
from lmc.runs.description import described
from lmc.runs.registry import LOGGERS
from lmc.runs.text_files import content_of, in_file, json_of
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.records import Record

KEPT = "loggers.json"
"""In the folder of a run: by which id each service knows it."""
SPLITS = ("train", "val", "test")

Settings = dict[str, "bool | int | float | str"]


class Logger(Callback):
    """Tells a service what the settings are, what every epoch was, and how the run ended.

    A service that cannot be reached at the start ends the run; later, it only ends the logging.

    Args:
        name: of the logger, in `LOGGERS`.
        folder: of the run, or None where it has none.
        config: the settings of the run; None describes it as far as text can.
    """

    def __init__(self, name: str, folder: Path | None, config: Config | None = None) -> None:
        self.name, self.folder = name, folder
        self._config = config
        self._is_open = False

    # -- what each logger does in its own way --------------------------------------------------------

    def begin(self, training: Training, settings: Settings, run_id: str | None) -> str | None:
        """Open the run of the service, or go on with the one of this id; gives the id, if there is one."""
        raise NotImplementedError

    def log(self, values: dict[str, float], epoch: int) -> None:
        """Write the values of an epoch."""
        raise NotImplementedError

    def finish(self, stopped: str, best: dict[str, float]) -> None:
        """Write how the run ended, and close it."""
        raise NotImplementedError

    # -- what is told by the run -----------------------------------------------------------------------

    def on_start(self, training: Training) -> None:
        """Open the run, now that the folder is its own."""
        try:
            run_id = self.begin(training, self._flat(training), self._known_id())
        except LMCError:
            raise
        except Exception as error:  # whatever a service raises
            raise ArgumentError(f"{self.name}: cannot be reached ({one_line(error)})") from None
        self._is_open = True
        if run_id is not None and self.folder is not None:
            self._keep_id(run_id)

    def on_epoch(self, training: Training, record: Record) -> None:
        """Write the record."""
        self._tell(lambda: self.log(values_of(training, record), record.epoch))

    def on_end(self, training: Training) -> None:
        """Write the best epoch, and how the run ended."""
        self._close(training, training.stopped or "finished")

    def on_error(self, training: Training) -> None:
        """Say that the run failed."""
        self._close(training, "failed")

    def _close(self, training: Training, stopped: str) -> None:
        best = {} if training.best.record is None else _best_of(training.best.record)
        self._tell(lambda: self.finish(stopped, best))
        self._is_open = False

    def _tell(self, act: Callable[[], None]) -> None:
        """A service that fails while the run goes on is no reason to lose the run."""
        if not self._is_open:
            return
        try:
            act()
        except Exception as error:
            self._is_open = False
            warnings.warn(f"{self.name}: logging ends, the run goes on ({one_line(error)})", stacklevel=2)

    def _flat(self, training: Training) -> Settings:
        tree = described(training, self._config).to_tree()
        flat = {f"{section}.{key}": value for section, table in tree.items() for key, value in table.items()}
        return {
            key: value if isinstance(value, (bool, int, float, str)) else str(value)
            for key, value in flat.items()
        }

    # -- the ids -----------------------------------------------------------------------------------------

    def _known_id(self) -> str | None:
        return _ids(self.folder).get(self.name)

    def _keep_id(self, run_id: str) -> None:
        assert self.folder is not None
        text = json.dumps(_ids(self.folder) | {self.name: run_id}, indent=2) + "\n"
        write_atomically(self.folder / KEPT, lambda file: file.write(text.encode()))


def callbacks_of(
    given: Sequence[str | Callback] | str, folder: Path | None, config: Config | None = None
) -> list[Callback]:
    """Callbacks, of which some are loggers by name.

    Args:
        given: callbacks, and names out of `LOGGERS`.
        folder: of the run, or None.
        config: the settings of the run, which loggers tell; None describes it as far as text can.

    >>> callbacks_of(["csv"], None)
    Traceback (most recent call last):
    lmc.errors.ArgumentError: callbacks='csv': must be one of tensorboard, wandb, mlflow
    """
    return [
        _logger(each, folder, config) if isinstance(each, str) else each
        for each in checks.sequence("callbacks", given)
    ]


def _logger(name: str, folder: Path | None, config: Config | None) -> Callback:
    kind = LOGGERS[checks.one_of("callbacks", name, LOGGERS)]
    if find_spec(kind.package) is None:
        raise ArgumentError(f"{name}: {kind.title} is not installed; pip install 'lmc[{name}]'")
    logger: Callback = kind.load()(name, folder, config)
    return logger


def values_of(training: Training, record: Record) -> dict[str, float]:
    """What is known of an epoch, by name."""
    values = {"loss": record.loss, "seconds": record.seconds, "memory": record.memory, "lr": record.lr}
    measured = {training.metric.name: _own(record), **(record.metrics or {})}
    for name, by_split in measured.items():
        values |= {f"{name}/{split}": value for split, value in by_split.items()}
    values |= record.found or {}
    for part, error in (record.gradient_error or {}).items():
        values[f"gradient_error/{part}"] = error
    return values


def _own(record: Record) -> dict[str, float]:
    return {split: value for split in SPLITS if (value := getattr(record, split)) is not None}


def _best_of(record: Record) -> dict[str, float]:
    return {f"best/{name}": value for name, value in {"epoch": record.epoch, **_own(record)}.items()}


def _ids(folder: Path | None) -> dict[str, str]:
    if folder is None or not (folder / KEPT).exists():
        return {}
    where = str(folder / KEPT)
    ids: dict[str, str] = typed.read(
        "", json_of(where, content_of(folder / KEPT)), dict[str, str], in_file(where)
    )
    return ids
