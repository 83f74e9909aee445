"""What a command says while torch is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from lmc.runs.display import Display


def loading_torch(display: Display, console: Console) -> None:
    """Load torch; in a terminal, where somebody waits for it, say so."""
    if console.is_terminal:
        display.on_phase("loading torch")
    import torch  # noqa: F401
