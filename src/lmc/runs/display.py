"""What a person sees of a run: a live line in a terminal or a notebook, plain lines elsewhere, or JSON.

Nothing here needs torch, so that a command can say what it does while torch is loaded.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from lmc import checks
from lmc.runs.notebook import NotebookOutput, in_notebook
from lmc.runs.progress_line import ProgressLine, epoch_texts
from lmc.tidying import tidying
from lmc.training.callbacks import Callback

if TYPE_CHECKING:
    from lmc.training.loop import Training
    from lmc.training.plan import Plan
    from lmc.training.records import Record

Progress = Literal["auto", "plain"] | bool
"""`"auto"`: live in a terminal or a notebook, nothing elsewhere; True: there, plain lines. False: nothing."""

ECHO = 2
"""Columns that a terminal needs to show ^C without a line break."""


class Display(Callback):
    """Shows nothing; what others show is taken away at the end of the context."""

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what was taken, such as the cursor of a terminal."""


def display_of(console: Console, quiet: bool, as_json: bool, title: str = "") -> Display:
    """The right display of a command for where its output goes."""
    if as_json:
        return JSONLines()
    if quiet:
        return Display()
    return LiveLine(console, title) if console.is_terminal else PlainLines(title)


Watch = AbstractContextManager[Sequence[str | Callback]]
"""Those who are told of a run, loggers by name among them, as long as it goes on."""


@contextmanager
def watching(
    console: Console, quiet: bool, as_json: bool, title: str = "", loggers: Sequence[str] = ()
) -> Iterator[Sequence[str | Callback]]:
    """The display of a command, and loggers beside it."""
    with display_of(console, quiet, as_json, title) as display:
        yield [display, *loggers]


def display_in_python(progress: Progress) -> Display:
    """The right display of a call from Python, where a script that is piped stays silent.

    >>> type(display_in_python("plain")).__name__, type(display_in_python(False)).__name__
    ('PlainLines', 'Display')
    """
    if progress is False:
        return Display()
    if progress is not True and checks.one_of("progress", progress, ("auto", "plain")) == "plain":
        return PlainLines()
    if in_notebook():
        return LiveOutput()
    if sys.stdout.isatty():
        return LiveLine(Console())
    return PlainLines() if progress is True else Display()


class JSONLines(Display):
    """One JSON object per epoch on the standard output."""

    def on_epoch(self, training: Training, record: Record) -> None:
        """Print the record, with the seed of its run: there may be several."""
        print(json.dumps({"seed": training.options.seed, **asdict(record)}), flush=True)


class PlainLines(Display):
    """One line per phase and per epoch, for logs."""

    def __init__(self, title: str = "") -> None:
        self._title = f"{title}: " if title else ""
        self._phase_began: float | None = None
        self._tidying = tidying(self._end_phase)  # so that what is said of a signal has its own line

    def __enter__(self) -> PlainLines:
        self._tidying.__enter__()
        self._showwarning = warnings.showwarning
        warnings.showwarning = self._warn
        return self

    def _warn(self, *warning: Any, **more: Any) -> None:
        """A warning has its own line."""
        self._end_phase()
        self._showwarning(*warning, **more)

    def on_phase(self, phase: str) -> None:
        """Say what begins; its seconds follow at its end."""
        self._end_phase()
        self._phase_began = time.monotonic()
        print(f"{self._title}{phase} ... ", end="", flush=True)

    def on_plan(self, plan: Plan) -> None:
        """Print it as a table."""
        self._end_phase()
        print(plan, flush=True)

    def on_step(self, training: Training, loss: float) -> None:
        """The first one ends what was before it."""
        self._end_phase()

    def on_epoch(self, training: Training, record: Record) -> None:
        """Print the record."""
        texts = epoch_texts(training, record)
        order = [texts[name] for name in ("loss", "value", "best", "seconds", "memory") if name in texts]
        print(
            f"{self._title}epoch {record.epoch}/{training.options.epochs}  {'  '.join(order)}",
            flush=True,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        warnings.showwarning = self._showwarning
        self._tidying.__exit__(kind, error, trace)

    def _end_phase(self) -> None:
        if self._phase_began is not None:
            print(f"{time.monotonic() - self._phase_began:.1f} s", flush=True)
            self._phase_began = None


class _Moving(Display):
    """A display that keeps a line up to date."""

    def __init__(self, title: str = "") -> None:
        self.line = ProgressLine(title)

    def on_phase(self, phase: str) -> None:
        """Say what is done."""
        self.line.begin_phase(phase)

    def on_start(self, training: Training) -> None:
        """Begin where the run begins."""
        self.line.begin(training)

    def on_step(self, training: Training, loss: float) -> None:
        """Move by one step."""
        self.line.step(training, loss)

    def on_epoch(self, training: Training, record: Record) -> None:
        """Say what the epoch was."""
        self.line.epoch(training, record)

    def on_end(self, training: Training) -> None:
        """There is nothing left to wait for."""
        self.line.phase, self.line.has_ended = None, True


class LiveLine(_Moving):
    """A line of a terminal, as long as there is room."""

    def __init__(self, console: Console, title: str = "") -> None:
        super().__init__(title)
        self._live = Live(self, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> LiveLine:
        self._live.start()
        return self

    def on_plan(self, plan: Plan) -> None:
        """Print it as a table, above the line."""
        self._live.console.print(str(plan), markup=False, highlight=False)

    def on_end(self, training: Training) -> None:
        """Leave the last line standing, unless nothing was done."""
        super().on_end(training)
        self._live.transient = self.line.done == 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pieces, width = self.line.fitting(options.max_width - ECHO)
        total = float(self.line.total) if self.line.phase is None and self.line.total else None
        bar = ProgressBar(total=total, completed=self.line.done, width=width)
        title, rest = ([pieces[0]], pieces[1:]) if self.line.title else ([], pieces)
        shown = Table.grid(padding=(0, 2, 0, 0))
        shown.add_row(*title, bar, *rest)
        yield shown


class LiveOutput(_Moving):
    """A line below a cell of a notebook."""

    def __init__(self) -> None:
        super().__init__()
        self._output = NotebookOutput()

    def on_phase(self, phase: str) -> None:
        """Say what is done."""
        super().on_phase(phase)
        self._output.show(self.line)

    def on_plan(self, plan: Plan) -> None:
        """Print it as a table."""
        print(plan)

    def on_step(self, training: Training, loss: float) -> None:
        """Move by one step."""
        super().on_step(training, loss)
        self._output.show_if_due(self.line)

    def on_end(self, training: Training) -> None:
        """Leave the last line standing."""
        super().on_end(training)
        self._output.show(self.line)
