"""Names beside points, each where it hides neither a point nor another name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lmc.report.charts import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_DISTANCES = (7, 15, 24, 35, 48, 63, 80)  # points from the middle of a mark to the edge of its name
_ANGLES = (0, 180, 90, 270, *range(45, 360, 90), *range(20, 360, 40))  # degrees, the best first
_NEAR = _DISTANCES[0]  # beyond it, a line leads from the name to its mark
_MARK = 4.5  # points from the middle of a mark to its edge
_POINT = 1 / 72  # inches


def write_names(axes: Axes, lines: Sequence[Line]) -> None:
    """At the first point of each line, in its colour, once it is known where points are drawn."""
    taken = [box for line in lines for box in _marks(axes, line)]
    for line in lines:
        right, up, box = min(_places(axes, line), key=lambda place: _hidden(axes, place[2], taken))
        taken.append(box)
        leads = {"arrowstyle": "-", "color": line.style.colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        name = axes.annotate(
            line.name,
            (line.x[0], line.y[0]),
            (right, up),
            textcoords="offset points",
            color=line.style.colour,
            fontsize="small",
            ha="center",
            va="center",
            arrowprops=None if box.overlaps(_around(axes, line, _NEAR + 1)) else leads,
        )
        name.set_in_layout(False)


def _places(axes: Axes, line: Line) -> Iterator[tuple[float, float, Bbox]]:
    """How far right and up the middle of a name may be from its point, and its box; the best first."""
    from matplotlib.transforms import Bbox

    written = axes.text(0, 0, line.name, fontsize="small")
    pixels = _pixels(axes)
    box = written.get_window_extent()
    width, height = box.width / pixels, box.height / pixels
    written.remove()
    x, y = axes.transData.transform((line.x[0], line.y[0])) / pixels
    for distance in _DISTANCES:
        for angle in _ANGLES:
            cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            right, up = cosine * (distance + width / 2), sine * (distance + height / 2)
            edges = (x + right - width / 2, y + up - height / 2, x + right + width / 2, y + up + height / 2)
            yield right, up, Bbox.from_extents(*(edge * pixels for edge in edges))


def _hidden(axes: Axes, box: Bbox, taken: Sequence[Bbox]) -> int:
    """How much a name there would hide, or lose beyond the axes: 0 for nothing."""
    within = axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
    within = within and axes.bbox.containsy(box.y0) and axes.bbox.containsy(box.y1)
    return len(taken) * (not within) + sum(bool(box.overlaps(other)) for other in taken)


def _marks(axes: Axes, line: Line) -> list[Bbox]:
    """The boxes of a line's first mark, and of its bar."""
    from matplotlib.transforms import Bbox

    x, y, deviation = line.x[0], line.y[0], 0.0 if line.deviation is None else line.deviation[0]
    (middle, below), (_, above) = axes.transData.transform([(x, y - deviation), (x, y + deviation)])
    edge = _MARK / 2 * _pixels(axes)
    return [_around(axes, line, _MARK), Bbox.from_extents(middle - edge, below, middle + edge, above)]


def _around(axes: Axes, line: Line, points: float) -> Bbox:
    """A square around a line's first point."""
    from matplotlib.transforms import Bbox

    x, y = axes.transData.transform((line.x[0], line.y[0]))
    edge = points * _pixels(axes)
    return Bbox.from_extents(x - edge, y - edge, x + edge, y + edge)


def _pixels(axes: Axes) -> float:
    """Of a point, 1/72 inch."""
    return axes.figure.dpi * _POINT
