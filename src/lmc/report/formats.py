"""Numbers as a reader wants them."""

from __future__ import annotations

import json
import math
from typing import Any

NOTHING = "–"  # noqa: RUF001


def score(value: float | None) -> str:
    """A metric or a loss: four digits after the point, where that says enough.

    >>> score(0.71234), score(1234.5), score(0.00012345), score(None)
    ('0.7123', '1,234', '1.234e-04', '–')
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        return f"{value:.3e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4f}"


def seconds(value: float | None) -> str:
    """A duration in seconds, with about three digits.

    >>> seconds(0.01234), seconds(1.234), seconds(81.23), seconds(1234.5)
    ('0.012 s', '1.23 s', '81.2 s', '1,234 s')
    """
    if value is None:
        return NOTHING
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} s"


def size(value: float | None) -> str:
    """Bytes as GB or MB, in powers of ten.

    >>> size(1.234e9), size(84e6)
    ('1.23 GB', '84 MB')
    """
    if value is None:
        return NOTHING
    return f"{value / 1e9:,.2f} GB" if value >= 1e9 else f"{value / 1e6:,.0f} MB"


def share(part: float, whole: float) -> str:
    """A share as a percentage.

    >>> share(1, 8)
    '12.5 %'
    """
    return f"{100 * part / whole:.1f} %" if whole else NOTHING


def setting(value: Any) -> str:
    """A value of a configuration, as it would be typed.

    >>> setting(True), setting(0.01), setting([1, 2]), setting(110120), setting(None)
    ('true', '0.01', '[1, 2]', '110120', '–')
    """
    if value is None:
        return NOTHING
    if isinstance(value, bool | list | dict):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)
