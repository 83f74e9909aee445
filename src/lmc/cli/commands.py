"""All commands.

The modules here import only what loads at once, so that help and most mistakes need not wait for torch;
a command imports what it works with when it runs.
"""

from __future__ import annotations

import click

from lmc import __version__
from lmc.cli import (
    bench,
    compare,
    completion,
    demo,
    doctor,
    import_tables,
    inspect,
    paper,
    predict,
    prepare,
    report,
    synthetic,
    train,
    tune,
)
from lmc.cli.group import OneLineGroup


@click.group(
    cls=OneLineGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
@click.pass_context
def lmc(context: click.Context) -> None:
    """Train graph neural networks on one large graph by mini-batches."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for module in (
    train,
    compare,
    tune,
    demo,
    predict,
    import_tables,
    synthetic,
    prepare,
    inspect,
    report,
    bench,
    paper,
    doctor,
    completion,
):
    lmc.add_command(module.command)
