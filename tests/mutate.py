"""Mutation testing: which small mistakes in the code does no test notice?

    python tests/mutate.py --count 100 --seed 0 --jobs 2 --out mutants.json

Each mutant is made in a copy of the tree and meets the tests nearest to it, then the quick ones, then with
`--until all` all but the long ones. It is killed when one fails, or when they do not come to an end. What is
known is in the file given by `--out`; the same command goes on from there. At the end there is a table of
those that survived: each deserves a test, or a reason.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Lock
from typing import NamedTuple

from mutants import PACKAGES, Mutant, drawn

ROOT = Path(__file__).resolve().parents[1]
QUICK = "not long and not process and not slow and not fuzz"
STAGES = {"nearest": QUICK, "quick": QUICK, "all": "not long"}
SHARED = ["test_estimators", "test_estimator_rules", "test_against_pyg"]
OF_CONVOLUTIONS = ["test_hops", "test_pairs", "test_typed_edges", "test_from_pyg"]
NEAREST = {
    "estimators": [*SHARED, "test_against_the_paper", "test_seams", "test_golden", *OF_CONVOLUTIONS],
    "nn": [
        "test_gnn",
        *OF_CONVOLUTIONS,
        "test_hooks",
        "test_locality",
        "test_threads",
        "test_inference",
        *SHARED,
        "test_load_run",
        "test_own_models",
        "test_registry",
        "test_wrong_arguments",
    ],
    "batching": ["test_batch", "test_batching", "test_balance", "test_partition", "test_seams", *SHARED],
    "kernels": ["test_kernels", "test_triton_kernels", "test_balance", "test_threads", "test_batch", *SHARED],
}
COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "pyproject.toml",
    "Makefile",
    "*.md",
    "*.yml",
    "*.txt",
    "LICENSE",
)


class Outcome(NamedTuple):
    """Of the tests: pytest's exit code, or -1 where they came to no end; those that failed; the seconds."""

    code: int
    failed: list[str]
    seconds: float


class Workshop:
    """A copy of the tree in which one mutant at a time is tested."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.kernels, self.scratch = folder / "tree", folder / "kernels", folder / "scratch"

    def renew(self, mutant: Mutant | None) -> None:
        """Make the tree anew, with the mutant in it, and nothing left of the one before."""
        for left in (self.tree, self.scratch):
            shutil.rmtree(left, ignore_errors=True)
        for folder in (self.tree, self.scratch):
            folder.mkdir(parents=True)
        for found in (found for pattern in COPIED for found in ROOT.glob(pattern)):
            if found.is_dir():
                shutil.copytree(found, self.tree / found.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(found, self.tree)
        if mutant is not None:
            file = self.tree / mutant.path
            file.write_text(mutant.of(file.read_text()))

    def test(self, package: str, stage: str, *options: str, limit: float | None = None) -> Outcome:
        """What pytest says, given these options.

        Compiled kernels are kept from one mutant to the next, unless it is they that are mutated: numba looks
        at the time of a loop's own file, not at those of the loops that it calls.
        """
        kernels = self.scratch / "kernels" if package == "kernels" else self.kernels
        environment = os.environ | {
            "PYTHONPATH": str(self.tree / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(kernels),
            "LMC_CACHE": str(self.scratch / "cache"),
            "TMPDIR": str(self.scratch),
        }
        where = []
        if stage == "nearest":
            where = [f"src/lmc/{package}", *(f"tests/{name}.py" for name in NEAREST[package])]
        usual = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]
        command = [sys.executable, "-m", "pytest", *usual, *options, "-m", STAGES[stage], *where]
        began = time.monotonic()
        with (self.scratch / "output").open("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.tree, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                _end(process)
            output.seek(0)
            failed = [line.split()[1] for line in output if line.startswith(("FAILED ", "ERROR "))]
        return Outcome(code, failed, time.monotonic() - began)


def _end(process: subprocess.Popen) -> None:
    """End a process with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True)
