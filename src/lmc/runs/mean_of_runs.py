"""The mean over runs that differ in their seeds, and how far they are from it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MeanOfRuns:
    """A mean over runs, with its deviation.

    >>> MeanOfRuns([70.0, 72.0]).shown(2)
    '71.00 ± 1.41'
    """

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """Of all runs."""
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """Of a run from the mean; 0 for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def shown(self, digits: int) -> str:
        """As it stands in a table."""
        mean = f"{self.mean:.{digits}f}"
        return f"{mean} ± {self.deviation:.{digits}f}" if len(self.values) > 1 else mean


def mean_of(values: Sequence[float | None]) -> MeanOfRuns | None:
    """Of runs that all have a value; else None.

    >>> mean_of([0.5, None]) is None, mean_of([1.0, 2.0]).mean
    (True, 1.5)
    """
    known = [value for value in values if value is not None]
    return MeanOfRuns(known) if known and len(known) == len(values) else None
