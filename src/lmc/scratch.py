"""Matrices on disk for as long as a process reads them: written in pieces, read through a map.

Pages of a file are not memory that a process holds: the system drops them when it needs room. What is written
goes by plain writes; a map would hold every page that it has changed.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lmc.errors import LMCError
from lmc.files import one_line


class ScratchMatrix:
    """(rows, ...) numbers in a file without a name, which goes with the last tensor that reads it.

    Args:
        folder: where there is room.
        shape: of the matrix.
        dtype: of its numbers.

    Raises:
        LMCError: the disk has no room for it.

    >>> matrix = ScratchMatrix(Path(tempfile.gettempdir()), (3, 2), torch.float32)
    >>> matrix[1:3] = torch.ones(2, 2)
    >>> matrix.values.tolist()
    [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._folder = folder
        self._row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        size = self._row_bytes * shape[0]
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
            _reserve(self._file.fileno(), max(size, 1))  # there are no maps of nothing
            mapped = np.memmap(self._file, np.uint8, "r+", shape=(max(size, 1),))
        except OSError as error:
            raise self._failed(error) from None
        self.values: Tensor = torch.from_numpy(mapped)[:size].view(dtype).view(shape)

    def __setitem__(self, part: slice, rows: Tensor) -> None:
        """Write consecutive rows."""
        start, stop, _ = part.indices(len(self.values))
        if rows.numel() == 0:
            return
        content = rows.detach().to(self.values.dtype).contiguous().view(-1).view(torch.uint8).numpy().data
        at, end = start * self._row_bytes, stop * self._row_bytes
        assert len(content) == end - at
        try:
            while at < end:
                self._file.seek(at)
                at += self._file.write(content[len(content) - (end - at) :])
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> LMCError:
        return LMCError(
            f"{self._folder}: cannot be written ({one_line(error)}); $LMC_SCRATCH names another folder"
        )


def _reserve(file: int, size: int) -> None:
    """Make a file so large; OSError now where there is no room, and not in the middle, if the system can."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


def scratch_folder(beside: Path) -> Path:
    """`$LMC_SCRATCH`, or else a folder that can be written: this one, or that of temporary files."""
    if own := os.environ.get("LMC_SCRATCH"):
        return Path(own)
    return beside if os.access(beside, os.W_OK) else Path(tempfile.gettempdir())
