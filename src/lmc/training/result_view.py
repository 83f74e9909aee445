"""A finished run in a few words and, for notebooks, in a small table with its curves.

The curves are sketches without axes; `lmc report` draws charts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmc.training.records import Record, Result

SPLITS = ("train", "val", "test")
WIDTH, HEIGHT, EDGE = 240, 60, 4
"""Of a sketch."""


def text_of(result: Result) -> str:
    """What came out, in two lines."""
    epochs = len(result.history)
    plural = "" if epochs == 1 else "s"
    first = f"Result: {result.stopped} after {epochs} epoch{plural}, {seconds_text(result)}"
    return first if result.best is None else f"{first}\n{best_text(result)}"


def seconds_text(result: Result) -> str:
    """Seconds of training, and those on the clock."""
    return f"{result.seconds:.1f} s of training, {result.wall_seconds:.1f} s in all"


def best_text(result: Result) -> str:
    """The best epoch in a line; empty where there is none."""
    best = result.best
    if best is None:
        return ""
    own = {split: getattr(best, split) for split in SPLITS}
    metrics = {result.metric.name: own} | (best.metrics or {})
    texts = [
        f"{name} {', '.join(f'{split} {value:.4f}' for split, value in values.items() if value is not None)}"
        for name, values in metrics.items()
    ]
    return f"best epoch {best.epoch}: {'; '.join(texts)}"


def html_of(result: Result) -> str:
    """The same as HTML: a table of the best and the last epoch, and sketches of loss and metric."""
    rows = [] if result.best is None else [_row("best", result.best)]
    rows += [_row("last", record) for record in result.history[-1:]]
    heads = "".join(f"<th>{head}</th>" for head in ("", "epoch", "loss", *SPLITS))
    table = f"<table><tr>{heads}</tr>{''.join(rows)}</table>"
    name, history = result.metric.name, result.history
    by_split = [split for split in ("val", "train") if any(getattr(r, split) is not None for r in history)]
    sketches = sketch("loss", [(r.epoch, r.loss) for r in history])
    for split in by_split[:1]:
        points = [(r.epoch, getattr(r, split)) for r in history if getattr(r, split) is not None]
        sketches += sketch(f"{split} {name}", points)
    return f"<div><p>{text_of(result).splitlines()[0]}; {name}:</p>{table}<p>{sketches}</p></div>"


def _row(title: str, record: Record) -> str:
    values = [getattr(record, split) for split in SPLITS]
    cells = [f"{record.epoch}", f"{record.loss:.4f}", *("-" if v is None else f"{v:.4f}" for v in values)]
    return f"<tr><th>{title}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def sketch(title: str, points: Sequence[tuple[float, float]]) -> str:
    """A curve without axes, between its lowest and its highest value; nothing for fewer than two points.

    >>> sketch("loss", [(1, 2.0), (2, 1.0)]).count("<polyline")
    1
    """
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if len(points) < 2:
        return ""
    (left, right), (low, high) = [(min(values), max(values)) for values in zip(*points, strict=True)]
    across, up = (WIDTH - 2 * EDGE) / (right - left), (HEIGHT - 2 * EDGE) / ((high - low) or 1.0)
    places = " ".join(
        f"{EDGE + (x - left) * across:.1f},{HEIGHT - EDGE - (y - low) * up:.1f}" for x, y in points
    )
    label = f"{title}, {points[0][1]:.4f} to {points[-1][1]:.4f}"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT + 18}" role="img" aria-label="{label}">'
        f'<polyline points="{places}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        f'<text x="{EDGE}" y="{HEIGHT + 13}" font-size="11" fill="currentColor">{label}</text></svg>'
    )
