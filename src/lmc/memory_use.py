"""How much memory the process has held, and how much is left."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import psutil

from lmc import control_group
from lmc.malloc import trim_free_memory


def restart_peak() -> None:
    """Let `peak` start anew, where the system can; free memory that malloc keeps goes back first."""
    trim_free_memory()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Bytes held at most since `restart_peak`, or since the process began.

    >>> peak() > 1 << 20
    True
    """
    held = _field(Path("/proc/self/status"), "VmHWM:", unit=1024)
    return _peak_of_the_process() if held is None else held


def now() -> int:
    """Bytes held now.

    >>> now() > 1 << 20
    True
    """
    return int(psutil.Process().memory_info().rss)


def anonymous() -> int:
    """Bytes held now without pages of files, which the system drops when it needs room.

    Where the system limits data, as it counts them: stacks of threads and the like are counted as a whole.

    >>> anonymous() > 1 << 20
    True
    """
    counted = "VmData:" if is_data_limited() else "RssAnon:"
    held = _field(Path("/proc/self/status"), counted, unit=1024)
    return now() if held is None else held


def is_data_limited() -> bool:
    """Whether the system limits data, addresses of which nothing is used yet included."""
    return _limit("RLIMIT_DATA") is not None


def free() -> int | None:
    """Bytes that the process may still take before something ends it; None where that is unknown.

    >>> free() is None or free() > 1 << 20
    True
    """
    known = [left for left in (_system(), _container(), _address_space()) if left is not None]
    return max(0, min(known)) if known else None


def most() -> int | None:
    """Bytes that the process could take if it were alone; None where that is unknown.

    >>> most() is None or most() >= free()
    True
    """
    limits = [*(group.most for group in control_group.groups())]
    limits += [limit for limit in map(_limit, ("RLIMIT_AS", "RLIMIT_DATA")) if limit is not None]
    with contextlib.suppress(OSError):
        limits.append(int(psutil.virtual_memory().total))
    return min(limits, default=None)


def _system() -> int | None:
    try:
        return int(psutil.virtual_memory().available)
    except OSError:  # no /proc
        return None


def _container() -> int | None:
    """The least that a control group leaves."""
    return min((group.most - group.held for group in control_group.groups()), default=None)


def _address_space() -> int | None:
    """The least that a limit of the process leaves: of all its addresses, or of its data."""
    most, of_data = _limit("RLIMIT_AS"), _limit("RLIMIT_DATA")
    left = [] if most is None else [most - int(psutil.Process().memory_info().vms)]
    if of_data is not None:
        left.append(of_data - (_field(Path("/proc/self/status"), "VmData:", unit=1024) or 0))
    return min(left, default=None)


def _limit(name: str) -> int | None:
    if os.name != "posix":
        return None
    import resource

    most = resource.getrlimit(getattr(resource, name))[0]
    return None if most == resource.RLIM_INFINITY else most


def _field(file: Path, name: str, unit: int = 1) -> int | None:
    """The number after a name, in a file of the system."""
    try:
        lines = file.read_text().splitlines()
        return unit * next(int(line.split()[1]) for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        return None


def _peak_of_the_process() -> int:
    """The peak since the process began, where the system cannot restart it."""
    if os.name != "posix":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
