"""Files and folders as arguments of commands."""

from __future__ import annotations

from pathlib import Path

import click

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


def free_folder(name: str) -> Path:
    """The first of runs/name, runs/name-2, runs/name-3, ... that is free."""
    number = 1
    while (folder := Path("runs") / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder
