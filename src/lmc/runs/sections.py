"""The entries of a section, checked against the signature of what they set."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

from lmc import checks, typed
from lmc.errors import ArgumentError

Settings = dict[str, Any]
"""The entries of one section."""

IN_MEMORY = "in memory"
"""What stands for an object that a script gave, which no text can say."""


def in_memory(what: object) -> str:
    """What stands for an object in settings.

    >>> in_memory("GNN")
    'in memory: GNN'
    """
    return f"{IN_MEMORY}: {what}"


def is_in_memory(value: object) -> bool:
    """Whether a value stands for an object.

    >>> is_in_memory(in_memory("GNN")), is_in_memory("gcn")
    (True, False)
    """
    return isinstance(value, str) and value.startswith(IN_MEMORY)


def defaults(parameters: Mapping[str, inspect.Parameter]) -> Settings:
    """What is taken where nothing is said, as far as a file can say it."""
    plain = (bool, int, float, str)
    return {name: taken.default for name, taken in parameters.items() if isinstance(taken.default, plain)}


def check_objects(section: str, settings: Settings) -> None:
    """Raise ArgumentError for an entry that stands for an object."""
    rule = "--data names a graph" if section == "data" else "only lmc.fit with the same one can go on"
    for key, value in settings.items():
        if is_in_memory(value):
            what = "was an object of a script, which settings cannot say"
            raise ArgumentError(f"{section}.{key}={value!r}: {what}; {rule}")


def check_section(section: str, settings: Settings, of: Callable[..., Any], known: Collection[str]) -> None:
    """Every name and every type; ranges are checked by what is built."""
    check_objects(section, settings)
    hints = get_type_hints(of.__init__ if inspect.isclass(of) else of)
    for key, value in settings.items():
        if key == "name" and section != "training":
            continue
        owner = settings.get("name") if section in ("model", "method") else None
        checks.one_of(f"{section}: setting" if owner is None else f"{section} {owner}: setting", key, known)
        typed.read(f"{section}.{key}", value, hints[key])
