"""What an argument must be: each check gives the value back, or raises one line with name, value and rule."""

from __future__ import annotations

import difflib
import operator
import re
import reprlib
from collections.abc import Callable, Sequence
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from lmc.errors import ArgumentError

Failing = Callable[[str], Exception]
"""Makes an error from its one line: an error class, or a function that adds the name of the file."""

MOST_WHOLE = 2**63 - 1
"""The largest integer in 64 bits."""
MOST_REAL = 3e38
"""About the largest number in float32."""


def whole_number(
    name: str, value: Any, least: int, most: int = MOST_WHOLE, failing: Failing = ArgumentError
) -> int:
    """An integer in least .. most, of any type that counts as one; otherwise raises what `failing` makes.

    >>> whole_number("parts", True, 1)
    Traceback (most recent call last):
    lmc.errors.ArgumentError: parts=True: must be an integer
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise failing(f"{name}={shown(value)}: must be an integer")
    if not least <= number <= most:
        rule = f"{least} or more" if number < least else f"at most {most}"
        raise failing(f"{name}={shown(number)}: must be {rule}")
    return number


def real_number(
    name: str, value: Any, least: float, most: float = MOST_REAL, failing: Failing = ArgumentError
) -> float:
    """A number in least .. most, of any type that counts as one; otherwise raises what `failing` makes."""
    if value != value:
        raise failing(f"{name}={shown(value)}: must be a number")
    number = real(name, value, failing)  # an integer may be longer than any float, and still be compared
    if not least <= number <= most:
        rule = f"{least:g} or more" if number < least else f"at most {most:g}"
        raise failing(f"{name}={shown(value)}: must be {rule}")
    return float(number)


def real(name: str, value: Any, failing: Failing = ArgumentError) -> Any:
    """The value itself, if it is of a type that counts as a number; otherwise raises what `failing` makes."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise failing(f"{name}={shown(value)}: must be a number")
    return value


def truth(name: str, value: Any) -> bool:
    """True or False; otherwise raises ArgumentError: of a word such as "no" Python would make True.

    >>> truth("fixed", "no")
    Traceback (most recent call last):
    lmc.errors.ArgumentError: fixed='no': must be True or False
    """
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}={shown(value)}: must be True or False")
    return value


def path(name: str, value: Any) -> Path:
    """A path that can be that of a file or a folder; otherwise raises ArgumentError.

    >>> path("out", "runs/a").name
    'a'
    >>> path("out", "")
    Traceback (most recent call last):
    lmc.errors.ArgumentError: out='': must be a path
    """
    if not isinstance(value, (str, PathLike)) or not str(value) or "\0" in str(value):
        raise ArgumentError(f"{name}={shown(value)}: must be a path")
    return Path(value)


def sequence(name: str, values: Any) -> Sequence[Any]:
    """A list or a tuple, or a list of one string; otherwise raises ArgumentError.

    >>> sequence("metrics", "macro_f1")
    ['macro_f1']
    """
    if isinstance(values, str):
        return [values]
    if not isinstance(values, (list, tuple)):
        raise ArgumentError(f"{name}={shown(values)}: must be a list")
    return values


def shown(value: Any) -> str:
    """A value, shortened to a part of one line."""
    return " ".join(reprlib.repr(value).split())


def one_of(name: str, value: Any, allowed: Any) -> str:
    """One of the strings of a Literal or a collection; otherwise ArgumentError, with the nearest one."""
    names = list(get_args(allowed) or allowed)
    if isinstance(value, str) and value in names:
        return value
    near = difflib.get_close_matches(str(value).lower(), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ArgumentError(f"{name}={shown(value)}: must be one of {', '.join(names)}{hint}")


def byte_count(name: str, value: Any) -> int:
    """Bytes: a whole number of them, or a text with a unit.

    >>> byte_count("memory", "2GB"), byte_count("memory", "1.5 MiB"), byte_count("memory", 4096)
    (2000000000, 1572864, 4096)
    >>> byte_count("memory", "much")
    Traceback (most recent call last):
    lmc.errors.ArgumentError: memory='much': must be bytes, such as '256MB' or '2GB'
    """
    if not isinstance(value, str):
        return whole_number(name, value, 0)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", value.strip().lower())
    if found is None:
        raise ArgumentError(f"{name}={shown(value)}: must be bytes, such as '256MB' or '2GB'")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2] or " "))


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "node"), counted(1200, "node"), counted(3, "class")
    ('1 node', '1,200 nodes', '3 classes')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
