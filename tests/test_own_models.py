"""Runs of models that settings do not describe: objects, and functions of one's own that are named."""

from pathlib import Path

import pytest
import torch

import lmc
import own_models
from commands import called, fails, last_weights, run
from lmc.runs import registry
from test_load_run import GRAPH, _nothing_imported, fit

__all__ = ["_nothing_imported"]

pytestmark = pytest.mark.slow


def test_an_object_is_asked_for_and_taken(tmp_path):
    from own_models import make as own

    result = fit(own(8, 4), tmp_path / "a")
    loaded = lmc.load_run(tmp_path / "a")
    assert len(loaded.metrics) == 2
    with pytest.raises(
        lmc.ArgumentError,
        match=r"its model was in memory: GNN; give it in Python: lmc\.load_run\(folder, model=",
    ):
        _ = loaded.model
    given = lmc.load_run(tmp_path / "a", model=own(8, 4))
    assert torch.equal(given.predict(GRAPH), lmc.predict(GRAPH, result.model))
    wrong = own(8, 4, width=9)
    before = {name: weight.clone() for name, weight in wrong.state_dict().items()}
    rule = r"not the weights of the model that was given \(.*: the model has \(.*9.*\), the file has \("
    with pytest.raises(lmc.RunError, match=rule):
        lmc.load_run(tmp_path / "a", model=wrong)
    assert all(torch.equal(weight, before[name]) for name, weight in wrong.state_dict().items())
    line = fails(2, "predict", tmp_path / "a", "--data", "synthetic", through=called)
    assert "its model was in memory: GNN" in line
    resumed = fails(2, "train", "--resume", tmp_path / "a", "--data", "synthetic", through=called)
    assert "model.name='in memory: GNN': was an object of a script" in resumed
    assert called("report", tmp_path / "a").returncode == 0


def test_a_model_of_pyg_can_be_given_too(tmp_path):
    from own_models import of_pyg

    result = fit(lmc.from_pyg(of_pyg(8, 4)), tmp_path / "a")
    given = lmc.load_run(tmp_path / "a", model=of_pyg(8, 4))
    assert torch.equal(given.predict(GRAPH), lmc.predict(GRAPH, result.model))


@pytest.mark.parametrize(("name", "options"), [("make", {"width": 6}), ("of_pyg", {"jk": "max"})])
def test_a_function_of_ones_own(tmp_path, name, options):
    name = f"own_models:{name}"
    result = fit(lmc.build_model(name, GRAPH, **options), tmp_path / "a")
    expected = lmc.predict(GRAPH, result.model)
    registry._OWN_MODELS.clear()  # as in another process
    with pytest.raises(
        lmc.ArgumentError, match=r"is code, and no file has it imported; name it: --model own_models:"
    ):
        _ = lmc.load_run(tmp_path / "a").model
    assert torch.equal(lmc.load_run(tmp_path / "a", model=name).predict(GRAPH), expected)
    rule = rf"its model is '{name}', not 'own_models:no_model'; name that: --model {name}"
    with pytest.raises(lmc.ArgumentError, match=rule):
        _ = lmc.load_run(tmp_path / "a", model="own_models:no_model").model


def test_a_function_on_the_command_line(small, tmp_path):
    """Trained, resumed and predicted with; a file that names it does not import it."""
    own = ["--model", "own_models:make"]
    begin = ["train", "--data", small, *own, "--set", "model.width=6", "--quiet"]
    assert called(*begin, "--epochs", 4, "--out", tmp_path / "straight").returncode == 0
    assert called(*begin, "--epochs", 2, "--out", tmp_path / "a").returncode == 0
    registry._OWN_MODELS.clear()
    for command in (["train", "--resume"], ["predict"]):
        line = fails(2, *command, tmp_path / "a", through=called)
        assert "is code, and no file has it imported; name it: --model own_models:make" in line
    for wrong, rule in (
        ("no_models:make", "model 'no_models:make': cannot be imported (No module named 'no_models')"),
        ("own_models:mak", "model 'own_models:mak': cannot be imported"),
        ("own_models:of_pyg", "its model is 'own_models:make', not 'own_models:of_pyg'; name that: --model"),
        ("gcn", "model='gcn': must be module:function, such as mymodels:make"),
    ):
        # Before a graph is loaded: there is none of this name.
        command = ["predict", tmp_path / "a", "--model", wrong, "--data", "none.npz"]
        assert rule in fails(2, *command, through=called)
    assert "is code, and no file" in fails(2, "train", tmp_path / "a" / "config.toml", through=called)
    compared = ["compare", "--data", small, *own, "--methods", "gd", "--epochs", 1, "--quiet"]
    assert called(*compared, "--out", tmp_path / "cmp").returncode == 0
    registry._OWN_MODELS.clear()
    assert "is code, and no file" in fails(2, "compare", "--resume", tmp_path / "cmp", through=called)
    wrong = fails(2, "compare", "--resume", tmp_path / "cmp", "--model", "own_models:of_pyg", through=called)
    assert wrong == "lmc: --model own_models:of_pyg: the model of the comparison is own_models:make"
    assert called("compare", "--resume", tmp_path / "cmp", *own, "--quiet").returncode == 0
    assert called("train", "--resume", tmp_path / "a", *own, "--epochs", 4, "--quiet").returncode == 0
    assert last_weights(tmp_path / "a") == last_weights(tmp_path / "straight")
    out = tmp_path / "new" / "folders" / "p.csv"
    assert called("predict", tmp_path / "a", *own, "--out", out).returncode == 0
    assert len(out.read_text().splitlines()) == 401
    assert "the model of the run is own_models:make" in fails(
        2, "train", "--resume", tmp_path / "a", "--model", "gcn", through=called
    )


