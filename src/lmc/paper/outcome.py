"""What an experiment found: tables beside the paper's numbers, figures, and how its setting differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.stats import ttest_rel

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


def against(base: str, found: Mapping[str, MeanOfRuns | None]) -> str:
    """How far the others are from one of them, seed by seed, with the p value of a paired t-test.

    >>> against("GAS", {"GAS": MeanOfRuns([70.0, 71.0, 70.5]), "LMC": MeanOfRuns([71.2, 72.1, 71.1])})
    'LMC +0.97 (3 seeds, p = 0.035)'
    >>> against("GAS", {"GAS": MeanOfRuns([70.0]), "LMC": MeanOfRuns([71.2])})
    'LMC +1.20 (1 seed)'
    """
    reference = found[base]
    others = {name: mean for name, mean in found.items() if name != base and mean is not None}
    if reference is None:
        return ""
    return ", ".join(f"{name} {_difference(mean, reference)}" for name, mean in others.items())


def _difference(runs: MeanOfRuns, reference: MeanOfRuns) -> str:
    mean = f"{runs.mean - reference.mean:+.2f}"
    if runs.values == reference.values or len(runs.values) != len(reference.values):
        return mean
    if len(runs.values) == 1:
        return f"{mean} (1 seed)"
    p = float(ttest_rel(runs.values, reference.values).pvalue)
    return f"{mean} ({len(runs.values)} seeds, p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"


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
