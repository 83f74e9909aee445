"""Bars for what takes a while before anything else is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """A function that is told what is done, how much of it is, and how much there is: a bar for each."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    known: dict[str, TaskID] = {}
    shown = Progress(*columns, console=Console(stderr=True))

    def told(what: str, done: int, total: int) -> None:
        if what not in known:
            known[what] = shown.add_task(what)
            shown.start()
        shown.update(known[what], completed=min(done, total), total=total)

    try:
        yield told
    finally:
        if known:  # without a bar, it would leave an empty line
            shown.stop()
