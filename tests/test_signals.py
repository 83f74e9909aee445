"""Ctrl-C, a polite kill and a closed pipe outside of the loop: one line or none, never a traceback."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import COMMAND, started

pytestmark = pytest.mark.process

ENDED = {signal.SIGINT: (130, "lmc: interrupted\n"), signal.SIGTERM: (143, "lmc: terminated\n")}


def python(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", ENDED)
def test_while_a_file_is_written(tmp_path, number):
    """Within code that would swallow KeyboardInterrupt; nothing half-written is left."""
    script = f"""
import os
from pathlib import Path
from lmc.cli.signals import end_at_once_when_told
from lmc.files import write_atomically

def write(file):
    file.write(b"half")
    try:
        os.kill(os.getpid(), {int(number)})
    except BaseException:
        pass

end_at_once_when_told()
write_atomically(Path({str(tmp_path)!r}) / "a", write)
"""
    assert python(script) == ENDED[number]
    assert not list(tmp_path.iterdir())


def test_a_phase_that_is_under_way_in_a_log():
    """What is said has a line of its own."""
    script = """
import os, signal
from lmc.cli.signals import end_at_once_when_told
from lmc.runs.display import PlainLines
end_at_once_when_told()
with PlainLines() as display:
    display.on_phase("loading it")
    os.kill(os.getpid(), signal.SIGINT)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    first, second = done.stdout.splitlines()
    assert first.startswith("loading it ... ")
    assert (done.returncode, second) == (130, "lmc: interrupted")


def test_a_process_that_is_done_ends_by_its_own_code():
    """What is registered before is called after: the signal comes when nothing is left to do."""
    script = """
import atexit, os, signal, sys
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from lmc.cli.signals import end_at_once_when_told
end_at_once_when_told()
sys.exit(7)
"""
    assert python(script) == (7, "")


def test_a_signal_that_is_ignored_stays_ignored():
    script = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from lmc.cli.signals import end_at_once_when_told
end_at_once_when_told()
os.kill(os.getpid(), signal.SIGINT)
"""
    assert python(script) == (0, "")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has loaded is read in /proc")
def test_while_torch_is_being_imported(small):
    process = started("inspect", small)
    while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, "", "lmc: interrupted\n")


def test_a_reader_that_has_gone():
    """Of a text that is shorter than the buffer, so that it is written only at the end."""
    script = f"{COMMAND} --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) in ((0, ""), (1, ""))


def test_a_command_that_goes_on_says_how_where_no_model_trains():
    """As between two trials of a search."""
    script = """
import os, signal
from lmc.cli.signals import end_at_once_when_told, going_on_by
end_at_once_when_told()
with going_on_by("the same command goes on"):
    os.kill(os.getpid(), signal.SIGINT)
"""
    assert python(script) == (130, "lmc: interrupted; the same command goes on\n")
