"""Files and folders as arguments of commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
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


def made_folder(asked: Path | None, name: str) -> Path:
    """The folder that was asked for, or else the first of runs/name, runs/name-2, ... that is free.

    It is made, so that nobody else takes it, and goes with the command if nothing was written to it.
    """
    folders = [asked] if asked else (Path("runs") / f"{name}{ending}" for ending in _endings())
    for folder in folders:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=folder == asked)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"{folder}: cannot be made ({error.strerror}); --out names another") from None
        click.get_current_context().call_on_close(partial(_remove_if_empty, missing))
        return folder
    raise RunError(f"{asked}: is a file; --out names another")


def _endings() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in count(2))


def _remove_if_empty(folders: list[Path]) -> None:
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
