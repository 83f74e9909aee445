"""What a run or a benchmark was made with and on."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Versions, machine, and the commit of the working folder."""
    from lmc import __version__

    return {
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "lmc": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numba": version("numba"),
        "platform": platform.platform(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _commit() -> str | None:
    """The commit of the working folder, where it is one of git."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None
