import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("lmc")


def run(*arguments):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=120)


def test_demo_shows_what_a_batch_holds():
    done = run("demo")
    assert done.returncode == 0, done.stderr
    assert "20,000 nodes" in done.stdout
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [row[0] for row in cells] == ["1", "5", "10", "20", "40"]
    assert cells[-1][2:4] == ["20,000", "0"]
    assert cells[-1][5] == "100%"
    shares = [int(row[5].rstrip("%")) for row in cells]
    assert shares == sorted(shares)


def test_version_and_help():
    import lmc

    assert lmc.__version__ in run("--version").stdout
    assert "demo" in run("--help").stdout
