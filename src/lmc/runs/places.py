"""Folders that results go into: what others have put there stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lmc.errors import ArgumentError

METRICS, LOCK = "metrics.jsonl", "lock"
"""Of a run: a line for each epoch; what says that a process has the folder, or had it."""


def check_unused(folder: Path, written: Sequence[str], mark: str, by: str) -> None:
    """Raise ArgumentError where a folder holds a file of others that would be replaced.

    Args:
        folder: which may be missing.
        written: names of files.
        mark: of what is in every folder of this kind; where it is, files are ours.
        by: what would replace them.
    """
    there = [name for name in written if (folder / name).exists()]
    if there and not any(folder.glob(mark)):
        rule = f"which {by} would replace; choose another folder"
        raise ArgumentError(f"{folder}: holds {there[0]!r}, {rule}")


def check_holds_no_run(folder: Path) -> None:
    """Raise ArgumentError where there is a run in a folder that is to hold folders of runs."""
    if (folder / METRICS).exists():
        raise ArgumentError(f"{folder}: holds a run; choose another folder")
