"""Ctrl-C and a polite kill: one line, and the process ends, with 128 and the number of the signal, at once.

While a model trains it ends after the step under way, see `lmc.runs.interruption`, with the same code.

Python would raise KeyboardInterrupt wherever it is, also in the midst of an import or of a compilation, where
libraries swallow it, turn it into errors of their own, or print it.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import click

from lmc.tidying import tidy

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_afterwards: list[str] = []
"""What can become of the command under way, if anything is to be said of it."""
_SHOW_CURSOR = "\x1b[?25h"


def end_at_once_when_told() -> None:
    """From now on, exit with 128 and the number of the signal; a signal that is ignored stays ignored."""
    for number in _WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)
    # Registered first, so it is called last: a process that is done ends by its own code.
    atexit.register(_ignore)


def _end(number: int, frame: FrameType | None) -> None:
    tidy()
    # What was printed so far; standard output may be closed, or in the midst of a line.
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(OSError):
        start = f"{_SHOW_CURSOR}\n" if os.isatty(2) else ""
        line = "; ".join([_WORDS[signal.Signals(number)], *_afterwards])
        os.write(2, f"{start}lmc: {line}\n".encode())
    os._exit(128 + number)


@contextmanager
def going_on_by(afterwards: str) -> Iterator[None]:
    """Have the line of a signal say how a command goes on, also where no model trains."""
    _afterwards.append(afterwards)
    try:
        yield
    finally:
        _afterwards.remove(afterwards)


def end_interrupted(afterwards: str, quiet: bool = False) -> NoReturn:
    """End a command whose training was interrupted, with a line that says what can become of it."""
    from lmc.runs.interruption import last_signal  # loads torch, which has been loaded by now

    number = last_signal()
    if not quiet:
        print(f"lmc: {_WORDS[signal.Signals(number)]}; {afterwards}", file=sys.stderr)
    raise click.exceptions.Exit(128 + number)


def _ignore() -> None:
    for number in _WORDS:
        signal.signal(number, signal.SIG_IGN)
