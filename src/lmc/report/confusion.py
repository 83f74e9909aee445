"""The confusion between classes: a heat map, and the pairs that are confused most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmc.report import formats
from lmc.runs.summary import Confusion

_WITH_COUNTS = 20  # classes up to which a cell is wide enough for its count
_DRAWN = 100  # classes up to which there is a map at all: its cells grow with the square
_PAIRS = 10  # the most that are listed


class HeatCell(NamedTuple):
    """How many nodes, their share of the true class from 0 to 1, and what hovering says."""

    nodes: str
    share: float
    right: bool
    note: str


class ConfusedPair(NamedTuple):
    """A class taken for another."""

    true: int
    predicted: int
    nodes: str
    share: str


@dataclass(frozen=True)
class HeatMap:
    """Rows of cells, or no rows where there are too many classes, and the pairs confused most."""

    split: str
    classes: int
    rows: Sequence[Sequence[HeatCell]]
    pairs: Sequence[ConfusedPair]

    @property
    def compact(self) -> bool:
        """Whether the cells are too small for text."""
        return self.classes > _WITH_COUNTS


def heat_map(confusion: Confusion) -> HeatMap:
    """Shade every count by its share of the row.

    >>> heat = heat_map(Confusion("test", [[3, 1], [0, 4]]))
    >>> [[cell.share for cell in row] for row in heat.rows], heat.pairs[0]
    ([[0.75, 0.25], [0.0, 1.0]], ConfusedPair(true=0, predicted=1, nodes='1', share='25.0 %'))
    """
    counts = confusion.counts
    totals = [sum(row) for row in counts]
    drawn = counts if len(counts) <= _DRAWN else []
    rows = [
        [_cell(true, predicted, count, totals[true]) for predicted, count in enumerate(row)]
        for true, row in enumerate(drawn)
    ]
    wrong = sorted(
        (-count, true, predicted)
        for true, row in enumerate(counts)
        for predicted, count in enumerate(row)
        if count and true != predicted
    )
    pairs = [
        ConfusedPair(true, predicted, f"{-less:,}", formats.share(-less, totals[true]))
        for less, true, predicted in wrong[:_PAIRS]
    ]
    return HeatMap(confusion.split, len(counts), rows, pairs)


def _cell(true: int, predicted: int, count: int, total: int) -> HeatCell:
    of_class = f", {formats.share(count, total)} of class {true}" if count else ""
    note = f"class {true}, predicted {predicted}: {count:,}{of_class}"
    share = round(count / total, 3) if total else 0.0
    return HeatCell(f"{count:,}", share, true == predicted, note)