class Unmutated:
    """Of the tree as it is: tests that fail anyway, which say nothing, and seconds by package and stage."""

    failing: list[str]
    seconds: dict[tuple[str, str], float]

    @staticmethod
    def measured(shop: Workshop, packages: set[str], stages: list[str]) -> "Unmutated":
        shop.renew(None)
        failing, seconds = set(), {}
        for stage in stages:
            for package in sorted(packages) if stage == "nearest" else [""]:
                found = shop.test(package, stage)
                failing |= set(found.failed)
                seconds[package, stage] = found.seconds
                print(f"{package} {stage}: {found.seconds:.0f} s without a mutant", flush=True)
        if failing:
            print("left out, since they fail without a mutant:", *sorted(failing), flush=True)
        return Unmutated(sorted(failing), seconds)


def verdict(mutant: Mutant, shop: Workshop, usual: Unmutated, stages: list[str]) -> dict:
    """How a mutant fares, stage by stage."""
    package = Path(mutant.path).parts[2]
    source = (ROOT / mutant.path).read_text()
    line = source.splitlines()[mutant.line - 1].strip()
    record = {"path": mutant.path, "line": mutant.line, "kind": mutant.kind, "before": line}
    record["after"] = mutant.of(source).splitlines()[mutant.line - 1].strip()
    shop.renew(mutant)
    for stage in stages:
        limit = 60 + 4 * usual.seconds[package if stage == "nearest" else "", stage]
        left_out = [f"--deselect={name}" for name in usual.failing]
        found = shop.test(package, stage, "-x", *left_out, limit=limit)
        if found.code not in (0, 5):  # 5: there was nothing to run
            result = "timed out" if found.code == -1 else "killed"
            by = found.failed[0] if found.failed else f"exit code {found.code}"
            return record | {"result": result, "stage": stage, "by": by, "seconds": round(found.seconds, 1)}
    return record | {"result": "survived", "stage": stages[-1]}


def table(records: list[dict]) -> str:
    """Counts by package, and the survivors, in Markdown."""
    lines = ["| package | killed | timed out | survived |", "|---|---|---|---|"]
    for package in PACKAGES:
        counts = Counter(r["result"] for r in records if Path(r["path"]).parts[2] == package)
        lines.append(f"| {package} | {counts['killed']} | {counts['timed out']} | {counts['survived']} |")
    survivors = [record for record in records if record["result"] == "survived"]
    for record in sorted(survivors, key=lambda record: (record["path"], record["line"])):
        lines += ["", f"{record['path']}:{record['line']} ({record['kind']})"]
        lines += [f"    - {record['before']}", f"    + {record['after']}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants are tested at once")
    parser.add_argument("--until", choices=STAGES, default="quick", help="the last tests that a mutant meets")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    asked = parser.parse_args()
    stages = list(STAGES)[: list(STAGES).index(asked.until) + 1]
    known = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    chosen = {
        mutant.name((ROOT / mutant.path).read_text()): mutant
        for mutant in drawn(ROOT, asked.count, asked.seed)
    }
    # Those that survived fewer tests than asked for meet them now.
    settled = {n for n, r in known.items() if r["result"] != "survived" or r["stage"] in ("all", stages[-1])}
    left = {name: mutant for name, mutant in chosen.items() if name not in settled}
    print(f"{len(chosen)} mutants, {len(left)} of them still to be tested", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        shops: Queue[Workshop] = Queue()
        for place in range(asked.jobs):
            shops.put(Workshop(Path(folder) / str(place)))
        if left:
            first = shops.get()
            usual = Unmutated.measured(first, {Path(m.path).parts[2] for m in left.values()}, stages)
            shops.put(first)
        writing = Lock()

        def test(name: str) -> None:
            shop = shops.get()
            try:
                record = verdict(chosen[name], shop, usual, stages)
            finally:
                shops.put(shop)
            with writing:
                known[name] = record
                partial = asked.out.with_suffix(".partial")
                partial.write_text(json.dumps(known, indent=1) + "\n")
                partial.replace(asked.out)
                print(f"{record['result']:9} {record['path']}:{record['line']} {record['after']}", flush=True)

        with ThreadPoolExecutor(asked.jobs) as pool:
            for done in [pool.submit(test, name) for name in left]:
                done.result()
    print(table([known[name] for name in chosen]))


if __name__ == "__main__":
    main()
