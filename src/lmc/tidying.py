"""What has to be done before the process ends, even where it ends at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Action = Callable[[], object]
_due: list[Action] = []


@contextmanager
def tidying(action: Action) -> Iterator[None]:
    """Do it at the end of the context, however that ends: by an error, or with the whole process.

    >>> with tidying(lambda: print("swept")):
    ...     print("working")
    working
    swept
    """
    _due.append(action)
    try:
        yield
    finally:
        _due.remove(action)
        action()


def tidy() -> None:
    """Do all that is due, the last first; for a process that is about to end."""
    while _due:
        with suppress(Exception):
            _due.pop()()
