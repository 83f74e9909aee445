"""What an experiment found: tables beside the paper's numbers, figures, and how its setting differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lmc.report.charts import Chart
from lmc.runs.mean_of_runs import MeanOfRuns

Value = MeanOfRuns | float | int | str | None


def ranked(found: Mapping[str, MeanOfRuns | None]) -> str:
    """From the highest mean to the lowest.

    >>> ranked({"GAS": MeanOfRuns([70.0, 71.0]), "LMC": MeanOfRuns([71.2])})
    'LMC 71.20, GAS 70.50 ± 0.71'
    """
    known = {name: mean for name, mean in found.items() if mean is not None}
    order = sorted(known, key=lambda name: -known[name].mean)
    return ", ".join(f"{name} {known[name].shown(2)}" for name in order)


@dataclass(frozen=True)
class ResultTable:
    """Rows under their heads.

    >>> rows = [["LMC", MeanOfRuns([71.2])], ["GD", None]]
    >>> print(ResultTable("Accuracy", ["method", "ours"], rows).markdown())
    **Accuracy**
    <BLANKLINE>
    | method | ours |
    |---|---|
    | LMC | 71.20 |
    | GD | - |
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Value]]
    digits: int = 2

    def cells(self) -> list[list[str]]:
        """The rows as text."""
        return [[self._shown(value) for value in row] for row in self.rows]

    def markdown(self) -> str:
        """The table with its title."""
        lines = [self.heads, *self.cells()]
        marked = ["| " + " | ".join(line) + " |" for line in lines]
        marked.insert(1, "|" + "---|" * len(self.heads))
        return "\n".join([f"**{self.title}**", "", *marked])

    def raw(self) -> dict[str, Any]:
        """For JSON: every number in full, and every value of a mean."""
        rows = [[list(v.values) if isinstance(v, MeanOfRuns) else v for v in row] for row in self.rows]
        return {"title": self.title, "heads": list(self.heads), "rows": rows}

    def _shown(self, value: Value) -> str:
        if value is None:
            return "-"
        if isinstance(value, MeanOfRuns):
            return value.shown(self.digits)
        return f"{value:.{self.digits}f}" if isinstance(value, float) else str(value)


@dataclass
class Outcome:
    """All that an experiment found.

    Attributes:
        settings: what it was run with.
        differences: from the paper's setting, a sentence each.
        tables: numbers.
        figures: by name, each of charts side by side.
        findings: what the numbers say, a sentence each, computed from them.
        curves: what every run reached after every epoch, for other views of it.
    """

    settings: dict[str, Any]
    differences: list[str]
    tables: list[ResultTable] = field(default_factory=list)
    figures: dict[str, Sequence[Chart]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)
