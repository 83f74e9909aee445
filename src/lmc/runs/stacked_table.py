"""A table for a terminal that stays whole where there is little room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

_BESIDES = 3  # of a column: a space on both sides, and a line


@dataclass(frozen=True)
class StackedTable:
    """A table that becomes several, one below the other, where its columns have no room side by side.

    Attributes:
        title: above it.
        heads: one per column; they may be broken between words. The first column is in every table.
        lines: one cell per column; cells are not broken.
        caption: below it.
        last_apart: whether the last line has a rule above it.

    >>> shown = StackedTable("", ["name", "val", "seconds"], [["lmc", "0.7012", "3.5"]])
    >>> [len(shown.tables(width)) for width in (30, 20)]
    [1, 2]
    """

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    caption: str | None = None
    last_apart: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.tables(options.max_width)

    def tables(self, width: int) -> list[Table]:
        """Each at most so wide, where its columns can be."""
        groups = self._groups(width)
        return [self._table(group, width, group is groups[0], group is groups[-1]) for group in groups]

    def _groups(self, width: int) -> list[list[int]]:
        """The columns of each table, by their places."""
        groups = [[0]]
        for place in range(1, len(self.heads)):
            if len(groups[-1]) > 1 and self._spare(width, [*groups[-1], place]) < 0:
                groups.append([0])
            groups[-1].append(place)
        return groups

    def _least(self, place: int) -> int:
        """The width of a column whose head is broken between all words."""
        return max(map(len, [*self.heads[place].split(), *(line[place] for line in self.lines)]))

    def _spare(self, width: int, places: Sequence[int]) -> int:
        """What columns of the least width leave."""
        return width - 1 - sum(_BESIDES + self._least(place) for place in places)

    def _table(self, places: Sequence[int], width: int, is_first: bool, is_last: bool) -> Table:
        table = Table(title=self.title if is_first else None, caption=self.caption if is_last else None)
        spare = max(0, self._spare(width, places))
        for place in places:
            head, least = self.heads[place], self._least(place)
            more = min(spare, max(0, len(head) - least))
            spare -= more
            table.add_column(head, justify="right" if place else "left", width=least + more)
        for number, line in enumerate(self.lines, start=1):
            table.add_row(*(line[place] for place in places))
            if self.last_apart and number == len(self.lines) - 1:
                table.add_section()
        return table
