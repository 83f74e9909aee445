"""The scripts and notebooks in examples/, run as they stand."""

import json
import runpy
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
TEXT = (ROOT / "README.md").read_text() + (ROOT / "examples" / "README.md").read_text()


@pytest.fixture
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    """In this process: what they load is loaded already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matplotlib.rcParams, "backend", "agg", raising=False)


@pytest.mark.slow
@pytest.mark.usefixtures("_in_a_folder_of_its_own")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_and_draws_its_picture(script, capsys):
    runpy.run_path(str(script), run_name="__main__")
    assert Path(f"{script.stem}.png").stat().st_size > 5000
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("_in_a_folder_of_its_own")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(notebook, tmp_path):
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code
    (tmp_path / "cells.py").write_text("\n\n".join(code))
    runpy.run_path("cells.py")


@pytest.mark.parametrize("example", [*SCRIPTS, *NOTEBOOKS], ids=lambda path: path.name)
def test_every_example_is_named_and_shown(example):
    assert TEXT.count(example.name) >= 2
    assert (ROOT / "docs" / "images" / "examples" / f"{example.stem}.png").is_file()
