"""Rows of a file, each read by a call to the system of its own: without Python, that is a memory copy."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from lmc.kernels import parallel
from lmc.kernels.compilation import loop

_pread: Any = types.ExternalFunction("pread", types.int64(types.int32, types.uintp, types.uintp, types.int64))
_AT_ONCE = 64
"""Bytes of a row that count as one entry of work: a call to the system costs as much as many of them."""


@loop
def _read_rows(start: Any, stop: Any, file: Any, offsets: Any, out: Any, failed: Any) -> None:
    size = out.shape[1]
    for i in range(start, stop):
        if offsets[i] < 0:
            out[i] = 0
            continue
        done = 0
        while done < size:
            at = out.ctypes.data + i * size + done
            got = _pread(np.int32(file), at, np.uint64(size - done), np.int64(offsets[i] + done))
            if got <= 0:
                failed[0] = i
                return
            done += got


def read_rows(file: int, offsets: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Fill (rows, bytes) with what a file holds from each offset on; zeros where an offset is below zero.

    Raises:
        OSError: where a row cannot be read.
        EOFError: where the file ends before one does.
    """
    failed = np.full(1, -1)
    parallel.over(len(out), out.size // _AT_ONCE, _read_rows, file, offsets, out, failed)
    if (row := int(failed[0])) >= 0:
        os.pread(file, out.shape[1], int(offsets[row]))  # says why, unless there is nothing to read
        raise EOFError
