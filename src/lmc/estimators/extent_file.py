"""A file of extents in several generations: what a checkpoint refers to is never written over.

An extent has as many slots as checkpoints are kept, and one more. The first write after a checkpoint goes to
the next slot in turn, later ones to the same, so that the slots of the checkpoints that are kept stay as they
are. A checkpoint holds a table: of every extent its slot, and the checksum of what is in it. Whatever a
process that was killed has left in other slots is never read.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.errors import RunError
from lmc.files import one_line

ALIGNMENT = 4096
_MOST_SLOTS = 1 << 16
_NEVER = -1  # the slot of an extent that was never written: it is zero


class DamagedHistoryError(RunError):
    """What is in a file is not what was written there."""


class ExtentFile:
    """Extents of given sizes; one that was never written is zero. Threads may work on different extents.

    Args:
        path: of the file, which appears with the first write.
        sizes: (extents,) bytes of each.
        slots: how often the file has room for each.

    Attributes:
        read_bytes: how many were read so far.
        written_bytes: how many were written so far.
    """

    def __init__(self, path: Path, sizes: NDArray[np.int64], slots: int) -> None:
        self.path, self.sizes = path, sizes
        self._most_slots = slots
        aligned = -(-sizes // ALIGNMENT) * ALIGNMENT
        self._starts, self._generation = np.cumsum(aligned) - aligned, int(aligned.sum())
        self._slot = np.full(len(sizes), _NEVER, dtype=np.int64)
        self._checksum = np.zeros(len(sizes), dtype=np.int64)
        self._is_kept = np.ones(len(sizes), dtype=np.bool_)
        self._is_checked = np.zeros(len(sizes), dtype=np.bool_)  # since it was written: once is enough
        self._descriptor: int | None = None
        self.read_bytes = self.written_bytes = 0

    def read(self, extent: int, into: memoryview) -> None:
        """Fill a buffer of the extent's size; RunError where that is not what was written."""
        if self._slot[extent] == _NEVER:
            into[:] = bytes(len(into))
            return
        try:
            done, start = 0, self._place(extent)
            while done < len(into):
                got = os.preadv(self._opened(), [into[done:]], start + done)
                if got == 0:
                    raise DamagedHistoryError(f"{self.path}: ends in the middle of extent {extent}")
                done += got
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read ({one_line(error)})") from None
        self.read_bytes += len(into)
        if not self._is_checked[extent] and zlib.crc32(into) != self._checksum[extent]:
            raise DamagedHistoryError(f"{self.path}: extent {extent} has changed since it was written")
        self._is_checked[extent] = True

    def write(self, extent: int, content: memoryview) -> None:
        """Write all of an extent, beside what checkpoints refer to; RunError where that cannot be done."""
        if self._is_kept[extent]:
            self._slot[extent] = (self._slot[extent] + 1) % self._most_slots
            self._is_kept[extent] = False
        self._checksum[extent], self._is_checked[extent] = zlib.crc32(content), False
        try:
            done, start = 0, self._place(extent)
            while done < len(content):
                done += os.pwritev(self._opened(), [content[done:]], start + done)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written to ({one_line(error)})") from None
        self.written_bytes += len(content)

    def _place(self, extent: int) -> int:
        return int(self._slot[extent]) * self._generation + int(self._starts[extent])

    def _opened(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                os.close(opened)
                raise OSError("not a regular file")
            self._descriptor = opened
        return self._descriptor

    # -- checkpoints -----------------------------------------------------------------------------------

    def table(self) -> Tensor:
        """(extents, 2) int64: slots and checksums, for a checkpoint; the disk has confirmed the rest."""
        if self._descriptor is not None:
            try:
                os.fsync(self._descriptor)
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
            self.read(extent, buffer[:size])

    # -- its name --------------------------------------------------------------------------------------

    def move(self, path: Path) -> None:
        """Give the file another name, now or when it appears."""
        if self._descriptor is not None:
            os.replace(self.path, path)
        self.path = path

    def leave(self, path: Path) -> None:
        """Remove the file, if there is one, and go on with another."""
        if self._descriptor is not None:
            self.close()
            self.path.unlink(missing_ok=True)
        self.path = path

    def close(self) -> None:
        """Let the file go; it is opened again when it is needed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
