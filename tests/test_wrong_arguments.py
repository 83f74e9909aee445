"""What people give by mistake is one line; what surrounds a call does not change its result."""

import pytest
import torch

import lmc
from commands import called as run_here
from commands import fails
from lmc.cli.train import _say


@pytest.fixture(scope="module")
def graph():
    return lmc.synthetic(nodes=200, features=8, seed=1)


@pytest.fixture(scope="module")
def model(graph):
    return lmc.GCN(graph.num_features, 8, graph.num_classes)


@pytest.mark.parametrize(
    "call",
    [
        lambda data, model: lmc.predict(data, model),
        lambda data, model: lmc.partition(data, 4),
        lambda data, model: lmc.batches(data, torch.zeros(200, dtype=torch.long)),
        lambda data, model: lmc.fit(data, model, lmc.LMC(), parts=4),
        lambda data, model: lmc.LMC().bind(model, data),
        lambda data, model: lmc.normalize(data),
        lambda data, model: lmc.reserved_messages(data, torch.zeros(200, dtype=torch.long)),
    ],
)
def test_data_of_pyg_in_the_place_of_a_graph(graph, model, call):
    with pytest.raises(lmc.ArgumentError, match=r"graph: Data is not an lmc.Graph; lmc.Graph.from_pyg"):
        call(graph.to_pyg(), model)
    with pytest.raises(lmc.ArgumentError, match=r"graph: NoneType is not an lmc.Graph$"):
        call(None, model)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: lmc.GCN(8, 8, 3, dropout=None), "dropout=None: must be a number"),
        (lambda: lmc.GCN(8, 8, 3, input_dropout="0.5"), "dropout='0.5': must be a number"),
        (lambda: lmc.GCNII(8, 8, 3, dropout=True), "dropout=True: must be a number"),
        (lambda: lmc.GCNII(8, 8, 3, alpha="0.1"), "alpha='0.1': must be a number"),
        (lambda: lmc.GCNII(8, 8, 3, theta=None), "theta=None: must be a number"),
        (lambda: lmc.LMC(alpha="0.4"), "alpha='0.4': must be in [0, 1] or 'auto'"),
        (lambda: lmc.GraphFM(momentum=None), "momentum=None: must be a number"),
        (lambda: lmc.load("flickr", root="/tmp/a\0b"), "root='/tmp/a\\x00b': must be a path"),
    ],
)
def test_values_of_another_type(make, line):
    with pytest.raises(lmc.ArgumentError) as raised:
        make()
    assert str(raised.value) == line


def test_a_graph_in_the_place_of_data_of_pyg(graph):
    with pytest.raises(lmc.ArgumentError, match=r"^data: is an lmc.Graph already"):
        lmc.Graph.from_pyg(graph)


@pytest.mark.filterwarnings("ignore:the graph has no features")
def test_a_model_of_features_on_a_graph_without(model):
    bare = lmc.Graph([[0, 1], [1, 0]], y=[0, 1], train_mask=[True, True])
    with pytest.raises(lmc.ArgumentError, match=r"0 features .*graph\.with_features\('structure'\)"):
        lmc.fit(bare, model, lmc.FullBatch(), epochs=1)


@pytest.mark.parametrize("arguments", [["inspect", "empty"], ["report", "empty"], ["predict", "empty"]])
def test_a_folder_that_holds_nothing(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    line = "not a graph (" if arguments[0] == "inspect" else "not the folder of a run ("
    said = run_here(*arguments).stderr
    assert said.startswith("lmc: empty: ")
    assert line in said


def test_the_last_line_breaks_between_words(monkeypatch, capsys):
    line = "finished: runs/a; `lmc report runs/a` shows it"
    monkeypatch.setenv("COLUMNS", "33")
    for terminal, lines in (("1", 2), ("", 1)):
        monkeypatch.setenv("FORCE_COLOR", terminal)
        _say(line)
        said = capsys.readouterr().out.splitlines()
        assert (len(said), " ".join(map(str.strip, said))) == (lines, line)


@pytest.mark.parametrize("wrong", ["", "/tmp/a\0b", 3])
def test_paths_that_name_nothing(graph, model, wrong):
    with pytest.raises(lmc.ArgumentError, match=r"out=.*: must be a path"):
        lmc.fit(graph, model, lmc.LMC(), parts=4, epochs=1, out=wrong)
    with pytest.raises(lmc.ArgumentError, match=r"path=.*: must be a path"):
        graph.save(wrong)


@pytest.mark.parametrize(
    "arguments", [["report", "run", "--out", ""], ["train", "--out", ""], ["predict", "a\0b"], ["train", ""]]
)
def test_paths_that_name_nothing_on_the_command_line(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    assert "must be a path" in fails(2, *arguments, through=run_here)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_either_kernels")
@pytest.mark.parametrize("init", ["zero", "exact"])
def test_autocast_around_a_call_changes_nothing(graph, init):
    def trained():
        torch.manual_seed(0)
        model = lmc.GCN(graph.num_features, 8, graph.num_classes, norm="batch", dropout=0.5)
        options = {"epochs": 2, "init": init, "gradient_error_every": 1, "background": False}
        result = lmc.fit(graph, model, lmc.LMC(), parts=4, parts_per_batch=2, **options)
        errors = [record.gradient_error for record in result.history]
        return [record.loss for record in result.history], errors, lmc.predict(graph, model)

    plain = trained()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = trained()
    assert within[:2] == plain[:2]
    assert torch.equal(within[2], plain[2])
