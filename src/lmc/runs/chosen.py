"""`batches.json`: how a run cut its graph, and why, beside the settings, which say what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lmc import checks, typed
from lmc.batching.choice import Choice
from lmc.runs.text_files import content_of, in_file, json_of


def read_choice(file: Path) -> Choice:
    """What a run wrote when it began; RunError where it could not have written it."""
    failing = in_file(str(file))
    kept: dict[str, Any] = typed.read("", json_of(str(file), content_of(file)), dict[str, Any], failing)
    parts = checks.whole_number("parts", kept.get("parts"), 1, failing=failing)
    size = checks.whole_number("parts_per_batch", kept.get("parts_per_batch"), 1, failing=failing)
    return Choice(parts, size, typed.read("reason", kept.get("reason"), str, failing))
