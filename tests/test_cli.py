import json
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


def test_bench_and_compare(tmp_path):
    out = tmp_path / "numbers.json"
    first = run("bench", "--data", "synthetic", "--quick", "--rounds", "1", "--out", str(out))
    assert first.returncode == 0, first.stderr
    assert "LMC 80/40" in first.stdout
    raw = json.loads(out.read_text())
    assert all(len(measured) == 1 and measured[0] > 0 for measured in raw["seconds"].values())
    assert raw["machine"]["torch"]
    again = run("bench", "--data", "synthetic", "--quick", "--rounds", "1", "--compare", str(out))
    assert again.returncode == 0, again.stderr
    assert "Against" in again.stdout


def test_a_missing_graph_is_one_line():
    done = run("bench", "--data", "nowhere")
    assert done.returncode == 1
    assert "data set 'nowhere' is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help():
    import lmc

    assert lmc.__version__ in run("--version").stdout
    assert "demo" in run("--help").stdout
