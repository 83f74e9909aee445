"""What a person sees of a run: a live line in a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from lmc import memory_use
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.records import Record


def display_of(console: Console, quiet: bool, as_json: bool, title: str = "") -> Callback:
    """The right display for where the output goes."""
    if as_json:
        return JSONLines()
    if quiet:
        return Callback()
    return LiveDisplay(console, title) if console.is_terminal else PlainLines(title)


class JSONLines(Callback):
    """One JSON object per epoch on the standard output."""

    def on_epoch(self, training: Training, record: Record) -> None:
        """Print the record."""
        print(json.dumps(asdict(record)), flush=True)


class PlainLines(Callback):
    """One line per epoch, for logs."""

    def __init__(self, title: str = "") -> None:
        self._title = f"{title}: " if title else ""

    def on_epoch(self, training: Training, record: Record) -> None:
        """Print the record."""
        print(
            f"{self._title}epoch {record.epoch}/{training.options.epochs}  {epoch_text(training, record)}",
            flush=True,
        )


class LiveDisplay(Callback):
    """A line that moves with every step."""

    def __init__(self, console: Console, title: str = "") -> None:
        self._title, self._task = title, TaskID(0)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            TextColumn("[dim]step {task.fields[step]}/{task.fields[steps]}"),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )

    def on_start(self, training: Training) -> None:
        """Begin where the run begins."""
        self._progress.start()
        self._task = self._progress.add_task(
            self._title or "training",
            total=training.options.epochs * training.sampler.steps,
            completed=training.epoch * training.sampler.steps + training.step,
            epoch=training.epoch,
            epochs=training.options.epochs,
            step=training.step,
            steps=training.sampler.steps,
            text="",
        )

    def on_step(self, training: Training, loss: float) -> None:
        """Move by one step."""
        fields: dict[str, object] = {"step": training.step, "epoch": training.epoch + 1}
        if not training.records:
            fields["text"] = f"loss {loss:.4f}  {_memory(None, memory_use.peak())}"
        self._progress.update(self._task, advance=1, **fields)  # type: ignore[arg-type]

    def on_epoch(self, training: Training, record: Record) -> None:
        """Say what the epoch was."""
        self._progress.update(self._task, text=epoch_text(training, record))

    def on_end(self, training: Training) -> None:
        """Leave the last line standing."""
        self._progress.stop()

    def on_error(self, training: Training) -> None:
        """Give the terminal back."""
        self._progress.stop()


def epoch_text(training: Training, record: Record) -> str:
    """An epoch in a few words."""
    words = [f"loss {record.loss:.4f}"]
    if record.val is not None:
        words.append(f"val {training.metric.name} {record.val:.4f}")
    elif record.train is not None:
        words.append(f"train {training.metric.name} {record.train:.4f}")
    best = training.best.record
    if best is not None and best.val is not None:
        words.append(f"best {best.val:.4f}")
    return "  ".join([*words, f"{record.seconds:.2f} s", _memory(record.step_memory, record.memory)])


def _memory(step: int | None, process: int) -> str:
    """The memory of a step, where it is known, and the peak of the process."""
    own = "" if step is None else f"step {step / 1e9:.2f} GB, "
    return f"{own}process {process / 1e9:.2f} GB"
