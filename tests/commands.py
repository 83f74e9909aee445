"""The installed command, as a person would call it."""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

from lmc.cli import main

COMMAND = str(Path(sys.executable).with_name("lmc"))
ENDLESS = 1_000_000  # epochs: the run does not end before it is stopped
TIMES = ("seconds", "memory", "step_memory")


def run(*arguments, cwd=None, timeout=120, **environment):
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=os.environ | environment,
    )


def called(*arguments):
    """The same command in this process, which saves the seconds that torch takes to load."""
    out, err = io.StringIO(), io.StringIO()
    showwarning = warnings.showwarning
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            main([*map(str, arguments)])
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            warnings.showwarning = showwarning
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def started(*arguments, cwd=None):
    return subprocess.Popen(
        [COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )


def complaints(done):
    """The lines that a command wrote to stderr, but for the one that says that kernels are compiled."""
    return [line for line in done.stderr.splitlines() if not line.startswith("lmc: compiling")]


def fails(code, *arguments, through=run, **options):
    """The one line that a wrong call says."""
    done = through(*arguments, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    lines = complaints(done)
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("lmc: ")
    return lines[0]


def arguments(graph, method="lmc", epochs=10):
    sizes = ["--hidden", "8", "--layers", "2", "--dropout", "0.3", "--norm", "batch"]
    batches = ["--parts", "6", "--parts-per-batch", "2"]
    return ["--data", graph, *sizes, "--method", method, *batches, "--epochs", epochs]


def written_epochs(folder):
    """How many epochs a run has written down."""
    file = folder / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for_epochs(folder, number, process):
    """Until a running process has written this many more epochs than it has now."""
    before = written_epochs(folder)
    while written_epochs(folder) < before + number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def metrics(folder):
    """The records of a run without what depends on the clock and the machine."""
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def best_weights(folder):
    return (Path(folder) / "best.safetensors").read_bytes()


def last_weights(folder):
    """All tensors of the last checkpoint, byte for byte."""
    from safetensors import safe_open

    file = sorted((Path(folder) / "checkpoints").glob("*.safetensors"))[-1]
    with safe_open(file, "np") as opened:
        return {name: opened.get_tensor(name).tobytes() for name in opened.keys()}  # noqa: SIM118
