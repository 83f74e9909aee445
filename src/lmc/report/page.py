"""One HTML page about one or more runs, complete in itself: it loads nothing and runs no script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import lmc
from lmc.errors import ArgumentError
from lmc.files import one_line, write_atomically
from lmc.report import charts, formats, side_by_side
from lmc.report.charts import Style
from lmc.report.confusion import HeatMap, heat_map
from lmc.report.curves import Named, charts_of
from lmc.report.run_record import RunRecord, read_run


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
        raise ArgumentError(f"folders: {twice[0]} is given twice: every run once")
    page = _render([read_run(folder) for folder in folders])
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # JSON can spell characters that UTF-8 has no bytes for.
        write_atomically(out, lambda file: file.write(page.encode(errors="replace")))
    except OSError as error:
        raise ArgumentError(f"out={out}: cannot be written ({one_line(error)})") from None
    return out


@dataclass(frozen=True)
class _Section:
    """What the page shows of one run."""

    name: str
    style: Style
    data: str
    method: str
    model: str
    facts: dict[str, str]
    config: dict[str, dict[str, str]]
    environment: dict[str, str]
    confusion: HeatMap | None
    folder: str


def _render(records: Sequence[RunRecord]) -> str:
    runs: list[Named] = [
        (name, Style.of(number), record)
        for number, (name, record) in enumerate(zip(_names(records), records, strict=True))
    ]
    several = len(runs) > 1
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=f"{len(runs)} training runs" if several else f"Training run {runs[0][0]}",
        subtitle=_subtitle(records),
        sections=[_section(*run) for run in runs],
        results=side_by_side.results(runs),
        differences=side_by_side.differences(runs) if several else None,
        notes=side_by_side.notes(runs),
        charts=charts_of(runs),
        frame=charts,
        version=lmc.__version__,
    )


def _section(name: str, style: Style, run: RunRecord) -> _Section:
    config: dict[str, dict[str, str]] = {}
    for key, value in run.config.items():
        if isinstance(value, dict):
            config[key] = side_by_side.flat(value)
        else:
            config.setdefault("", {})[key] = formats.setting(value)
    return _Section(
        name=name,
        style=style,
        data=run.setting("data", "name") or formats.NOTHING,
        method=side_by_side.method_of(run),
        model=run.setting("model", "name") or formats.NOTHING,
        facts={key: formats.fact(value) for key, value in run.facts.items()},
        config=config,
        environment=side_by_side.flat(run.environment),
        confusion=None if run.confusion is None else heat_map(run.confusion),
        folder=str(run.folder),
    )


def _names(records: Sequence[RunRecord]) -> list[str]:
    """The folders' own names, or their paths where two have the same name."""
    short = [record.folder.resolve().name for record in records]
    count = Counter(short)
    return [
        name if count[name] == 1 else str(record.folder) for name, record in zip(short, records, strict=True)
    ]


def _subtitle(records: Sequence[RunRecord]) -> str:
    """The data and the first known size of the graph, where all runs share the data."""
    names = {record.setting("data", "name") for record in records}
    name = names.pop()
    if names or name is None:
        return ""
    facts = next((record.facts for record in records if record.facts), {})
    counts = [
        f"{formats.fact(facts[key])} {key}"
        for key in ("nodes", "edges", "features", "classes")
        if key in facts
    ]
    return ", ".join([name, *counts])
