"""What matplotlib drew, as SVG within an HTML page: without ids, in the page's own font and colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from lmc.report.charts import COLOURS, Chart, Line, Style, thinned
from lmc.report.drawing import GRID, TEXT, draw, look, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 472, 10, 228  # the plot's edges within the drawing

_HOVERS = 150  # the most of them on a line
# The page has other values for these names in dark mode.
_VARIABLES = {colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)} | {
    TEXT: "var(--soft)",
    GRID: "var(--grid)",
}
_KEPT = ("fill", "fill-opacity", "opacity", "stroke", "stroke-dasharray", "stroke-width", "text-anchor")
_CLASSES = ("line", "best")  # by the names that `drawing` gives to artists
_HREF = "{http://www.w3.org/1999/xlink}href"


def chart_svg(chart: Chart) -> str:
    """A chart of a page, its heading and legend apart; hovering over a value shows its note."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
    edges = (LEFT / WIDTH, 1 - BOTTOM / HEIGHT, (RIGHT - LEFT) / WIDTH, (BOTTOM - TOP) / HEIGHT)
    axes = figure.add_axes(edges)
    draw(axes, chart)
    axes.set_xlabel(chart.x_label, loc="right", labelpad=8, color=TEXT)
    root = _inline(figure)
    root.attrib |= {"role": "img", "aria-label": chart.description()}
    for line in chart.lines:  # above every line, so that no line hides another's points
        _add_notes(root, axes, line)
    return ElementTree.tostring(root, encoding="unicode")


def swatch_svg(style: Style) -> str:
    """A piece of a line, for legends and tables."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(22 / 72, 12 / 72), dpi=72)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-11, 11), ylim=(-6, 6))
    axes.set_axis_off()
    axes.plot([-10, 0, 10], [0, 0, 0], **look(style), markevery=[1])
    root = _inline(figure)
    root.attrib |= {"class": "swatch", "aria-hidden": "true"}
    return ElementTree.tostring(root, encoding="unicode")


def _inline(figure: Figure) -> Element:
    """The drawing alone: shapes in their places, instead of references to shapes that are named."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    drawn = ElementTree.fromstring(saved(figure, "svg"))
    shapes = {f"#{shape.get('id')}": shape for shape in drawn.iter() if shape.get("id")}
    root = Element("svg", viewBox=drawn.attrib["viewBox"])
    _copy(drawn, root, shapes)
    return root


def _copy(given: Element, root: Element, shapes: Mapping[str, Element], kind: str = "") -> None:
    """Every shape and text within, without the groups they are in."""
    tag = given.tag.rpartition("}")[2]
    if tag in ("defs", "metadata"):
        return
    copied = {"class": kind} if kind else {}
    style = given.get("style", "")
    if tag == "use":
        shape = shapes[given.attrib[_HREF]]
        copied |= {"d": shape.attrib["d"], "transform": f"translate({given.get('x')} {given.get('y')})"}
        SubElement(root, "path", copied | {"style": _style(f"{style};{shape.get('style', '')}")})
    elif tag == "path":
        SubElement(root, "path", copied | {"d": given.attrib["d"], "style": _style(style)})
    elif tag == "text":
        place = {"x": given.attrib["x"], "y": given.attrib["y"], "style": _style(style)}
        SubElement(root, "text", copied | place).text = given.text
    kind = given.get("id", "") if given.get("id") in _CLASSES else kind
    for child in given:
        _copy(child, root, shapes, kind)


def _style(text: str) -> str:
    """The properties that the page leaves to the drawing, in the page's colours."""
    pairs = [pair.partition(":")[::2] for pair in text.split(";")]
    found = {key.strip(): value.strip() for key, value in pairs if key.strip() in _KEPT}
    return ";".join(f"{key}:{_VARIABLES.get(value, value)}" for key, value in found.items())


def _add_notes(root: Element, axes: Axes, line: Line) -> None:
    if not line.notes:
        return
    group = SubElement(root, "g", {"class": "hover", "style": f"--c:{_VARIABLES[line.style.colour]}"})
    drawable = line.drawable()
    for i in sorted({*thinned(drawable, _HOVERS), *(i for i in drawable if i == line.best)}):
        x, y = axes.transData.transform((line.x[i], line.y[i]))
        circle = SubElement(group, "circle", cx=f"{x:.1f}", cy=f"{HEIGHT - y:.1f}", r="5")
        SubElement(circle, "title").text = f"{line.notes[i]}{' (best)' if i == line.best else ''}"
