"""Derivatives at messages that come from the node itself: from the head, or from a later layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lmc.estimators.vjp import add
from lmc.nn.model import Layer


class Direct:
    """Derivatives at messages by the layer, counted from 1, that they go into; on the way back they add up.

    Args:
        places: layers whose messages the head reads.
        from_head: (rows, width) what it gives back to each of them.
    """

    def __init__(self, places: Sequence[int] = (), from_head: Sequence[Tensor | None] = ()) -> None:
        self._of = dict(zip(places, from_head, strict=True))

    def pop(self, place: int) -> Tensor | None:
        """(rows, width) all that reaches the message into a layer, once those after it are done; or None."""
        return self._of.pop(place, None)

    def add_read(self, layer: Layer, derivative: Tensor | None, widths: Sequence[int]) -> None:
        """Give back what a layer has read.

        Args:
            layer: which read it.
            derivative: (rows, any width) at `layer.what_it_reads`; None for nothing.
            widths: of the messages into each of the layers before it.
        """
        if derivative is None:
            return
        first = 0
        for back in layer.reads:
            last, place = first + widths[-back], len(widths) + 1 - back
            self._of[place] = add(self._of.get(place), derivative[:, first:last])
            first = last
