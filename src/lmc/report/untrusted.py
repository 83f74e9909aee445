"""Values out of files that anyone may have written: each is of its type, or the error says where not."""

from __future__ import annotations

import json
import reprlib
import sys
from pathlib import Path
from typing import Any

from lmc.errors import RunError
from lmc.files import one_line, read_text_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Record = dict[str, Any]


def content(file: Path) -> bytes:
    """The bytes of a file; else RunError."""
    try:
        return read_text_bytes(file)
    except OSError as error:
        raise RunError(f"{file}: cannot be read ({one_line(error)})") from None


def json_record(where: str, text: bytes) -> Record:
    """A JSON object; else RunError.

    >>> json_record("a.json", b'{"epoch": 1}')
    {'epoch': 1}
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: not JSON ({one_line(error)})") from None
    if not isinstance(value, dict):
        raise RunError(f"{where}: {reprlib.repr(value)}: must be a JSON object")
    return value


def toml_record(where: str, text: bytes) -> Record:
    """A TOML document; else RunError.

    >>> toml_record("a.toml", b"parts = 80")
    {'parts': 80}
    """
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where}: not TOML ({one_line(error)})") from None


def number(where: str, record: Record, key: str) -> float | None:
    """A number, not finite ones included, or None where it is null or missing.

    >>> number("a.json", {"loss": 1}, "loss")
    1.0
    """
    value = record.get(key)
    if value is None or isinstance(value, float):
        return value
    # A boolean is an int to Python, and an integer of JSON may be too large for a float.
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > sys.float_info.max:
        raise RunError(f"{where}: {key}={reprlib.repr(value)}: must be a number or null")
    return float(value)


def whole(where: str, record: Record, key: str, least: int) -> int:
    """An integer, `least` or more; else RunError."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise RunError(f"{where}: {key}={reprlib.repr(value)}: must be an integer, {least} or more")
    return value


def text(where: str, record: Record, key: str) -> str | None:
    """A string, or None where it is null or missing."""
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise RunError(f"{where}: {key}={reprlib.repr(value)}: must be a string or null")
    return value


def table(where: str, record: Record, key: str) -> Record:
    """A table of values, empty where it is null or missing."""
    value = record.get(key)
    if value is not None and not isinstance(value, dict):
        raise RunError(f"{where}: {key}={reprlib.repr(value)}: must be a table or null")
    return value or {}
