"""What can be said of settings without a graph is said before one is loaded."""

import pytest

import lmc
from commands import called, complaints, fails
from lmc.runs.config import Config
from lmc.runs.registry import METHODS, MODELS

WRONG = [
    (("--lr", -1), "lr=-1.0: must be 0 or more"),
    (("--optimizer", "adm"), "optimizer='adm': must be one of adam, adamw"),
    (("--scheduler", "cos"), "scheduler='cos': must be one of cosine, plateau"),
    (("--alpha", 7), "alpha=7: must be in [0, 1] or 'auto'"),
    (("--dropout", 3), "dropout=3.0: must be in [0, 1)"),
    (("--hidden", 0), "hidden=0: must be 1 or more"),
    (("--layers", 0, "--model", "gcnii"), "layers=0: must be 1 or more"),
    (("--metric", "f7"), "metrics='f7': must be one of accuracy"),
    (("--parts", 4, "--parts-per-batch", 9), "parts_per_batch=9: must be at most parts=4"),
]


@pytest.mark.parametrize(("options", "line"), WRONG)
@pytest.mark.parametrize("command", [("train",), ("train", "--seeds", 2), ("compare", "--methods", "lmc")])
def test_before_a_graph_is_loaded(tmp_path, monkeypatch, command, options, line):
    monkeypatch.setattr(Config, "load_graph", lambda *_, **__: pytest.fail("a graph is loaded"))
    command = (*command, "--data", "synthetic", *options, "--out", tmp_path / "a")
    assert line in fails(2, *command, through=called)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", [{}, {"layers": 3, "hidden": 12, "dropout": 0.5}])
def test_what_is_right_passes(model, options):
    for method in (name for name, kind in METHODS.items() if kind.model in (None, model)):
        Config.of({"model": {"name": model, **options}, "method": {"name": method}}).check_values()


def test_fewer_epochs_than_a_run_has(small, tmp_path, monkeypatch):
    """Said of the run's files alone: before a graph is loaded, and before it is cut."""
    folder, graph = tmp_path / "a", lmc.Graph.open(small)
    model = lmc.GCN(graph.num_features, 4, graph.num_classes)
    given = (graph, model, lmc.GAS(), 4)
    lmc.fit(*given, epochs=3, out=folder)
    monkeypatch.setattr(Config, "load_graph", lambda *_, **__: pytest.fail("a graph is loaded"))
    monkeypatch.setattr("lmc.runs.fit.prepare_training", lambda *_, **__: pytest.fail("it is cut"))
    line = f"{folder}: epochs=2: the run has 3 already; epochs count from its beginning"
    assert fails(2, "train", "--resume", folder, "--epochs", 2, through=called) == f"lmc: {line}"
    with pytest.raises(lmc.ArgumentError) as raised:
        lmc.fit(*given, epochs=2, out=folder, resume=True)
    assert str(raised.value) == line
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    line = fails(1, "train", "--resume", folder, "--checkpoint", "none", through=called)
    assert 'checkpoint="none" keeps nothing to go on from' in line


def test_flags_that_cannot_matter(tmp_path):
    common = ("--hidden", 4, "--epochs", 1, "--quiet")
    line = fails(2, "compare", "--methods", "gas,gd", "--alpha", 0.3, *common, through=called)
    assert line == "lmc: method.alpha=0.3: none of the methods gas, gd has it"
    done = called("train", "--method", "gd", "--parts", 8, *common, "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    line = "lmc: warning: --parts: gd has no clusters, so this changes nothing"
    assert complaints(done) == [line]
    done = called("compare", "--methods", "gd,lmc", "--alpha", 0.3, *common, "--out", tmp_path / "b")
    assert (done.returncode, complaints(done)) == (0, [])


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["train", "cora"], "graphs are named by --data cora"),
        (
            ["compare", "--methods", "gas", "lmc"],
            "methods follow one option, with commas, as in --methods gas,lmc",
        ),
    ],
)
def test_a_graph_or_a_method_in_the_place_of_a_file_of_settings(typed, hint):
    line = fails(2, *typed, through=called)
    assert line == f"lmc: {typed[-1]}: there is no such file of settings; {hint}"
