"""Files and folders as arguments of commands."""

from __future__ import annotations

import atexit
import shlex
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import click

from lmc.errors import ArgumentError, RunError


class _Named(click.Path):
    """A path with a name: click would take an empty one for the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does, for what can be a path."""
        if not str(value) or "\0" in str(value):
            self.fail(f"{str(value)!r}: must be a path", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = _Named(path_type=Path, file_okay=False)
FILE = _Named(path_type=Path, dir_okay=False)


def as_typed(path: Path) -> str:
    """A path as a shell takes it, within a command that is suggested.

    >>> as_typed(Path("my graph"))
    "'my graph'"
    """
    return shlex.quote(str(path))


HEADER = "graph.json"  # of the folder of a graph; its module loads numpy


def refuse_graph(folder: Path) -> None:
    """Raise ArgumentError where a folder for a new graph holds one."""
    if (folder / HEADER).exists():
        raise ArgumentError(f"{folder}: holds a graph already; remove it, or choose another folder")


def free_folder(name: str) -> Path:
    """The first of runs/name, runs/name-2, runs/name-3, ... that is free; made, so that nobody else takes it.

    It goes with the process if nothing was written to it.
    """
    for number in count(1):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"{folder}: cannot be made ({error.strerror}); --out names another") from None
        atexit.register(_remove_if_empty, folder)
        break
    return folder


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()
