"""Ctrl-C while a model trains: the run ends after the step, and nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from lmc.training.loop import Training

_told: list[int] = []
"""The signals that have ended runs of this process."""


def last_signal() -> int:
    """What ended the last run that was interrupted: SIGINT, unless it was another signal."""
    return _told[-1] if _told else int(signal.SIGINT)


@contextmanager
def ended_by(training: Training, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """The first of these signals ends the run after its step; the second does what it did before.

    Only the main thread can be told; a signal that is ignored stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        training.stop("interrupted")
        _told.append(number)
        signal.signal(number, before[number])

    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in signals}
    before = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
