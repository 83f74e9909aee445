"""One rule for every value out of a file: its type, or the place where it is not."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmc
from lmc import typed


@dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shape:
    name: str
    points: list[Point]
    centre: Point | None = None
    extra: dict[str, int] | None = None


def test_a_table_becomes_what_it_describes():
    given = {"name": "a", "points": [{"x": 1, "tags": ["p"]}], "centre": {"x": 0.5}, "other": object()}
    assert typed.read("", given, Shape) == Shape("a", [Point(1, ("p",))], Point(0.5))


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (True, int, "v=True: must be an integer"),
        (1.0, int, "v=1.0: must be an integer"),
        (False, float, "v=False: must be a number"),
        (10**400, float, r"v=1000\d*\.\.\.\d*: must be a number"),
        (3, str, "v=3: must be a string"),
        (1, bool, "v=1: must be true or false"),
        (3, str | Path | None, "v=3: must be a string or a path"),
        ("b", Literal["a", "c"], "v='b': must be one of a, c"),
        ([], dict[str, int], r"v=\[\]: must be a table"),
        ({"a": [0, None]}, dict[str, list[float]], r"v\.a\[1\]=None: must be a number"),
        ({"name": "a"}, Shape, r"v\.points: is missing; must be a list"),
        (
            {"name": "a", "points": [{"x": 1, "tags": [2]}]},
            Shape,
            r"v\.points\[0\]\.tags\[0\]=2: must be a st",
        ),
        ({"name": "a", "points": [], "centre": 3}, Shape, r"v\.centre=3: must be a table"),
    ],
)
def test_what_is_wrong_is_named(value, hint, message):
    with pytest.raises(lmc.ArgumentError, match=f"^{message}"):
        typed.read("v", value, hint)


def test_the_error_is_that_of_the_caller():
    with pytest.raises(lmc.RunError, match=r"^a\.json: points: is missing"):
        typed.read("", {"name": "a"}, Shape, lambda line: lmc.RunError(f"a.json: {line}"))
    with pytest.raises(lmc.RunError, match=r"^a\.json: 3: must be a table"):
        typed.read("", 3, Shape, lambda line: lmc.RunError(f"a.json: {line}"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "points", "x"]), inner)
    ),
    max_leaves=8,
)


@pytest.mark.fuzz
@given(JSON)
def test_whatever_a_file_holds_is_read_or_named(value):
    assert typed.read("v", value, Any) is value
    with contextlib.suppress(lmc.ArgumentError):
        assert isinstance(typed.read("v", json.loads(json.dumps(value)), Shape), Shape)
