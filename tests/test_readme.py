"""The README's examples, run as they stand."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import lmc

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.process
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_run(example, tmp_path):
    command = [sys.executable, "-W", "error::UserWarning", "-c", example]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("page", "count"), [("models.md", 8), ("many_runs.md", 2)])
def test_examples_of_the_guides_run(page, count, tmp_path, monkeypatch):
    """In this process: what they load is loaded already."""
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / page).read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == count
    for example in examples:
        file = tmp_path / "example.py"
        file.write_text(example)
        runpy.run_path(str(file))


def test_no_two_snippets_write_into_the_same_folder():
    """A reader may follow all pages in one working folder."""
    root = Path(__file__).parents[1]
    texts = [README, *(page.read_text() for page in sorted((root / "docs").glob("*.md")))]
    snippets = [
        block for text in texts for block in re.findall(r"```(?:console|python)\n(.*?)```", text, re.DOTALL)
    ]
    named = re.findall(r"""(?:--out |\bout=")([\w./-]+)""", "\n".join(snippets))
    assert len(named) > 12
    assert sorted(named) == sorted(set(named))


def test_every_promise_names_a_test_that_exists():
    text = (Path(__file__).parents[1] / "docs" / "guarantees.md").read_text()
    named = re.findall(r"`(test_\w+)::(test_\w+)`( †)?", text)
    assert len(named) > 20
    for file, test, long in named:
        written = (Path(__file__).parent / f"{file}.py").read_text()
        assert f"\ndef {test}(" in written, test
        assert bool(long) == (f"@pytest.mark.long\ndef {test}(" in written), test


def test_the_map_is_the_tree():
    root = Path(__file__).parents[1] / "src" / "lmc"
    rows = re.findall(r"^\| (.*?) \|", README.split("## Map of the files")[1], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w/.]+)`", row) if name != "src/lmc/"]
    assert len(named) == len(set(named))
    files = {str(path.relative_to(root)) for path in root.rglob("*.py") if path.name != "__init__.py"}
    packages = {f"{path.parent.name}/" for path in root.glob("*/__init__.py")}
    assert set(named) == files | packages


def test_every_public_name_has_its_place_in_the_reference():
    pages = (Path(__file__).parents[1] / "docs" / "api").glob("*.md")
    documented = re.findall(r"^::: lmc\.(\w+)$", "\n".join(page.read_text() for page in pages), re.MULTILINE)
    assert sorted(documented) == sorted(lmc.__all__)
