"""Axes: where round ticks lie, and where a value lies between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MULTIPLES = (1, 2, 5, 10)
_MANY = 7
_LOG_FROM = 100.0  # a range of this ratio is read by its decades
_TINY = 1e-30  # what is smaller counts as 0, so that no step vanishes


@dataclass(frozen=True)
class Axis:
    """A range of values and its ticks; on a logarithmic axis, all are above 0."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1.

        >>> Axis(0, 10, ()).share(5), Axis(1, 100, (), log=True).share(10)
        (0.5, 0.5)
        """
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return (value - low) / (high - low)

    def labels(self) -> tuple[str, ...]:
        """The ticks as text, all with the same digits.

        >>> Axis(0, 1, (0.0, 0.5, 1.0)).labels()
        ('0.0', '0.5', '1.0')
        """
        steps = [abs(b - a) for a, b in zip(self.ticks, self.ticks[1:], strict=False)]
        largest = max(map(abs, self.ticks), default=0.0)
        if self.log or not steps or largest >= 1e6 or min(steps) < 1e-5:
            return tuple(f"{tick:g}" for tick in self.ticks)
        digits = max(0, -math.floor(math.log10(min(steps)) + 1e-9))
        return tuple(f"{tick:,.{digits}f}" for tick in self.ticks)


def from_zero(values: Sequence[float], whole: bool = False) -> Axis:
    """An axis from 0 to the largest value, its ticks whole numbers if asked.

    >>> from_zero([1, 3], whole=True).ticks
    (0.0, 1.0, 2.0, 3.0)
    """
    high = max(values)
    high = high if high > _TINY else 1.0
    step = _step(high / (_MANY - 1))
    step = max(1.0, step) if whole else step
    return Axis(0.0, high, _multiples(step, 0, math.floor(high / step + 1e-9)))


def around(values: Sequence[float], decades: bool = False) -> Axis:
    """An axis from a round number below all values to one above, logarithmic where decades apart.

    >>> around([0.52, 0.71]).ticks
    (0.5, 0.55, 0.6, 0.65, 0.7, 0.75)
    >>> around([0.003, 2], decades=True).ticks
    (0.001, 0.01, 0.1, 1.0, 10.0)
    """
    low, high = min(values), max(values)
    if decades and low > _TINY and high / low > _LOG_FROM:
        return _log(low, high)
    largest = max(abs(low), abs(high))
    if high - low < 1e-6 * max(largest, _TINY):
        margin = largest / 10 if largest > _TINY else 0.1
        low, high = low - margin, high + margin
    step = _step((high - low) / (_MANY - 2))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = _multiples(step, first, last)
    return Axis(ticks[0], ticks[-1], ticks)


def _log(low: float, high: float) -> Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = math.ceil((last - first) / (_MANY - 1))
    ticks = tuple(float(f"1e{power}") for power in range(first, last + 1, every))
    return Axis(float(f"1e{first}"), float(f"1e{last}"), ticks, log=True)


def _step(least: float) -> float:
    """The smallest round number that is not below."""
    power = math.floor(math.log10(least))
    # Parsed, not multiplied: 2e-3 is then the float a reader would write.
    return next(
        step
        for m in _MULTIPLES
        if (step := float(f"{m}e{power}")) >= least * (1 - 1e-9) or m == _MULTIPLES[-1]
    )


def _multiples(step: float, first: int, last: int) -> tuple[float, ...]:
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return tuple(round(number * step, digits) for number in range(first, last + 1))
