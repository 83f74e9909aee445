"""The command line: thin, every command a few calls of the library."""

from __future__ import annotations

from lmc.cli.signals import end_at_once_when_told

__all__ = ["main"]


def main() -> None:
    """The program `lmc`, from its first moment on."""
    end_at_once_when_told()
    from lmc.cli.commands import lmc

    lmc(prog_name="lmc")
