"""`lmc report`."""

from __future__ import annotations

from pathlib import Path

import click

from lmc.cli.paths import FILE, FOLDER
from lmc.errors import ArgumentError


@click.command("report")
@click.argument("runs", type=FOLDER, nargs=-1, required=True)
@click.option(
    "--out",
    type=FILE,
    default=None,
    help="File; by default report.html in the run's folder, of several folders comparison.html here.",
)
def command(runs: tuple[Path, ...], out: Path | None) -> None:
    """Write one HTML page about runs, comparisons or a search. Folders of several seeds are runs."""
    from lmc.report import write_report
    from lmc.report.reported_run import run_folders
    from lmc.report.study_page import write_study_page
    from lmc.runs.study import STUDY

    if out is not None and out.suffix not in (".html", ".htm"):
        raise ArgumentError(f"--out {out}: is a page; its name must end in .html")
    # None of several is the place of all: what is about them goes where the command was called.
    page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("comparison.html"))
    if len(runs) == 1 and (runs[0] / STUDY).exists():
        print(write_study_page(runs[0], page))
    else:
        print(write_report([run for folder in runs for run in run_folders(folder)], page))
