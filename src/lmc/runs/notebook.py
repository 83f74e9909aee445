"""A line below a cell of a notebook."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from lmc.runs.progress_line import ProgressLine

LEAST_SECONDS = 0.2
"""Between two pictures of the line: each is a message to the browser."""
COLUMNS = 120
"""Of the text, as wide as a cell is on most screens."""


def in_notebook() -> bool:
    """Whether the process is the kernel of a notebook, which then has loaded IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookOutput:
    """One output that is drawn again and again."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn = 0.0

    def show_if_due(self, line: ProgressLine) -> None:
        """Draw the line, unless it was drawn a moment ago."""
        if time.monotonic() - self._drawn >= LEAST_SECONDS:
            self.show(line)

    def show(self, line: ProgressLine) -> None:
        """Draw the line now."""
        from IPython.display import HTML, display

        drawn = HTML(markup(line))
        if self._handle is None:
            self._handle = display(drawn, display_id=True)
        else:
            self._handle.update(drawn)
        self._drawn = time.monotonic()


def markup(line: ProgressLine) -> str:
    """The line as HTML.

    >>> markup(ProgressLine(phase="first batch"))
    '<progress></progress> <span>first batch &nbsp; 0:00</span>'
    """
    pieces, _ = line.fitting(COLUMNS)
    known = line.phase is None and line.total
    place = f' value="{line.done}" max="{line.total}"' if known else ""
    text = " &nbsp; ".join(map(html.escape, pieces))
    return f"<progress{place}></progress> <span>{text}</span>"
