"""Large buffers that the process keeps, instead of having them faulted in anew at every step."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # of malloc.h


@cache
def keep_large_buffers() -> bool:
    """Tell glibc's malloc to reuse large blocks; True where that worked. `LMC_MALLOC=0` forbids it.

    By default every buffer above 32 MB comes fresh from the kernel, page by page, which takes several
    times as long as filling it once it is there.
    """
    if os.environ.get("LMC_MALLOC") == "0":
        return False
    return _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1})


def give_back_large_buffers() -> bool:
    """Tell it the opposite, so that the process holds what is in use: slow, to measure memory."""
    return _mallopt({_M_MMAP_THRESHOLD: 1 << 16})


def _mallopt(settings: dict[int, int]) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all(mallopt(name, value) for name, value in settings.items())
