"""`metrics.jsonl`: one line of JSON for every epoch of a run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lmc import checks, typed
from lmc.errors import RunError
from lmc.files import write_atomically
from lmc.runs.text_files import content_of, in_file, json_of
from lmc.training.records import Record


def write_metrics(file: Path, records: Sequence[Record]) -> None:
    """Begin the file, or begin it again, with these epochs."""
    text = "".join(map(_line, records))
    write_atomically(file, lambda opened: opened.write(text.encode()))


def append_metrics(file: Path, record: Record) -> None:
    """Add an epoch, and have the disk confirm it."""
    with open(file, "a", encoding="utf-8") as opened:
        opened.write(_line(record))
        opened.flush()
        os.fsync(opened.fileno())


def read_metrics(file: Path) -> list[Record]:
    """All epochs, in order; a last line that is still being written is left out."""
    *lines, last = content_of(file).split(b"\n")
    with contextlib.suppress(RunError):
        json_of("", last)
        lines.append(last)
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        where = f"{file}, line {number}"
        failing = in_file(where)
        record: Record = typed.read("", json_of(where, line), Record, failing)
        before = records[-1].epoch if records else 0
        checks.whole_number("epoch", record.epoch, before + 1, failing=failing)
        checks.real_number("seconds", record.seconds, 0, failing=failing)
        checks.whole_number("memory", record.memory, 0, failing=failing)
        if record.step_memory is not None:
            checks.whole_number("step_memory", record.step_memory, 0, failing=failing)
        records.append(record)
    return records


def _line(record: Record) -> str:
    return json.dumps(asdict(record)) + "\n"
