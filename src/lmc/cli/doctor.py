"""`lmc doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from lmc.cli.completion import DEVICE
from lmc.cli.paths import FILE

SIGNS = {True: "[green]pass[/]", False: "[red]FAIL[/]", None: "-"}


@click.command("doctor")
@click.option("--out", type=FILE, default=None, help="Keep what was found as JSON, for a report of a fault.")
@click.option("--device", type=DEVICE, default="auto", show_default=True, help="cpu, cuda, cuda:1, mps.")
@click.pass_context
def command(context: click.Context, out: Path | None, device: str) -> None:
    """Say what this machine has, and check that all works on it. Ends with 1 if something does not.

    Every kernel of the device is compared with its plain twin on the CPU, a step of every method with the
    same step by plain kernels on the CPU; then follow a short training, and the time of an epoch beside
    PyG's.
    """
    import json

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn
    from rich.table import Table

    from lmc.bench import doctor
    from lmc.device import chosen_device
    from lmc.files import write_atomically

    console = Console()
    chosen = chosen_device(device)
    facts = doctor.facts(chosen)
    machine = Table("", "this machine", show_edge=False)
    for name, value in facts.items():
        machine.add_row(name, "none" if value is None else str(value))
    console.print(machine)
    table = Table("check", "", "found", "s", show_edge=False)
    found = list[doctor.Finding]()
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as bar:
        task = bar.add_task("first check")
        for finding in doctor.findings(chosen):
            found.append(finding)
            bar.update(task, description=finding.name)
            seconds = f"{finding.seconds:.1f}"
            table.add_row(finding.name, SIGNS[finding.passed], finding.detail, seconds)
    console.print(table)
    failed = sum(finding.passed is False for finding in found)
    console.print(f"{failed} of {len(found)} checks failed" if failed else f"all {len(found)} checks passed")
    if out is not None:
        checks = [finding._asdict() for finding in found]
        text = json.dumps({"machine": facts, "checks": checks}, indent=1)
        write_atomically(out, lambda file: file.write(text.encode()))
        console.print(str(out), soft_wrap=True)
    context.exit(min(failed, 1))
