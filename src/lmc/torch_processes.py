"""Processes that torch's launcher has started: what they say to each other goes by `torch.distributed`.

Nothing that is said is a pickle. A process that fails says why, where all others can read it; one that is not
heard of for `TIMEOUT` seconds is given up by all others.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from lmc.errors import ArgumentError, LMCError, RunError
from lmc.processes import ALONE, Processes

TIMEOUT = 120.0
"""Seconds; `$LMC_TIMEOUT` has others."""
BEAT = 2.0
"""Seconds between signs of life."""
GRACE = 3.0
"""Seconds that those who lose a connection wait for a reason."""
_FAILED = "failed"

Result = TypeVar("Result")


class TorchProcesses(Processes):
    """Several processes, each a rank; see `Processes`.

    Args:
        store: where all can read and write a few words.
        rank: which this is.
        count: how many there are.
        timeout: seconds after which one that does not answer is given up.
    """

    def __init__(self, store: Store, rank: int, count: int, timeout: float = TIMEOUT) -> None:
        self.rank, self.count, self._timeout = rank, count, timeout
        self._store, self._met, self._ended = PrefixStore("lmc", store), 0, threading.Event()
        self._beating = threading.Thread(target=self._live, name="lmc-alive", daemon=True)
        self._beating.start()
        patience = timedelta(seconds=timeout)
        if not dist.is_initialized():
            own = PrefixStore("torch", self._store)
            self._said(
                lambda: dist.init_process_group(
                    "gloo", store=own, rank=rank, world_size=count, timeout=patience
                )
            )
        # What goes on beside all else has a group of its own, so that it is in nobody's way.
        self._group, self._aside = (
            self._said(lambda: dist.new_group(backend="gloo", timeout=patience)) for _ in range(2)
        )

    # -- what is said --------------------------------------------------------------------------------

    def exchange(self, data: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """(sum of received,) what others have for this one, in their order."""
        return self._start(data, sent, received, self._group)()

    def start_exchange(self, data: Tensor, sent: list[int], received: list[int]) -> Callable[[], Tensor]:
        """Begin an `exchange` that goes on beside all else; what is returned waits for its end."""
        return self._start(data, sent, received, self._aside)

    def _start(
        self, data: Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup
    ) -> Callable[[], Tensor]:
        size = data.itemsize
        found = torch.empty(sum(received) * size, dtype=torch.uint8)
        counts = [count * size for count in received], [count * size for count in sent]
        given, given_type = data.contiguous().view(torch.uint8), data.dtype
        work = self._said(lambda: dist.all_to_all_single(found, given, *counts, group=group, async_op=True))

        def arrived() -> Tensor:
            self._said(work.wait)
            return found.view(given_type)

        return arrived

    def gather(self, data: Tensor) -> list[Tensor]:
        """What every one has: tensors of the same shape and type."""
        given = data.contiguous().flatten().view(torch.uint8)
        found = [torch.empty_like(given) for _ in range(self.count)]
        self._said(lambda: dist.all_gather(found, given, group=self._group))
        return [each.view(data.dtype).reshape(data.shape) for each in found]

    def share(self, data: Tensor) -> Tensor:
        """What the first one has; the others give a tensor of the same shape and type."""
        found = data.clone().contiguous().flatten().view(torch.uint8)
        self._said(lambda: dist.broadcast(found, 0, group=self._group))
        return found.view(data.dtype).reshape(data.shape)

    def meet(self) -> None:
        """Wait until all are here, for as long as they live: one may have much to do by itself."""
        self._met += 1
        place = f"met/{self._met}"
        self._said(lambda: self._store.add(place, 1))
        alive: dict[int, tuple[int, float]] = {}
        while self._said(lambda: self._store.add(place, 0)) < self.count:
            self._raise_failure()
            now = time.monotonic()
            for rank, beat in enumerate(self._beats()):
                if alive.get(rank, (-1, now))[0] != beat:
                    alive[rank] = (beat, now)
            if silent := [rank for rank, (_, when) in alive.items() if now - when > self._timeout]:
                raise RunError(self._no_answer(silent))
            time.sleep(0.02)

    # -- failures ------------------------------------------------------------------------------------

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """What is raised in this context names the rank, and is told to all others."""
        try:
            yield
        except LMCError as error:
            line = str(error)
            if not line.startswith("rank "):
                line = f"rank {self.rank}: {line}"
            self._tell(line)
            raise type(error)(line) from None
        except BaseException as error:
            self._tell(f"rank {self.rank}: {type(error).__name__}: {' '.join(str(error).split())}")
            raise

    def end(self) -> None:
        """Be silent from now on; threads of torch must not outlive the interpreter."""
        self._ended.set()
        self._beating.join(BEAT)
        with suppress(RuntimeError, ValueError):
            dist.destroy_process_group()

    def _said(self, say: Callable[[], Result]) -> Result:
        """What a call gives; where it fails, the reason is that of whoever failed first."""
        try:
            return say()
        except RuntimeError as error:
            began, text = time.monotonic(), " ".join(str(error).split())
            while time.monotonic() - began < GRACE:
                self._raise_failure()
                time.sleep(0.1)
        if "imed out" in text or "imeout" in text:
            raise RunError(self._no_answer(self._silent()))
        silent = self._silent()
        who = ", ".join(f"rank {rank}" for rank in silent) or "another process"
        raise RunError(f"{who}: has ended without a word")

    def _tell(self, line: str) -> None:
        """Leave a line where others look for it; the first one stays."""
        with suppress(RuntimeError):  # whoever keeps the store is gone
            self._store.compare_set(_FAILED, "", line)

    def _raise_failure(self) -> None:
        try:
            line = self._store.get(_FAILED).decode() if self._store.check([_FAILED]) else None
        except RuntimeError:
            line = "rank 0: has ended without a word"
        if line is not None:
            raise RunError(line)

    # -- signs of life -------------------------------------------------------------------------------

    def _live(self) -> None:
        with suppress(RuntimeError):
            while not self._ended.wait(BEAT):
                self._store.add(f"alive/{self.rank}", 1)

    def _beats(self) -> list[int]:
        with suppress(RuntimeError):
            return [self._store.add(f"alive/{rank}", 0) for rank in range(self.count)]
        return []

    def _silent(self) -> list[int]:
        """Those that give no sign of life for some beats."""
        before = self._beats()
        time.sleep(2 * BEAT)
        return [
            rank for rank, pair in enumerate(zip(before, self._beats(), strict=False)) if pair[0] == pair[1]
        ]

    def _no_answer(self, silent: list[int]) -> str:
        who = ", ".join(f"rank {rank}" for rank in silent) or "another process"
        return f"{who}: no answer for {self._timeout:g} seconds; stopped, or out of reach"


def launched() -> int:
    """How many processes torch's launcher has started; 1 where it has not started this one.

    >>> launched()
    1
    """
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in wanted) else 1


_joined: list[TorchProcesses] = []


def joined() -> Processes:
    """All processes that torch's launcher has started together with this one, which alone is one.

    >>> joined().count
    1
    """
    if launched() == 1:
        return ALONE
    if not _joined:
        _joined.append(_join())
        atexit.register(_joined[0].end)
    return _joined[0]


def _join() -> TorchProcesses:
    share_threads()
    found: list[tuple[Store, int, int]] = []
    failed: list[str] = []

    def meet() -> None:
        try:
            found.append(next(iter(rendezvous("env://", timeout=timedelta(seconds=_timeout())))))
        except (RuntimeError, ValueError, OSError) as error:
            failed.append(" ".join(str(error).split())[:200])

    # Torch waits without an end where something else answers at the port.
    meeting = threading.Thread(target=meet, name="lmc-meet", daemon=True)
    meeting.start()
    meeting.join(_timeout() + GRACE)
    if not found:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        text = failed[0] if failed else f"no answer for {_timeout():g} seconds"
        raise RunError(f"rank {os.environ['RANK']}: cannot meet the others at {place} ({text})")
    return TorchProcesses(*found[0], _timeout())


def _timeout() -> float:
    asked = os.environ.get("LMC_TIMEOUT")
    try:
        found = TIMEOUT if asked is None else float(asked)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise ArgumentError(f"LMC_TIMEOUT={asked!r}: must be a number of seconds, above 0")
    return found


def share_threads() -> None:
    """Give this process its part of the machine's cores: the launcher gives it one thread.

    `$LMC_THREADS` says otherwise.
    """
    if "LMC_THREADS" not in os.environ:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // here))
