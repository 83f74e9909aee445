"""How much memory the process has held."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from lmc.kernels.memory import trim_free_memory

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def restart_peak() -> None:
    """Let `peak` start anew, where the system can; free memory that malloc keeps goes back first."""
    trim_free_memory()
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


def peak() -> int:
    """Bytes held at most since `restart_peak`, or since the process began.

    >>> peak() > 1 << 20
    True
    """
    return _resident("VmHWM")


def now() -> int:
    """Bytes held now; where that is unknown, at most so far."""
    return _resident("VmRSS")


def _resident(field: str) -> int:
    try:
        lines = _STATUS.read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
    except (OSError, StopIteration):
        return _most_ever()


def _most_ever() -> int:
    if os.name != "posix":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
