"""How loops are compiled, and where what was compiled is kept."""

from __future__ import annotations

import os
import sys
import tempfile
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


class _Announce(event.Listener):
    """Says, once, why the first step takes longer; what is found in the cache is not compiled."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("lmc."):
            _say_it()

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


@cache
def _say_it() -> None:
    print(f"lmc: compiling kernels, once; kept in {numba.config.CACHE_DIR}", file=sys.stderr)  # type: ignore[attr-defined]


def _prepare() -> None:
    """Give numba a folder for compiled kernels that can be written, whatever is read-only."""
    if not os.environ.get("NUMBA_CACHE_DIR"):
        numba.config.CACHE_DIR = str(_writable(cache_folder() / "kernels"))  # type: ignore[attr-defined]
    event.register("numba:compile", _Announce())  # type: ignore[no-untyped-call]


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lmc-kernels-"))


_prepare()
