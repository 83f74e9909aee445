"""How loops are compiled, and where what was compiled is kept."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event

from lmc.files import cache_folder

Loop = TypeVar("Loop", bound=Callable[..., Any])


def loop(function: Loop) -> Loop:
    """The function, compiled when first called; it holds no lock, and sums in the order it is written in."""
    fastmath = {"contract", "nsz"}
    compile_it: Any = numba.njit(nogil=True, cache=True, boundscheck=False, fastmath=fastmath)
    compiled: Loop = compile_it(function)
    return compiled


class _Compilations(event.Listener):
    """Says, once, why the first step takes longer, and takes the time; what is in the cache is not compiled.

    Numba compiles one loop at a time, whatever the number of threads; within it, loops that it calls.
    """

    def __init__(self) -> None:
        self._depth, self._began, self._before = 0, 0.0, 0.0
        self._lock = threading.Lock()

    def on_start(self, event: Any) -> None:
        with self._lock:
            if self._depth == 0:
                self._began = time.perf_counter()
            self._depth += 1
        if event.data["dispatcher"].py_func.__module__.startswith("lmc."):
            _say_it()

    def on_end(self, event: Any) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._before += time.perf_counter() - self._began

    def seconds(self) -> float:
        """So far, what is under way included."""
        with self._lock:
            return self._before + (time.perf_counter() - self._began if self._depth else 0.0)


COMPILATIONS = _Compilations()


@cache
def _say_it() -> None:
    print(f"lmc: compiling kernels, once; kept in {numba.config.CACHE_DIR}", file=sys.stderr)  # type: ignore[attr-defined]


def _prepare() -> None:
    """Give numba a folder for compiled kernels that can be written, whatever is read-only."""
    if not os.environ.get("NUMBA_CACHE_DIR"):
        numba.config.CACHE_DIR = str(_writable(cache_folder() / "kernels"))  # type: ignore[attr-defined]
    event.register("numba:compile", COMPILATIONS)  # type: ignore[no-untyped-call]


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lmc-kernels-"))


_prepare()
