"""The line that moves while a run goes on: what it says, the important things first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lmc import memory_use

if TYPE_CHECKING:
    from lmc.training.loop import Training
    from lmc.training.records import Record

GAP = 2
"""Columns between two pieces."""
BAR = range(8, 41)
"""Columns that the bar may have."""


@dataclass
class ProgressLine:
    """What is known of a run while it goes on.

    Attributes:
        title: of the run; may be empty.
        phase: what is done before the first step; None from then on.
        done: steps that are done.
        total: steps of the run; 0 before they are known.
        has_ended: whether there is nothing left to wait for.
    """

    title: str = ""
    phase: str | None = None
    done: int = 0
    total: int = 0
    has_ended: bool = False
    _began: float = field(default_factory=time.monotonic)
    _phase_began: float = field(default_factory=time.monotonic)
    _first: tuple[int, float] | None = None  # steps done and time after the first step, which compiles
    _pieces: dict[str, str] = field(default_factory=dict)

    def begin_phase(self, phase: str) -> None:
        """What is done now, before the first step."""
        self.phase, self._phase_began = phase, time.monotonic()

    def begin(self, training: Training) -> None:
        """The run begins, perhaps in its middle."""
        steps = training.sampler.steps
        self.done = training.epoch * steps + training.step
        self.total = training.options.epochs * steps
        self._say_place(training.epoch, training)

    def step(self, training: Training, loss: float) -> None:
        """One step is done."""
        self.phase, self.done = None, self.done + 1
        self._first = self._first or (self.done, time.monotonic())
        self._say_place(training.epoch + 1, training)
        if not training.records:
            self._pieces |= {"loss": f"loss {loss:.4f}", "memory": memory_text(None, memory_use.peak())}

    def epoch(self, training: Training, record: Record) -> None:
        """An epoch is done, and evaluated."""
        self._pieces |= epoch_texts(training, record)

    def _say_place(self, epoch: int, training: Training) -> None:
        epochs, steps = str(training.options.epochs), str(training.sampler.steps)
        self._pieces |= {
            "epoch": f"epoch {epoch:{len(epochs)}}/{epochs}",
            "step": f"step {training.step:{len(steps)}}/{steps}",
        }

    def remaining(self) -> float | None:
        """Seconds until the end, at the pace since the first step; None before there is a pace."""
        if self._first is None or self.done == self._first[0]:
            return None
        pace = (time.monotonic() - self._first[1]) / (self.done - self._first[0])
        return (self.total - self.done) * pace

    def fitting(self, width: int) -> tuple[list[str], int]:
        """The pieces that a line of so many columns has room for, in order, and the columns left for the bar.

        >>> line = ProgressLine(title="gas", phase="loading arxiv")
        >>> line.fitting(40)
        (['gas', 'loading arxiv', '0:00'], 14)
        """
        # In the order of importance; `order` below is that of the line.
        pieces = {"epoch": "", "time": self._time(), "title": self.title}
        if self.phase is not None:
            pieces = {"title": self.title, "phase": self.phase, "time": clock(self._since_phase())}
        else:
            pieces |= dict.fromkeys(("value", "best", "loss", "step", "seconds", "memory"), "") | self._pieces
        kept: dict[str, str] = {}
        left = width - BAR[0]
        for name, piece in pieces.items():
            if piece and (left := left - GAP - len(piece)) < 0:
                left += GAP + len(piece)
                break
            kept[name] = piece
        order = ("title", "phase", "epoch", "step", "time", "loss", "value", "best", "seconds", "memory")
        return [kept[name] for name in order if kept.get(name)], min(BAR[-1], BAR[0] + left)

    def _since_phase(self) -> float:
        return time.monotonic() - self._phase_began

    def _time(self) -> str:
        if self.has_ended:
            return f"in {clock(time.monotonic() - self._began)}"
        remaining = self.remaining()
        return f"{'-:--' if remaining is None else clock(remaining):>5} left"


def epoch_texts(training: Training, record: Record) -> dict[str, str]:
    """An epoch in a few words, by what each is about."""
    texts = {"loss": f"loss {record.loss:.4f}"}
    if record.val is not None:
        texts["value"] = f"val {training.metric.name} {record.val:.4f}"
    elif record.train is not None:
        texts["value"] = f"train {training.metric.name} {record.train:.4f}"
    best = training.best.record
    if best is not None and best.val is not None:
        texts["best"] = f"best {best.val:.4f}"
    return texts | {
        "seconds": f"{record.seconds:.2f} s",
        "memory": memory_text(record.step_memory, record.memory),
    }


def clock(seconds: float) -> str:
    """A duration as people write it.

    >>> clock(7), clock(83.4), clock(7384)
    ('0:07', '1:23', '2:03:04')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def memory_text(step: int | None, process: int) -> str:
    """The memory of a step, where it is known, and the peak of the process.

    >>> memory_text(234_567_890, 1_234_567_890)
    'step 0.23 GB, process 1.23 GB'
    """
    own = "" if step is None else f"step {step / 1e9:.2f} GB, "
    return f"{own}process {process / 1e9:.2f} GB"
