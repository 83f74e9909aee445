"""What a shell offers when Tab is pressed, and `lmc completion`.

An answer has to come at once, so nothing here may load torch: names that the library keeps beside code which
does are repeated here, and a test compares them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from lmc.errors import ArgumentError
from lmc.runs.presets import PRESETS
from lmc.runs.registry import METHODS, MODELS

SHELLS = ("bash", "zsh", "fish")


class Known(click.types.StringParamType):
    """Any text; a shell offers these values. What is wrong with others is said by what reads them."""

    def __init__(self, values: Iterable[str]) -> None:
        self.values = tuple(values)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those that begin with what is there."""
        return [CompletionItem(value) for value in self.values if value.startswith(incomplete)]


class NumberOrKnown(Known):
    """A number, or one of these values."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """An integer, a number, or the text as it is."""
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
        return value


class KnownList(Known):
    """Values with commas between them."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those that can follow the last comma, and are not there yet."""
        before, comma, last = incomplete.rpartition(",")
        there = before.split(",")
        offered = [value for value in self.values if value.startswith(last) and value not in there]
        return [CompletionItem(f"{before}{comma}{value}") for value in offered]


class DataName(Known):
    """The name or the path of a graph."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text as it is."""
        if not str(value) or "\0" in str(value):
            raise ArgumentError(f"--data {str(value)!r}: must be the name or the path of a graph")
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that need no file, those of files in the usual folders, and paths."""
        if os.sep in incomplete:
            return [CompletionItem(incomplete, type="file")]
        names = sorted({*self.values, *_found()})
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


METHOD, MODEL, PRESET = Known(METHODS), Known(MODELS), Known(PRESETS)
METHOD_LIST = KnownList(METHODS)
FEATURES = Known(("degree", "structure"))
NORM = Known(("none", "batch", "layer"))
SCORE = Known(("x^2", "2x^2", "2x-x^2", "x", "1", "sin"))
PRECISION = Known(("full", "half", "int8", "bf16"))
HISTORIES = Known(("memory", "disk"))
DEVICE = Known(("auto", "cpu", "cuda", "cuda:1", "mps"))
ALPHA, CHECKPOINT = NumberOrKnown(("auto",)), NumberOrKnown(("none", "last"))
PARTITION = Known(("auto", "metis", "kaminpar", "stream", "bfs", "random"))
BALANCE = Known(("labels", "gradients", "none"))
OPTIMIZER = Known(("adam", "adamw", "sgd", "rmsprop", "adagrad", "nadam", "radam"))
SCHEDULER = Known(("cosine", "plateau"))
DATA = DataName(
    (
        "synthetic",
        "cora",
        "citeseer",
        "pubmed",
        "amazon-photo",
        "amazon-computers",
        "coauthor-cs",
        "coauthor-physics",
        "cora-full",
        "cora-ml",
        "citeseer-full",
        "pubmed-full",
        "dblp",
        "flickr",
        "flickr-graph",
        "reddit",
        "ppi",
        "ogbn-arxiv",
        "ogbn-products",
    )
)


def _found() -> Iterable[str]:
    """Names of the graphs in `$LMC_DATA` and in `data/`."""
    for place in filter(None, (os.environ.get("LMC_DATA"), "data")):
        for file in Path(place).glob("*.npz"):
            yield file.stem
        for header in Path(place).glob("*/graph.json"):
            yield header.parent.name


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print what makes Tab complete commands, flags and values.

    \b
    bash: echo 'eval "$(lmc completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(lmc completion zsh)"' >> ~/.zshrc
    fish: lmc completion fish > ~/.config/fish/completions/lmc.fish
    """
    made: Any = get_completion_class(shell)
    click.echo(made(context.find_root().command, {}, "lmc", "_LMC_COMPLETE").source())
