"""Values out of files and settings: each is of its annotated type, or one line says where it is not."""

from __future__ import annotations

import sys
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lmc.checks import Failing, shown
from lmc.errors import ArgumentError

_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false", Path: "a path"}


def read(name: str, value: Any, hint: Any, failing: Failing = ArgumentError) -> Any:
    """The value as its annotation says, or an error with name, value and rule.

    Args:
        name: of the value; an error inside of it adds the path from there.
        value: of JSON or TOML.
        hint: `int`, `float`, `str`, `bool`, `None`, `Path`, `Any`, a dataclass, a `Literal`, or a union,
            `list[...]`, `tuple[..., ...]` or `dict[str, ...]` of these. A table becomes the dataclass; keys
            that it does not have are ignored, since a file may be of another version.
        failing: makes the error.

    >>> read("lr", 1, float | None), read("widths", [8, 16], list[int])
    (1, [8, 16])
    >>> read("widths", [8, "16"], int | list[int])
    Traceback (most recent call last):
    lmc.errors.ArgumentError: widths[1]='16': must be an integer
    """
    if not _is_a(value, hint):
        place = f"{name}=" if name else ""
        raise failing(f"{place}{shown(value)}: must be {described(hint)}")
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return read(name, value, next(each for each in get_args(hint) if _is_a(value, each)), failing)
    if origin in (list, tuple):
        inner = get_args(hint)[0]
        return origin(read(f"{name}[{place}]", each, inner, failing) for place, each in enumerate(value))
    if origin is dict:
        inner = get_args(hint)[1]
        return {key: read(_inside(name, key), each, inner, failing) for key, each in value.items()}
    return _built(name, value, hint, failing) if is_dataclass(hint) else value


def described(hint: Any) -> str:
    """What a value must be, without saying that it may be None.

    >>> described(int | list[int] | None), described(Literal["zero", "exact"])
    ('an integer or a list', 'one of zero, exact')
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(filter(None, map(described, get_args(hint)))))
    if origin is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if origin in (list, tuple):
        return "a list"
    if origin is dict or is_dataclass(hint):
        return "a table"
    return _NAMES.get(hint, "")


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value itself is of a type; `read` looks at what is inside of it."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_is_a(value, each) for each in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin in (list, tuple):
        return isinstance(value, list)
    if origin is dict or is_dataclass(hint):
        return isinstance(value, dict)
    if hint is float:  # an integer in a file may be too large for a float
        return isinstance(value, float) or (_is_a(value, int) and abs(value) <= sys.float_info.max)
    if hint is int:  # Python counts True and False as integers
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (None, NoneType):
        return value is None
    return hint is Any or (isinstance(hint, type) and isinstance(value, hint))


def _built(name: str, table: dict[str, Any], kind: Any, failing: Failing) -> Any:
    hints = _hints_of(kind)
    found = {}
    for field in fields(kind):
        place, hint = _inside(name, field.name), hints[field.name]
        if field.name in table:
            found[field.name] = read(place, table[field.name], hint, failing)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise failing(f"{place}: is missing; must be {described(hint)}")
    return kind(**found)


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _inside(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
