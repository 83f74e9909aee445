"""`lmc report`."""

from __future__ import annotations

from pathlib import Path

import click

from lmc.cli.paths import FILE, FOLDER


@click.command("report")
@click.argument("runs", type=FOLDER, nargs=-1, required=True)
@click.option("--out", type=FILE, default=None, help="File; by default report.html in the first run.")
def command(runs: tuple[Path, ...], out: Path | None) -> None:
    """Write one HTML page about one or several runs."""
    from lmc.report import write_report

    print(write_report(runs, out or runs[0] / "report.html"))
