"""From an outcome to files: Markdown and JSON, figures as PNG and SVG, and one page of everything."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lmc.files import write_atomically
from lmc.paper.experiments import EXPERIMENTS
from lmc.paper.outcome import Outcome
from lmc.report.charts import Chart
from lmc.report.drawing import figure_of, saved
from lmc.runs.environment import environment


def write(folder: Path, name: str, outcome: Outcome) -> Path:
    """`NAME.md`, `NAME.json`, and `NAME-FIGURE.png` and `.svg`; the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure, charts in outcome.figures.items():
        _write_image(folder / f"{name}-{figure}.png", charts, "png")
        _write_image(folder / f"{name}-{figure}.svg", charts, "svg")
    made = environment()
    content = {
        "experiment": name,
        "source": EXPERIMENTS[name].source,
        "environment": made,
        "settings": outcome.settings,
        "differences": outcome.differences,
        "findings": outcome.findings,
        "tables": [table.raw() for table in outcome.tables],
        "curves": outcome.curves,
    }
    raw = json.dumps(content, indent=2, default=str) + "\n"
    write_atomically(folder / f"{name}.json", lambda opened: opened.write(raw.encode()))
    text = markdown(name, outcome, made)
    write_atomically(folder / f"{name}.md", lambda opened: opened.write(text.encode()))
    return folder / f"{name}.md"


def markdown(name: str, outcome: Outcome, made: Mapping[str, Any]) -> str:
    """The experiment as a page of text."""
    about = EXPERIMENTS[name]
    machine = f"{made['processor']}, {made['threads']} threads, torch {made['torch']}"
    lines = [
        f"# {about.title} ({about.source})",
        "",
        f"{made['started']}, commit {made['commit']}, {machine}.",
        "",
    ]
    lines += ["Differs from the paper:", "", *(f"- {sentence}" for sentence in outcome.differences), ""]
    for table in outcome.tables:
        lines += [table.markdown(), ""]
    lines += ["Found:", "", *(f"- {sentence}" for sentence in outcome.findings), ""]
    lines += [f"![{figure}]({name}-{figure}.png)\n" for figure in outcome.figures]
    lines += ["Settings:", "", "```json", json.dumps(outcome.settings, indent=1, default=str), "```"]
    return "\n".join(lines) + "\n"


def write_page(file: Path, outcomes: Mapping[str, Outcome]) -> None:
    """One HTML page of several experiments, complete in itself."""
    loader = FileSystemLoader(Path(__file__).parent)
    template = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(
        "page.html"
    )
    sections = [
        {
            "name": name,
            "about": EXPERIMENTS[name],
            "outcome": outcome,
            "figures": {title: _embedded(charts) for title, charts in outcome.figures.items()},
        }
        for name, outcome in outcomes.items()
    ]
    page = template.render(sections=sections, made=environment(), date=time.strftime("%Y-%m-%d"))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda opened: opened.write(page.encode()))


def _write_image(file: Path, charts: Sequence[Chart], form: Literal["png", "svg"]) -> None:
    image = saved(figure_of(charts), form)
    write_atomically(file, lambda opened: opened.write(image))


def _embedded(charts: Sequence[Chart]) -> str:
    return base64.b64encode(saved(figure_of(charts), "png")).decode()
