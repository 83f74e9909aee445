"""A command as several processes of this machine, as torch's launcher would start them.

Nothing here needs torch: each process loads it for itself.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import IO

LET_GO = 30.0
"""Seconds that others have to end by themselves once one has failed; they hear of it within a few."""
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""How often the processes of a run were started again; torch's launcher says it by the same name."""


def rank_here() -> int:
    """Which of several processes this is; 0 where it is one alone.

    >>> rank_here()
    0
    """
    return int(os.environ.get("RANK", "0")) if "WORLD_SIZE" in os.environ else 0


def started_again() -> bool:
    """Whether a launcher has started this process after one like it had failed.

    >>> started_again()
    False
    """
    return os.environ.get(RESTARTS, "0") != "0"


def run_as(count: int, arguments: Sequence[str], restarts: int = 0) -> int:
    """Run `lmc` with these arguments as so many processes; gives the exit code.

    Args:
        count: of processes.
        arguments: of the command.
        restarts: how often all are started again where one fails; mistakes of usage and interrupts are final.
    """
    for attempt in range(restarts + 1):
        code = _Attempt(count, arguments, attempt).wait()
        if code in (0, 2) or code > 128:
            break
        if attempt < restarts:
            print(f"lmc: starting again, {attempt + 1} of {restarts}", file=sys.stderr)
    return code


class _Attempt:
    """Processes that were started together."""

    def __init__(self, count: int, arguments: Sequence[str], attempt: int) -> None:
        self._said: set[str] = set()
        port = _free_port()
        self._processes = [self._start(rank, count, port, arguments, attempt) for rank in range(count)]
        assert all(process.stderr is not None for process in self._processes)
        self._readers = [
            threading.Thread(target=self._say, args=(process.stderr,)) for process in self._processes
        ]
        for reader in self._readers:
            reader.start()

    def _start(
        self, rank: int, count: int, port: int, arguments: Sequence[str], attempt: int
    ) -> subprocess.Popen[str]:
        told = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": count,
            "LOCAL_WORLD_SIZE": count,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            RESTARTS: attempt,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "lmc", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches them once, from here
            env=os.environ | {name: str(value) for name, value in told.items()},
        )

    def _say(self, lines: IO[str]) -> None:
        """Pass lines on; what all say is said once."""
        for line in lines:
            if line not in self._said or not line.startswith("lmc:"):
                self._said.add(line)
                sys.stderr.write(line)
                sys.stderr.flush()

    def wait(self) -> int:
        """The exit code of the first one that fails, or 0."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pass_on)
        code, until = 0, float("inf")
        while any(process.poll() is None for process in self._processes):
            codes = [process.returncode for process in self._processes]
            if until == float("inf") and any(codes):
                code, until = next(_as_shells(each) for each in codes if each), time.monotonic() + LET_GO
            if time.monotonic() > until:
                self._pass_on(signal.SIGKILL, None)
            time.sleep(0.05)
        for reader in self._readers:
            reader.join()
        codes = [_as_shells(process.returncode) for process in self._processes]
        return code or next((each for each in codes if each), 0)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)


def _as_shells(code: int | None) -> int:
    """1 for a process that was killed: it has not ended by itself."""
    return 1 if code is None or code < 0 else code


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
