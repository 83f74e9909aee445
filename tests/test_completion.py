"""What a shell offers when Tab is pressed."""

import json
import os
import subprocess
import sys
from typing import get_args

import pytest
from click.shell_completion import ShellComplete

from commands import called, fails
from lmc.cli import completion
from lmc.cli.commands import lmc as program
from lmc.data.made_features import Made
from lmc.data.published import PUBLISHED
from lmc.estimators.lmc import Score
from lmc.nn.activation import NormKind
from lmc.precision import Precision
from lmc.runs.presets import PRESETS
from lmc.runs.registry import METHODS, MODELS
from lmc.training.optimizers import OPTIMIZERS, SCHEDULERS
from test_start import HEAVY


def offered(*words):
    *before, incomplete = words
    found = ShellComplete(program, {}, "lmc", "_LMC_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in found]


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--method", METHODS),
        ("--model", MODELS),
        ("--preset", PRESETS),
        ("--features", get_args(Made)),
        ("--score", get_args(Score)),
        ("--norm", get_args(NormKind)),
        ("--precision", get_args(Precision)),
        ("--optimizer", OPTIMIZERS),
        ("--scheduler", SCHEDULERS),
        ("--alpha", ["auto"]),
        ("--checkpoint", ["none", "last"]),
    ],
)
def test_values_of_flags_are_those_that_the_library_takes(flag, values):
    assert offered("train", flag, "") == list(values)


def test_names_of_graphs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LMC_DATA", str(tmp_path))
    (tmp_path / "mine.npz").touch()
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "graph.json").touch()
    assert set(offered("inspect", "")) == {"synthetic", *PUBLISHED, "mine", "saved"}
    assert offered("train", "--data", "mi") == ["mine"]
    assert offered("predict", "run", "--data", "./mi") == ["./mi"]  # the shell looks for files itself


def test_commands_flags_and_lists():
    assert offered("tr") == ["train"]
    assert "--parts-per-batch" in offered("train", "--parts")
    assert offered("compare", "--methods", "gd,gas,g") == []
    assert offered("compare", "--methods", "gd,g") == ["gd,gas"]
    assert offered("completion", "") == list(completion.SHELLS)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_what_a_shell_reads(shell):
    done = called("completion", shell)
    assert done.returncode == 0, done.stderr
    assert f"_LMC_COMPLETE={shell}_complete" in done.stdout
    assert "tcsh" in fails(2, "completion", "tcsh", through=called)


@pytest.mark.process
def test_an_answer_loads_nothing_heavy():
    script = """
import json, sys
from lmc.cli import main
try:
    main()
except SystemExit:
    print(json.dumps([*sys.modules]))
"""
    asked = {"_LMC_COMPLETE": "bash_complete", "COMP_WORDS": "lmc train --method lm", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | asked,
        timeout=60,
    )
    answer, modules = done.stdout.splitlines()
    assert answer == "plain,lmc"
    assert {name.partition(".")[0] for name in json.loads(modules)}.isdisjoint(HEAVY)
