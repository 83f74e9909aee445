"""One HTML page about one or more runs, complete in itself: it loads nothing and runs no script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmc.errors import ArgumentError
from lmc.report import formats, side_by_side
from lmc.report.charts import Style
from lmc.report.confusion import HeatMap, heat_map
from lmc.report.curves import NamedRun, charts_of
from lmc.report.inline_svg import chart_svg, swatch_svg
from lmc.report.reported_run import ReportedRun, read_run
from lmc.report.template import write_page


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Compare runs on one HTML page and return its path.

    Args:
        folders: run folders; one that is still being written is shown as far as it got.
        out: the page; its folder is made where it is missing.
    """
    if not folders:
        raise ArgumentError("folders=[]: must name one run folder or more")
    twice = [folder for folder, count in Counter(map(Path.resolve, folders)).items() if count > 1]
    if twice:
        raise ArgumentError(f"folders: {twice[0]} is given twice: name every run once")
    return write_page(out, "report.html.j2", **_content([read_run(folder) for folder in folders]))


@dataclass(frozen=True)
class _Section:
    """What the page shows of one run."""

    name: str
    data: str
    method: str
    model: str
    facts: dict[str, str]
    config: dict[str, dict[str, str]]
    environment: dict[str, str]
    confusion: HeatMap | None
    folder: str


def _content(records: Sequence[ReportedRun]) -> dict[str, Any]:
    """What the template is filled with."""
    runs = [
        NamedRun(name, Style.of(number), record)
        for number, (name, record) in enumerate(zip(_names(records), records, strict=True))
    ]
    several = len(runs) > 1
    return {
        "title": f"{len(runs)} training runs" if several else f"Training run {runs[0][0]}",
        "subtitle": _subtitle(records),
        "sections": [_section(run) for run in runs],
        "results": side_by_side.results(runs),
        "seeds": side_by_side.over_seeds(runs),
        "differences": side_by_side.differences(runs) if several else None,
        "notes": side_by_side.notes(runs),
        "swatches": {run.name: swatch_svg(run.style) for run in runs},
        "charts": [(chart, chart_svg(chart)) for chart in charts_of(runs)],
    }


def _section(named: NamedRun) -> _Section:
    run = named.run
    config: dict[str, dict[str, str]] = {}
    for key, value in run.config.items():
        if isinstance(value, dict):
            config[key] = side_by_side.flat(value)
        else:
            config.setdefault("", {})[key] = formats.setting(value)
    return _Section(
        name=named.name,
        data=run.setting("data", "name") or formats.NOTHING,
        method=side_by_side.method_of(run),
        model=side_by_side.model_of(run),
        facts={key: f"{count:,}" for key, count in _counts(run).items()} | _times(run),
        config=config,
        environment=side_by_side.flat(run.environment),
        confusion=heat_map(run.summary.confusion) if run.summary and run.summary.confusion else None,
        folder=str(run.folder),
    )


def _times(run: ReportedRun) -> dict[str, str]:
    """What a run took, on two clocks; nothing where it has not ended."""
    if run.summary is None:
        return {}
    times = {"training": run.summary.seconds, "in all": run.summary.wall_seconds}
    return {name: formats.seconds(value) for name, value in times.items() if value is not None}


def _names(records: Sequence[ReportedRun]) -> list[str]:
    """The folders' own names, or their paths where two have the same name."""
    short = [record.folder.resolve().name for record in records]
    count = Counter(short)
    return [
        name if count[name] == 1 else str(record.folder) for name, record in zip(short, records, strict=True)
    ]


def _subtitle(records: Sequence[ReportedRun]) -> str:
    """The data and the first known size of the graph, where all runs share the data."""
    names = {record.setting("data", "name") for record in records}
    name = names.pop()
    if names or name is None:
        return ""
    counts = next((_counts(record) for record in records if record.summary), {})
    sizes = [f"{count:,} {key}" for key, count in counts.items() if key != "parameters"]
    return ", ".join([name, *sizes])


def _counts(run: ReportedRun) -> dict[str, int]:
    """How large the graph and the model are, where that is known."""
    if run.summary is None:
        return {}
    return {**asdict(run.summary.graph), "parameters": run.summary.parameters}
