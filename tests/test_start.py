"""What is loaded when: names of the package, the command line, threads."""

import ast
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import lmc
from commands import called

HEAVY = (
    "torch",
    "numpy",
    "numba",
    "scipy",
    "matplotlib",
    "jinja2",
    "pyarrow",
    "rich",
    "torch_geometric",
    "safetensors",
)


def python(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def seen_by_type_checkers():
    """Name -> module, of the imports under `if TYPE_CHECKING`."""
    tree = ast.parse(Path(lmc.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and node.test.id == "TYPE_CHECKING")
    return {name.name: node.module for node in block.body for name in node.names}


def test_the_lists_of_public_names_agree():
    assert list(lmc._MODULE_OF) == lmc.__all__
    assert seen_by_type_checkers() == lmc._MODULE_OF


@pytest.mark.parametrize(("name", "module"), lmc._MODULE_OF.items())
def test_every_public_name_is_of_its_module(name, module):
    value = getattr(lmc, name)
    assert value is getattr(import_module(module), name)
    assert value.__module__ == module
    assert name in dir(lmc)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'lmc' has no attribute 'LCM'"):
        _ = lmc.LCM


@pytest.mark.process
@pytest.mark.parametrize(
    "statement", ["import lmc", "import lmc, lmc.cli, lmc.checks", "from lmc import RunError"]
)
def test_nothing_heavy_is_loaded_before_it_is_used(statement):
    script = f"import json, sys; {statement}; print(json.dumps([*sys.modules]))"
    loaded = {name.partition(".")[0] for name in json.loads(python("-c", script))}
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.process
def test_the_package_runs_as_a_module():
    assert python("-m", "lmc", "--version").strip().endswith(lmc.__version__)


def test_the_bare_command_shows_the_help():
    bare = called()
    assert (bare.returncode, bare.stderr) == (0, "")
    assert bare.stdout == called("--help").stdout
    for command in (
        "train",
        "compare",
        "tune",
        "demo",
        "predict",
        "import",
        "inspect",
        "report",
        "bench",
        "paper",
    ):
        assert f"\n  {command} " in bare.stdout


@pytest.mark.process
@pytest.mark.parametrize("order", ["lmc, torch", "torch, lmc"])
def test_threads_are_those_asked_for(order):
    script = f"import {order}; print(torch.get_num_threads())"
    assert int(python("-c", script, LMC_THREADS="3", OMP_NUM_THREADS="1")) == 3


@pytest.mark.process
@pytest.mark.parametrize("wrong", ["two", "0", "-1"])
def test_a_wrong_number_of_threads_is_named(wrong):
    script = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    import lmc\n"
        "print(*(w.message for w in seen))"
    )
    line = f"LMC_THREADS={wrong!r} is ignored: must be a whole number, 1 or more"
    assert python("-c", script, LMC_THREADS=wrong).strip() == line
