"""`study.json`: what a search over settings has found so far."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from lmc import typed
from lmc.files import write_atomically
from lmc.runs.text_files import content_of, in_file, json_of

State = Literal["finished", "pruned", "failed", "running"]

STUDY = "study.json"
TRIALS = "trials"


@dataclass(frozen=True)
class Trial:
    """One run of a search.

    Attributes:
        number: from 1; its folder is `trials/<number>`.
        state: how it ended, or that it has not.
        settings: those that were tried, by place.
        val: the best validation metric; of a run that was pruned, until then.
        test: the test metric at that epoch.
        epochs: how many were trained.
        seconds: of training.
        error: why it failed.
    """

    number: int
    state: State
    settings: dict[str, bool | int | float | str]
    val: float | None = None
    test: float | None = None
    epochs: int = 0
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True)
class Study:
    """A search and its trials.

    Attributes:
        metric: the name of what is sought the best of.
        higher_is_better: whether that is the highest.
        data: the graph.
        model: its name.
        method: its name.
        space: what is tried, by place, as it was written.
        trials: in the order they were begun.
        importance: the share of each setting in how good a trial is; None where too few are known.
    """

    metric: str
    higher_is_better: bool
    data: str
    model: str
    method: str
    space: dict[str, str]
    trials: list[Trial] = field(default_factory=list)
    importance: dict[str, float] | None = None

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best validation metric, the first of several."""
        found: Trial | None = None
        for trial in self.trials:
            if trial.state == "finished" and trial.val is not None and not math.isnan(trial.val):
                sign = 1 if self.higher_is_better else -1
                if found is None or found.val is None or sign * trial.val > sign * found.val:
                    found = trial
        return found


def write_study(folder: Path, study: Study) -> None:
    """Write what is known by now."""
    text = json.dumps(asdict(study), indent=2) + "\n"
    write_atomically(folder / STUDY, lambda file: file.write(text.encode()))


def read_study(folder: Path) -> Study:
    """What a search wrote; RunError where none could have written it."""
    file = folder / STUDY
    study: Study = typed.read("", json_of(str(file), content_of(file)), Study, in_file(str(file)))
    return study


def trial_folder(folder: Path, number: int) -> Path:
    """Where the run of a trial is."""
    return folder / TRIALS / f"{number:03}"
