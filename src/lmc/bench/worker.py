"""A row in a process of its own: it sleeps until it is asked for an epoch, so that rows can take turns."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import lmc
from lmc import memory_use
from lmc.bench.rows import TimedRow
from lmc.malloc import give_back_large_buffers

Make = Callable[[lmc.Graph], TimedRow]
Load = Callable[[], lmc.Graph]


class Worker:
    """Times epochs of one row.

    Args:
        make: what is trained, on the graph.
        load: gives the graph.
        keep_buffers: whether the process keeps large buffers; if not, it holds only what it needs.
    """

    def __init__(self, make: Make, load: Load, keep_buffers: bool = True) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, make, load, keep_buffers)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        with _deaf_to_interrupts():
            self._process.start()
        theirs.close()

    def ask(self, what: str) -> Any:
        """`"epoch"`: its seconds. `"memory"`: bytes at its peak above what is held between epochs.

        `"process"`: bytes that it has held at most since it began, unless `"memory"` was asked for.
        `"accuracy"`: of the model as it is, on the validation nodes.
        """
        try:
            self._pipe.send(what)
            kind, answer = self._pipe.recv()
        except (EOFError, BrokenPipeError):
            raise lmc.LMCError(f"a worker of the benchmark died at {what!r}: out of memory?") from None
        if kind == "error":
            raise lmc.LMCError(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started here never hears Ctrl-C, which is for the parent: it ends us all."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, make: Make, load: Load, keep_buffers: bool) -> None:
    if not keep_buffers:
        os.environ["LMC_MALLOC"] = "0"
        give_back_large_buffers()
    try:
        row = make(load())
        answers: dict[str, Callable[[], Any]] = {
            "epoch": lambda: _seconds(row.epoch),
            "memory": lambda: _peak(row),
            "process": memory_use.peak,
            "accuracy": row.accuracy,
        }
        while True:
            pipe.send(("done", answers[pipe.recv()]()))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {error}"))


def _seconds(epoch: Callable[[], None]) -> float:
    start = time.perf_counter()
    epoch()
    return time.perf_counter() - start


def _peak(row: TimedRow) -> int:
    row.begin_anew()
    gc.collect()
    memory_use.restart_peak()
    before = memory_use.now()
    row.epoch()
    return memory_use.peak() - before
