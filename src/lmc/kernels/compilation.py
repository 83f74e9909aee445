"""Where compiled kernels are kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numba

from lmc.files import cache_folder


def prepare() -> None:
    """Give numba a folder for compiled kernels that can be written, whatever is read-only."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        numba.config.CACHE_DIR = str(_writable(cache_folder() / "kernels"))  # type: ignore[attr-defined]


def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lmc-kernels-"))