@pytest.mark.process
def test_a_function_in_the_working_folder_of_the_installed_command(small, tmp_path):
    text = (
        "import lmc\n\ndef make(features, classes, width):\n    return lmc.GCNII(features, width, classes)\n"
    )
    (tmp_path / "mine.py").write_text(text)
    flags = ["--model", "mine:make", "--set", "model.width=4", "--epochs", 1, "--quiet"]
    done = run("train", "--data", small, *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (kept,) = (tmp_path / "runs").iterdir()
    assert kept.name == "small-mine.make-lmc"
    assert lmc.load_run(kept).settings["model"] == {"name": "mine:make", "width": 4}


OWN_FILE = Path(own_models.__file__)


def line_of(text):
    """Where a line of users' code is."""
    return 1 + next(place for place, line in enumerate(OWN_FILE.read_text().splitlines()) if text in line)


def test_what_a_function_of_ones_own_raises_is_one_line(small, tmp_path, monkeypatch):
    """When it makes a model, when the model runs, and when its module is imported."""
    flags = ["--data", small, "--epochs", 1, "--parts", 2, "--quiet", "--out", tmp_path / "a"]
    begin = ["train", *flags, "--model"]
    error = "ZeroDivisionError: integer division or modulo by zero"
    line = fails(2, *begin, "own_models:raises", through=called)
    place = f"({OWN_FILE}:{line_of('classes // width')}, in raises)"
    assert line == f"lmc: model 'own_models:raises': raised {error} {place}"
    line = fails(2, *begin, "own_models:raises_later", through=called)
    place = f"({OWN_FILE}:{line_of('a weight')}, in forward)"
    assert line == f"lmc: layers[0] (_Fails): raised KeyError: 'a weight' {place}"
    line = fails(1, *begin, "own_models:raises_in_step", through=called)
    place = f"({OWN_FILE}:{line_of('[][len(x)]')}, in forward)"
    assert line == f"lmc: code of yours raised IndexError: list index out of range {place}"
    (tmp_path / "unready.py").write_text("import lmc\n1 // 0\n")
    monkeypatch.chdir(tmp_path)
    line = fails(2, *begin, "unready:make", through=called)
    place = f"({tmp_path / 'unready.py'}:2, in <module>)"
    assert line == f"lmc: model 'unready:make': cannot be imported ({error} {place})"


def test_a_mistake_of_ours_keeps_its_traceback(small, monkeypatch):
    """Raised where no code of a user runs: by Python, for a value that is of the wrong type."""
    monkeypatch.setattr("lmc.runs.run.prepare_training", None)
    with pytest.raises(TypeError, match="not callable"):
        called("train", "--data", small, "--epochs", 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("own_models:make", {"with": 3}, "setting='with': must be one of width, scale"),
        ("own_models:nothing", {}, r"cannot be imported \(module 'own_models' has no attribute"),
        ("no_such_module:make", {}, r"cannot be imported \(No module named 'no_such_module'"),
        ("own_models:no_model", {}, "own_models:no_model: a Linear; must be an lmc model"),
        ("gcm", {}, "did you mean 'gcn'"),
    ],
)
def test_wrong_names_are_one_line(name, options, message):
    with pytest.raises(lmc.ArgumentError, match=message) as raised:
        lmc.build_model(name, GRAPH, **options)
    assert len(str(raised.value).splitlines()) == 1
