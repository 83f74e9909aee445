"""A file of extents in several generations: what a checkpoint refers to is never written over.

An extent has as many slots as checkpoints are kept, and one more. The first write after a checkpoint goes to
the next slot in turn, later ones to the same, so that the slots of the checkpoints that are kept stay as they
are. A checkpoint holds a table: of every extent its slot, and the checksum of what is in it. Whatever a
process that was killed has left in other slots is never read.
"""

from __future__ import annotations

import os
import stat
import threading
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.errors import RunError
from lmc.files import one_line

ALIGNMENT = 4096
_MOST_SLOTS = 1 << 16
_MOST_BUFFERS = 1024  # of one call to the system
_NEVER = -1  # the slot of an extent that was never written: it is zero


class DamagedHistoryError(RunError):
    """What is in a file is not what was written there."""


class _Opened:
    """A file, opened when it is needed. Until it has a name it goes when it is let go."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_named = path, False
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    @property
    def is_there(self) -> bool:
        return self._descriptor is not None

    def descriptor(self) -> int:
        with self._lock:
            if self._descriptor is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    os.close(opened)
                    raise OSError("not a regular file")
                self._descriptor = opened
            return self._descriptor

    def move(self, path: Path) -> None:
        with self._lock:
            if self._descriptor is not None:
                os.replace(self.path, path)
            self.path, self.is_named = path, True

    def let_go(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            if not self.is_named:
                self.path.unlink(missing_ok=True)


class ExtentFile:
    """Extents of given sizes; one that was never written is zero. Threads may work on different extents.

    Args:
        path: of the file, which appears with the first write, and goes with this object until it has a name.
        sizes: (extents,) bytes of each.
        slots: how often the file has room for each.

    Attributes:
        read_bytes: how many were read so far.
        written_bytes: how many were written so far.
    """

    def __init__(self, path: Path, sizes: NDArray[np.int64], slots: int) -> None:
        self.sizes, self._most_slots = sizes, slots
        aligned = -(-sizes // ALIGNMENT) * ALIGNMENT
        self._starts, self._generation = np.cumsum(aligned) - aligned, int(aligned.sum())
        self._slot = np.full(len(sizes), _NEVER, dtype=np.int64)
        self._checksum = np.zeros(len(sizes), dtype=np.int64)
        self._is_kept = np.ones(len(sizes), dtype=np.bool_)
        self._is_checked = np.zeros(len(sizes), dtype=np.bool_)  # since it was written: once is enough
        self._file = _Opened(path)
        # Not before the last thread is done that writes to it: another file would have the descriptor then.
        weakref.finalize(self, self._file.let_go)
        self.read_bytes = self.written_bytes = 0

    @property
    def path(self) -> Path:
        """Where it is, or will be."""
        return self._file.path

    def read(self, extent: int, into: list[memoryview]) -> None:
        """Fill buffers of the extent's size in all; RunError where that is not what was written."""
        if self._slot[extent] == _NEVER:
            for buffer in into:
                buffer[:] = bytes(len(buffer))
            return
        try:
            start = self._place(extent)
            for some in _at_once(into):
                while some:
                    got = os.preadv(self._file.descriptor(), some, start)
                    if got == 0:
                        raise DamagedHistoryError(f"{self.path}: ends in the middle of extent {extent}")
                    start, some = start + got, _rest(some, got)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read ({one_line(error)})") from None
        self.read_bytes += int(self.sizes[extent])
        if not self._is_checked[extent] and _checksum(into) != self._checksum[extent]:
            raise DamagedHistoryError(f"{self.path}: extent {extent} has changed since it was written")
        self._is_checked[extent] = True

    def read_rows(self, extents: NDArray[np.int64], rows: NDArray[np.int64], into: NDArray[np.uint8]) -> None:
        """Fill (rows, bytes) with rows of extents, each read on its own; RunError where that fails."""
        from lmc.kernels.file_rows import read_rows  # which compiles

        slot, size = self._slot[extents], into.shape[1]
        offsets = slot * self._generation + self._starts[extents] + rows * size
        offsets[slot == _NEVER] = _NEVER
        try:
            read_rows(self._file.descriptor(), offsets, into)
        except EOFError:
            raise DamagedHistoryError(f"{self.path}: ends before its last extent") from None
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read ({one_line(error)})") from None
        self.read_bytes += int((slot != _NEVER).sum()) * size

    def write(self, extent: int, content: list[memoryview]) -> None:
        """Write all of an extent, beside what checkpoints refer to; RunError where that cannot be done."""
        if self._is_kept[extent]:
            self._slot[extent] = (self._slot[extent] + 1) % self._most_slots
            self._is_kept[extent] = False
        self._checksum[extent], self._is_checked[extent] = _checksum(content), False
        try:
            start = self._place(extent)
            for some in _at_once(content):
                while some:
                    done = os.pwritev(self._file.descriptor(), some, start)
                    start, some = start + done, _rest(some, done)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written to ({one_line(error)})") from None
        self.written_bytes += int(self.sizes[extent])

    def _place(self, extent: int) -> int:
        return int(self._slot[extent]) * self._generation + int(self._starts[extent])

    # -- checkpoints -----------------------------------------------------------------------------------

    def table(self) -> Tensor:
        """(extents, 2) int64: slots and checksums, for a checkpoint; the disk has confirmed the rest."""
        if self._file.is_there:
            try:
                os.fsync(self._file.descriptor())
            except OSError as error:
                raise RunError(f"{self.path}: cannot be written to ({one_line(error)})") from None
        return torch.from_numpy(np.stack([self._slot, self._checksum], axis=1))

    def keep(self) -> None:
        """From now on, leave what the last table refers to as it is: there is a checkpoint of it."""
        self._is_kept[:] = True

    def take_table(self, table: Tensor) -> None:
        """Go on from a table; ValueError where it is none, DamagedHistoryError where a byte has changed."""
        slots, checksums = table.numpy().T.copy()
        if len(slots) and not _NEVER <= slots.min() <= slots.max() < _MOST_SLOTS:
            raise ValueError(f"a history has slots from {slots.min()} to {slots.max()}")
        self._slot, self._checksum = slots, checksums
        self._is_checked[:] = False
        self.keep()
        buffer = memoryview(bytearray(int(self.sizes.max(initial=0))))
        for extent, size in enumerate(self.sizes.tolist()):
            self.read(extent, [buffer[:size]])

    # -- its name --------------------------------------------------------------------------------------

    def name(self, path: Path) -> None:
        """Give the file its name, now or when it appears."""
        if not self._file.is_named:
            self._file.move(path)

    def leave(self, path: Path) -> None:
        """Go on with the file of this name, and remove the one without."""
        if not self._file.is_named:
            self._file.let_go()
            self._file.move(path)


def _checksum(content: list[memoryview]) -> int:
    found = 0
    for buffer in content:
        found = zlib.crc32(buffer, found)
    return found


def _at_once(buffers: list[memoryview]) -> Iterator[list[memoryview]]:
    """As many of the buffers at a time as a call to the system takes."""
    for first in range(0, len(buffers), _MOST_BUFFERS):
        yield buffers[first : first + _MOST_BUFFERS]


def _rest(buffers: list[memoryview], done: int) -> list[memoryview]:
    """What remains of buffers of which so many bytes are done.

    >>> [bytes(each) for each in _rest([memoryview(b"ab"), memoryview(b"cd")], 3)]
    [b'd']
    """
    while buffers and done >= len(buffers[0]):
        done -= len(buffers[0])
        buffers = buffers[1:]
    return [buffers[0][done:], *buffers[1:]] if buffers else []
