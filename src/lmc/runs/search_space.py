"""Which settings a search tries: ranges and choices by the place of the setting, such as `training.lr`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lmc import checks
from lmc.errors import ArgumentError
from lmc.runs.config import Config, merged, parse_setting
from lmc.runs.sections import Settings

Value = bool | int | float | str

EXAMPLES = "training.lr=log:1e-4:1e-1, model.dropout=0:0.8 or model.hidden=32,64,128"
# What is tried where nothing is said: what depends most on the graph.
DEFAULT_SPACE = {
    "training.lr": "log:1e-3:1e-1",
    "training.weight_decay": "log:1e-6:1e-2",
    "model.hidden": "32,64,128,256",
    "model.dropout": "0:0.8",
}


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; `log` tries every decade as often."""

    low: float
    high: float
    log: bool
    whole: bool


@dataclass(frozen=True)
class Choices:
    """A few values without an order."""

    values: tuple[Value, ...]


def parse_range(place: str, text: str) -> Range | Choices:
    """`low:high`, `log:low:high`, or values between commas; two integers make a range of integers.

    >>> parse_range("training.lr", "log:1e-4:0.1")
    Range(low=0.0001, high=0.1, log=True, whole=False)
    >>> parse_range("model.layers", "2:4"), parse_range("model.norm", "batch,layer")
    (Range(low=2, high=4, log=False, whole=True), Choices(values=('batch', 'layer')))
    """
    kind, colon, rest = text.partition(":")
    log = bool(colon) and kind.strip() == "log"
    low, colon, high = (rest if log else text).partition(":")
    if not colon:
        values = tuple(_value(place, each) for each in text.split(",") if each.strip())
        if not values or len(set(values)) < len(values) or log:
            raise ArgumentError(f"--search {place}={text}: must be such as {EXAMPLES}")
        return Choices(values)
    ends = [_value(place, low), _value(place, high)]
    if any(isinstance(end, (bool, str)) for end in ends):
        raise ArgumentError(f"--search {place}={text}: both ends must be numbers")
    first, last = (checks.real_number(f"--search {place}", end, -checks.MOST_REAL) for end in ends)
    if first >= last or (log and first <= 0):
        rule = "the first end must be below the other" + (", and above 0" if log else "")
        raise ArgumentError(f"--search {place}={text}: {rule}")
    if all(isinstance(end, int) for end in ends):
        return Range(int(first), int(last), log, True)
    return Range(first, last, log, False)


@dataclass(frozen=True)
class SearchSpace:
    """What is tried, as it was written, and as it is understood.

    Attributes:
        texts: place -> range or choices, as they are written.
        ranges: the same, understood.
    """

    texts: Mapping[str, str]
    ranges: Mapping[str, Range | Choices]

    @staticmethod
    def of(searched: list[str], tree: Mapping[str, Any]) -> SearchSpace:
        """From `place=range` texts, or the default ones where there are none.

        Args:
            searched: such as `model.dropout=0:0.8`.
            tree: all other settings; what they say themselves is not among the defaults.
        """
        texts = _read(searched) if searched else _defaults(tree)
        if not texts:
            raise ArgumentError("--search: every setting of the default search is given; name what to try")
        space = SearchSpace(texts, {place: parse_range(place, text) for place, text in texts.items()})
        space._check(tree)
        return space

    def _check(self, tree: Mapping[str, Any]) -> None:
        """Every place is a setting, and its values are of the setting's type."""
        for place, tried in self.ranges.items():
            values = tried.values if isinstance(tried, Choices) else (tried.low, tried.high)
            for value in values:
                Config.of(merged(tree, at_places({place: value})))


def at_places(values: Mapping[str, Value]) -> dict[str, Settings]:
    """Settings by section.

    >>> at_places({"training.lr": 0.1, "model.hidden": 64})
    {'training': {'lr': 0.1}, 'model': {'hidden': 64}}
    """
    tree: dict[str, Settings] = {}
    for place, value in values.items():
        section, _, key = place.partition(".")
        tree.setdefault(section, {})[key] = value
    return tree


def _read(searched: list[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for each in searched:
        place, equals, text = each.partition("=")
        place = place.strip()
        if not equals or "." not in place:
            raise ArgumentError(f"--search {each}: must be such as {EXAMPLES}")
        if place in texts:
            raise ArgumentError(f"--search {place}: is given twice")
        texts[place] = text.strip()
    return texts


def _defaults(tree: Mapping[str, Any]) -> dict[str, str]:
    """Those that the model has, and that nobody has chosen."""
    known, chosen = Config.of(tree).to_tree(), dict(tree)
    found = {}
    for place, text in DEFAULT_SPACE.items():
        section, _, key = place.partition(".")
        has_it = section == "training" or key in known[section]  # which leaves out what is None
        if has_it and key not in chosen.get(section, {}):
            found[place] = text
    return found


def _value(place: str, text: str) -> Value:
    section, _, key = place.partition(".")
    value: Value = parse_setting(f"{place}={text.strip()}")[section][key]
    if not isinstance(value, (bool, int, float, str)):
        raise ArgumentError(f"--search {place}={text}: must be such as {EXAMPLES}")
    return value
