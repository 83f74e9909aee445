"""Large buffers that the process keeps, instead of having them faulted in anew at every step."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # of malloc.h
LARGE = 1 << 20
"""Bytes of a buffer that goes back at once, where memory is short: smaller ones leave small gaps."""

_kept_short = 0  # how many contexts of `short_of_memory` are open


def keep_large_buffers() -> bool:
    """Tell glibc's malloc to reuse large blocks; True where that worked. `LMC_MALLOC=0` forbids it.

    By default every buffer above 32 MB comes fresh from the kernel, page by page, which takes several
    times as long as filling it once it is there.
    """
    if os.environ.get("LMC_MALLOC") == "0" or _kept_short:
        return False
    return _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1})


@contextmanager
def short_of_memory() -> Iterator[None]:
    """In this context nothing is kept: the process holds what is in use, and little more.

    Blocks that are reused lie among each other, and no two batches are of the same size: what lies free
    between them grows from step to step, by no bound that anybody knows.
    """
    global _kept_short
    _kept_short += 1
    try:
        trim_free_memory()
        _mallopt({_M_MMAP_THRESHOLD: LARGE, _M_MMAP_MAX: 1 << 16, _M_TRIM_THRESHOLD: LARGE})
        yield
    finally:
        _kept_short -= 1
        keep_large_buffers()


def give_back_large_buffers() -> bool:
    """Tell malloc the opposite, so that the process holds only what is in use: slow, for measuring memory."""
    return _mallopt({_M_MMAP_THRESHOLD: 1 << 16})


def trim_free_memory() -> None:
    """Give back once what is free, where malloc can."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _mallopt(settings: dict[int, int]) -> bool:
    mallopt = _of_glibc("mallopt")
    return mallopt is not None and all(mallopt(name, value) for name, value in settings.items())


def _of_glibc(function: str) -> Any:
    """A function of glibc's malloc, or None with another C library."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), function)
    except (OSError, AttributeError):
        return None
