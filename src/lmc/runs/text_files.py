"""Text files of a run, which anyone may have written: what is wrong is one line that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmc.checks import Failing
from lmc.errors import RunError
from lmc.files import one_line, read_text_bytes


def in_file(where: str) -> Failing:
    """Makes errors that name the file, or the line of it, that is wrong."""
    return lambda line: RunError(f"{where}: {line}")


def content_of(file: Path) -> bytes:
    """The bytes of a file; RunError where it cannot be read."""
    try:
        return read_text_bytes(file)
    except OSError as error:
        raise RunError(f"{file}: cannot be read ({one_line(error)})") from None


def json_of(where: str, text: bytes) -> Any:
    """The value of a JSON text; RunError where it is not one.

    >>> json_of("a.json", b'{"epoch": 1}')
    {'epoch': 1}
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: not JSON ({one_line(error)})") from None
