"""The memory that control groups leave to this process, in both versions of Linux's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
_NO_LIMIT = 1 << 60
"""From here on a number stands for none: the first version has no word for it."""


class Group(NamedTuple):
    """A group with a limit.

    Attributes:
        most: bytes that it may hold.
        held: bytes that it holds, pages of files left out, which the system drops when it needs room.
    """

    most: int
    held: int


class _Files(NamedTuple):
    """Names that a version has."""

    most: str
    held: str
    of_files: str


_FIRST = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
_SECOND = _Files("memory.max", "memory.current", "file")


def groups() -> list[Group]:
    """All groups with a limit that the process is in: its own and those around it."""
    found = []
    for folder, files in _folders():
        most, held = _number(folder / files.most), _number(folder / files.held)
        if most is not None and held is not None and most < _NO_LIMIT:
            found.append(Group(most, held - _stat(folder, files.of_files)))
    return found


def _folders() -> Iterator[tuple[Path, _Files]]:
    """The folders of the process's groups, from its own to the outermost."""
    yield ROOT, _SECOND  # a container sees its own group there
    yield ROOT / "memory", _FIRST
    try:
        lines = MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        is_second = number == "0" and not controllers
        if not is_second and "memory" not in controllers.split(","):
            continue
        top = ROOT if is_second else ROOT / "memory"
        inner = Path(path.lstrip("/"))
        for depth in range(len(inner.parts), 0, -1):
            yield top.joinpath(*inner.parts[:depth]), _SECOND if is_second else _FIRST


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None


def _stat(folder: Path, name: str) -> int:
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)
