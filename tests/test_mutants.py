"""The mutants themselves: only code that computes is mutated, and each mutant is another program."""

import ast
from pathlib import Path

import pytest

from mutants import drawn, mutants_of

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''"""1 + 1 is no code."""

from typing import Literal, overload

Kind = Literal["a", "b"]


@overload
def f(x: int) -> int: ...
def f(x: int | None, y: int = 3) -> int:
    """Not x + y either."""
    assert x is not None
    if x < y and not x:
        raise ValueError(f"{x + y}")
    for z in range(x, y):
        x += z  # é + è
    return min(x, y)
'''


def lines_of(mutants):
    return {mutant.line for mutant in mutants}


def test_only_what_computes_is_mutated():
    found = mutants_of("f.py", SOURCE)
    assert lines_of(found) == {SOURCE[: SOURCE.index(text)].count("\n") + 1 for text in (
        "def f(x: int | None", "if x < y", "for z", "x += z", "return min")}  # fmt: skip
    kinds = {mutant.kind for mutant in found}
    assert kinds >= {
        "other operator",
        "other constant",
        "condition negated",
        "arguments swapped",
        "sign dropped",
    }
    assert kinds >= {"statement removed", "other function"}


def test_a_mutant_is_another_program_in_one_line():
    for mutant in mutants_of("f.py", SOURCE):
        lines = mutant.of(SOURCE).splitlines()
        changed = [n for n, (a, b) in enumerate(zip(lines, SOURCE.splitlines(), strict=True), 1) if a != b]
        assert changed == [mutant.line]
        ast.parse(mutant.of(SOURCE))


@pytest.mark.long
def test_the_same_seed_draws_the_same_mutants():
    first, second, other = drawn(ROOT, 5, 0), drawn(ROOT, 5, 0), drawn(ROOT, 5, 1)
    assert first == second != other
    assert len({(mutant.path, mutant.line) for mutant in first}) == 5
