"""Line charts as geometry: where lines, marks, ticks and hover points lie; `chart.svg.j2` draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmc.report import axes, formats

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 472, 10, 228  # the plot's edges within the drawing

COLOURS = 6  # as many as the style sheet defines

# Drawn around (0, 0). Lines differ by shape too, for whoever cannot tell their colours apart.
SHAPES = (
    "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0Z",  # circle
    "M-2.9-2.9h5.8v5.8h-5.8Z",  # square
    "M0-3.8L3.7 2.8H-3.7Z",  # triangle
    "M0-4.2L4.2 0L0 4.2L-4.2 0Z",  # diamond
    "M0 3.8L3.7-2.8H-3.7Z",  # triangle on its head
    "M-1.3-3.8h2.6v2.5h2.5v2.6h-2.5v2.5h-2.6v-2.5h-2.5v-2.6h2.5Z",  # plus
)

_MARKS, _HOVERS = 10, 150  # the most of each on a line; more would only hide it
_DRAWABLE = 1e100  # beyond it, the axis would overflow


class Point(NamedTuple):
    """A value and where it was measured; `note` is what hovering says."""

    x: float
    y: float
    note: str


@dataclass(frozen=True)
class Style:
    """How a run looks in every chart and table."""

    colour: int
    shape: str

    @staticmethod
    def of(run: int) -> Style:
        """The style of the run with this number, different for the first 36.

        >>> Style.of(0).colour == Style.of(6).colour, Style.of(0).shape == Style.of(6).shape
        (True, False)
        """
        return Style(run % COLOURS, SHAPES[(run + run // COLOURS) % len(SHAPES)])


@dataclass(frozen=True)
class Curve:
    """What one run measured, in order; a value that is not finite is a gap."""

    name: str
    style: Style
    points: Sequence[Point]
    best: float | None  # where on the x axis


class Hover(NamedTuple):
    """A place that shows a note."""

    x: float
    y: float
    note: str


@dataclass(frozen=True)
class Line:
    """A curve, placed."""

    name: str
    style: Style
    path: str
    marks: Sequence[tuple[float, float]]
    hovers: Sequence[Hover]
    best: Hover | None


@dataclass(frozen=True)
class Chart:
    """All that a drawing needs."""

    title: str
    x_label: str
    description: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    lines: Sequence[Line]


def line_chart(
    title: str, x_label: str, curves: Iterable[Curve], *, whole_x: bool = False, decades: bool = False
) -> Chart | None:
    """Place the curves on common axes, or None where there is no point to draw.

    Args:
        title: what is measured.
        x_label: what it is measured over.
        curves: one per run.
        whole_x: whether only whole numbers make sense as ticks of x.
        decades: whether y may be logarithmic, where its values are decades apart.

    >>> points = [Point(1, 0.5, "epoch 1"), Point(2, 0.75, "epoch 2")]
    >>> chart = line_chart("Loss", "epoch", [Curve("a", Style.of(0), points, best=2)], whole_x=True)
    >>> [label for _, label in chart.x_ticks], chart.description
    (['0', '1', '2'], 'Loss over epoch. a: from 0.5000 to 0.7500.')
    """
    curves = [curve for curve in curves if any(map(_drawable, curve.points))]
    seen = [point for curve in curves for point in curve.points if _drawable(point)]
    if not seen:
        return None
    x = axes.from_zero([point.x for point in seen], whole_x)
    y = axes.around([point.y for point in seen], decades)
    ranges = []
    for curve in curves:
        drawn = [point for point in curve.points if _drawable(point)]
        ranges.append(f"{curve.name}: from {formats.score(drawn[0].y)} to {formats.score(drawn[-1].y)}.")
    return Chart(
        title=f"{title} (log scale)" if y.log else title,
        x_label=x_label,
        description=" ".join([f"{title} over {x_label}.", *ranges]),
        x_ticks=[(_across(x, tick), label) for tick, label in zip(x.ticks, x.labels(), strict=True)],
        y_ticks=[(_down(y, tick), label) for tick, label in zip(y.ticks, y.labels(), strict=True)],
        lines=[_line(curve, x, y) for curve in curves],
    )


def _drawable(point: Point) -> bool:
    return all(math.isfinite(value) and abs(value) < _DRAWABLE for value in (point.x, point.y))


def _across(axis: axes.Axis, value: float) -> float:
    return round(LEFT + (RIGHT - LEFT) * axis.share(value), 1)


def _down(axis: axes.Axis, value: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * axis.share(value), 1)


def _line(curve: Curve, x: axes.Axis, y: axes.Axis) -> Line:
    path: list[str] = []
    placed: list[Hover] = []
    best = None
    pen_down = False
    for point in curve.points:
        if not _drawable(point):
            pen_down = False
            continue
        at = Hover(_across(x, point.x), _down(y, point.y), point.note)
        # "h0" makes a dot of a point that has no neighbour to be joined to.
        path.append(f"L{at.x} {at.y}" if pen_down else f"M{at.x} {at.y}h0")
        pen_down = True
        placed.append(at)
        if point.x == curve.best:
            best = at
    hovers = _thinned(placed, _HOVERS)
    if best is not None and best not in hovers:
        hovers.append(best)
    marks = [(at.x, at.y) for at in _thinned(placed, _MARKS)]
    return Line(curve.name, curve.style, "".join(path), marks, hovers, best)


def _thinned(items: list[Hover], most: int) -> list[Hover]:
    """At most so many, evenly spread, the last one always among them."""
    return items[:: -math.ceil(len(items) / most)][::-1]
