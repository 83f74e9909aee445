"""Names beside points, each where it hides neither a point nor another name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lmc.report.charts import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox

_NEAR = 7  # points from the middle of a mark to the edge of its name
_DISTANCES = (_NEAR, 15, 24, 35, 48, 63, 80)  # beyond the first, a line leads from the mark to the name
_ANGLES = (0, 180, 90, 270, *range(45, 360, 90), *range(20, 360, 40))  # degrees, the best first
_MARK = 4.5  # points from the middle of a mark to its edge


class Place(NamedTuple):
    """Where a name may be.

    Attributes:
        distance: points from the middle of the mark to the edge of the name.
        right: points from the middle of the mark to that of the name.
        up: the same, upwards.
        box: of the name, in pixels.
        leader: the line from the mark to the name, in pixels; None where it is near.
    """

    distance: float
    right: float
    up: float
    box: Bbox
    leader: Path | None


def write_names(axes: Axes, lines: Sequence[Line]) -> None:
    """At the first point of each line, in its colour, once it is known where points are drawn."""
    marks = [box for line in lines for box in _marks(axes, line)]
    taken: list[Place] = []
    for line in lines:
        place = min(_places(axes, line), key=lambda each: _cost(axes, each, marks, taken))
        taken.append(place)
        leader = {"arrowstyle": "-", "color": line.style.colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        name = axes.annotate(
            line.name,
            (line.x[0], line.y[0]),
            (place.right, place.up),
            textcoords="offset points",
            color=line.style.colour,
            fontsize="small",
            ha="center",
            va="center",
            arrowprops=None if place.leader is None else leader,
        )
        name.set_in_layout(False)


def _places(axes: Axes, line: Line) -> Iterator[Place]:
    """Around the first point, the best first."""
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox

    written = axes.text(0, 0, line.name, fontsize="small")
    box, pixels = written.get_window_extent(), _pixels(axes)
    width, height = box.width / pixels, box.height / pixels
    written.remove()
    x, y = axes.transData.transform((line.x[0], line.y[0]))
    for distance in _DISTANCES:
        for angle in _ANGLES:
            cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            right, up = cosine * (distance + width / 2), sine * (distance + height / 2)
            middle = (x + right * pixels, y + up * pixels)
            corner = (middle[0] - box.width / 2, middle[1] - box.height / 2)
            leader = None if distance == _NEAR else Path([(x, y), middle])
            yield Place(distance, right, up, Bbox.from_bounds(*corner, box.width, box.height), leader)


def _cost(axes: Axes, place: Place, marks: Sequence[Bbox], taken: Sequence[Place]) -> float:
    """Rather far away than across a leader, and anything rather than hiding a mark or a name."""
    beyond = sum(not axes.bbox.contains(*corner) for corner in place.box.corners())
    hidden = sum(bool(place.box.overlaps(box)) for box in [*marks, *(each.box for each in taken)])
    crossed = sum(_crosses(place.leader, each.box) + _crosses(each.leader, place.box) for each in taken)
    return 10 * (beyond + hidden) + 2 * crossed + place.distance / 20


def _crosses(leader: Path | None, box: Bbox) -> bool:
    return leader is not None and bool(leader.intersects_bbox(box))


def _marks(axes: Axes, line: Line) -> list[Bbox]:
    """The boxes of a line's first mark, and of its bar."""
    from matplotlib.transforms import Bbox

    x, y, deviation = line.x[0], line.y[0], 0.0 if line.deviation is None else line.deviation[0]
    (middle, below), (_, above) = axes.transData.transform([(x, y - deviation), (x, y + deviation)])
    edge, centre = _MARK * _pixels(axes), (below + above) / 2
    mark = Bbox.from_extents(middle - edge, centre - edge, middle + edge, centre + edge)
    return [mark, Bbox.from_extents(middle - edge / 2, below, middle + edge / 2, above)]


def _pixels(axes: Axes) -> float:
    """Of a point, 1/72 inch."""
    return axes.figure.dpi / 72
