"""Charts of lines and points as data: what is drawn, and how a line looks wherever it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lmc.report import formats

COLOURS = ("#0a4fb0", "#de6f09", "#0ba069", "#c47abc", "#5c3500", "#2d3050")
"""Of lines; the report's style sheet has the same, and others for dark mode."""
# Lines differ by shape too, for people who cannot tell their colours apart.
MARKERS = ("o", "s", "^", "D", "v", "P")

_MARKS = 10  # the most of them on a line; more would only hide it
_DRAWABLE = 1e100  # beyond it, an axis would overflow
_DECADES = 100.0  # a range of this ratio is read by its decades
_TINY = 1e-30  # what is smaller counts as 0, which has no decade

Item = TypeVar("Item")


class Style(NamedTuple):
    """How a line looks: a colour out of `COLOURS`, and a marker of matplotlib."""

    colour: str
    marker: str

    @staticmethod
    def of(line: int) -> Style:
        """The style of the line with this number, different for the first 36.

        >>> Style.of(0).colour == Style.of(6).colour, Style.of(0).marker == Style.of(6).marker
        (True, False)
        """
        shape = line + line // len(COLOURS)
        return Style(COLOURS[line % len(COLOURS)], MARKERS[shape % len(MARKERS)])


@dataclass(frozen=True)
class Line:
    """Values over rising x; where one is not finite, there is a gap.

    Attributes:
        name: in legends.
        style: how it looks.
        x: where each value is.
        y: the values.
        deviation: half the height of a band around each value, of a bar at one that is not joined; or None.
        notes: what hovering over each value says, or none.
        best: which of the values is marked as the best, or None.
        joined: whether a line goes from each to the next; without, they are points.
    """

    name: str
    style: Style
    x: Sequence[float]
    y: Sequence[float]
    deviation: Sequence[float] | None = None
    notes: Sequence[str] = ()
    best: int | None = None
    joined: bool = True

    def drawable(self) -> list[int]:
        """Which of the values can be drawn.

        >>> Line("a", Style.of(0), [1, 2, 3], [0.5, math.inf, 0.7]).drawable()
        [0, 2]
        """
        points = enumerate(zip(self.x, self.y, strict=True))
        return [i for i, point in points if all(abs(value) < _DRAWABLE for value in point)]

    def marked(self) -> list[int]:
        """Which of these have a mark: a few, and each that no line joins to another."""
        drawable = self.drawable()
        if not self.joined:
            return drawable
        known = set(drawable)
        alone = {i for i in drawable if not known & {i - 1, i + 1}}
        return sorted(alone | set(thinned(drawable, _MARKS)))


@dataclass(frozen=True)
class Chart:
    """Lines on common axes.

    Attributes:
        x_label: what x is. Its axis begins at 0, but for decades and names.
        y_label: what y is.
        lines: in the order of the legend.
        whole_x: whether only whole numbers make sense as ticks of x.
        decades: whether y may be logarithmic, where its values are decades apart.
        title: what tells it from the charts beside it.
        x_decades: whether x is logarithmic.
        x_names: what the places 0, 1, 2, ... of x are called, where they are no numbers.
        names_at_points: whether the name of a line stands at its first point, instead of in a legend.
    """

    x_label: str
    y_label: str
    lines: Sequence[Line]
    whole_x: bool = False
    decades: bool = False
    title: str = ""
    x_decades: bool = False
    x_names: Sequence[str] = ()
    names_at_points: bool = False

    @property
    def is_log(self) -> bool:
        """Whether y is logarithmic.

        >>> line = Line("a", Style.of(0), [1, 2], [0.003, 2.0])
        >>> Chart("epoch", "loss", [line], decades=True).is_log, Chart("epoch", "loss", [line]).is_log
        (True, False)
        """
        values = [line.y[i] for line in self.lines for i in line.drawable()]
        least = min(values, default=0.0)
        return self.decades and least > _TINY and max(values) / least > _DECADES

    def description(self) -> str:
        """The chart in words, for people who do not see it.

        >>> line = Line("a", Style.of(0), [1, 2, 3], [0.5, 0.8, 0.75])
        >>> Chart("epoch", "Training loss", [line]).description()
        'Training loss over epoch. a: from 0.5000 to 0.7500.'
        """
        sentences = [f"{self.y_label} over {self.x_label}."]
        for line in self.lines:
            if drawable := line.drawable():
                first, last = line.y[drawable[0]], line.y[drawable[-1]]
                sentences.append(f"{line.name}: from {formats.score(first)} to {formats.score(last)}.")
        return " ".join(sentences)


def thinned(items: Sequence[Item], most: int) -> Sequence[Item]:
    """At most this many of the items, evenly spread, the last one always among them.

    >>> thinned([1, 2, 3, 4, 5, 6, 7], 3)
    [1, 4, 7]
    """
    return items[:: -math.ceil(len(items) / most)][::-1] if items else items
