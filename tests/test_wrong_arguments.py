"""What people give by mistake is one line; what surrounds a call does not change its result."""

import re
import warnings

import pytest
import torch
from torch_geometric.nn import GCNConv, GraphSAGE
from torch_geometric.nn.models import GCN

import lmc
from commands import called as run_here
from commands import fails
from lmc.cli.train import _say
from lmc.runs.config import Config


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
        (lambda: lmc.load(None), "name_or_path=None: must be a path"),
        (lambda: lmc.read_tables(7), "edges=7: must be a path"),
        (lambda: lmc.read_tables("edges.csv", labels=[1]), "labels=[1]: must be a path"),
        (lambda: lmc.GCN(8, 8, -1), "out_features=-1: must be 1 or more"),
        (lambda: lmc.GCN(8, 8, 0), "out_features=0: must be 1 or more"),
        (lambda: lmc.GCN("8", 8, 3), "in_features='8': must be an integer"),
        (lambda: lmc.GCN(8, True, 3), "hidden=True: must be an integer"),
        (lambda: lmc.GCNII(8, 8, 3.0), "out_features=3.0: must be an integer"),
        (lambda: lmc.GCNII(-1, 8, 3), "in_features=-1: must be 0 or more"),
        (lambda: lmc.SIGN(8, 32, 3), "graph: int is not an lmc.Graph"),
        (
            lambda: lmc.probabilities(torch.zeros(2)),
            "prediction has shape (2,): must be (nodes, out), a row per node",
        ),
        (
            lambda: lmc.probabilities([[0.0]]),
            "prediction: list is not a tensor, such as of lmc.predict",
        ),
        (
            lambda: lmc.from_pyg(GraphSAGE),
            "model: GraphSAGE is a class; from_pyg takes a model, GraphSAGE(...)",
        ),
        (
            lambda: lmc.from_pyg(lmc.GCN(8, 8, 3)),
            "model: is an lmc model already; from_pyg takes one of PyG",
        ),
        (
            lambda: lmc.load_run("runs/none", model=3),
            "model=3: must be a model, 'module:function' or None",
        ),
    ],
)
def test_values_of_another_type(make, line):
    with pytest.raises(lmc.ArgumentError) as raised:
        make()
    assert str(raised.value) == line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"parts": True}, "parts=True: must be an integer"),
        ({"epochs": 0}, "epochs=0: must be 1 or more"),
        (
            {"partition": "meti"},
            "partition='meti': must be one of auto, metis, kaminpar, stream, bfs, random "
            "(did you mean 'metis'?)",
        ),
        ({"callbacks": "csv"}, "callbacks='csv': must be one of tensorboard, wandb, mlflow"),
    ],
)
def test_options_of_fit(graph, model, options, line):
    with pytest.raises(lmc.ArgumentError) as raised:
        lmc.fit(graph, model, lmc.LMC(), **options)
    assert str(raised.value) == line


def test_another_number_of_classes_than_the_graph_has(graph):
    def trained(classes, graph=graph):
        lmc.fit(graph, lmc.GCN(8, 8, classes), lmc.GAS(), parts=4, epochs=1)

    with pytest.raises(lmc.ArgumentError, match=r"^model: predicts 9 columns; the graph's labels need 10$"):
        trained(9)
    with warnings.catch_warnings(record=True) as said:
        warnings.resetwarnings()  # as outside of tests: the same line is said once
        trained(12)
    rule = "where there are 12, num_classes=12 of the graph says so"
    line = f"model: predicts 12 classes, and the graph has 10; {rule}"
    assert [str(each.message) for each in said] == [line]
    trained(12, lmc.Graph.from_pyg(graph.to_pyg(), num_classes=12))


def test_a_model_of_which_nothing_is_trained(graph):
    model = lmc.GCN(graph.num_features, 8, graph.num_classes).requires_grad_(False)
    with pytest.raises(lmc.ArgumentError, match=r"^model: has no parameter with requires_grad=True"):
        lmc.fit(graph, model, lmc.GAS(), parts=4, epochs=1)
    model.layers[0].linear.bias.requires_grad_(True)
    lmc.fit(graph, model, lmc.GAS(), parts=4, epochs=1)


def test_a_loss_of_ones_own_that_is_no_number(graph, model):
    with pytest.raises(lmc.DivergedError, match=r"step 1: the loss is nan: the function loss= may give such"):
        lmc.fit(graph, model, lmc.GAS(), parts=4, epochs=1, loss=lambda out, y: out[:, 0] * float("nan"))


def test_one_batch_in_the_place_of_several(graph, model):
    estimator = lmc.GAS()
    estimator.bind(model, graph)
    with pytest.raises(
        lmc.ArgumentError, match=r"^batches: Batch is not iterable; must be a list of batches"
    ):
        lmc.gradient_error(graph, model, estimator, graph.batch([0]))


def test_what_is_no_estimator_or_no_batches(graph, model):
    with pytest.raises(
        lmc.ArgumentError, match=r"^estimator: 'lmc' is not an lmc.Estimator, such as lmc.LMC"
    ):
        lmc.gradient_error(graph, model, "lmc", [])
    with pytest.raises(lmc.ArgumentError, match=r"^items=3: must be batches, such as of lmc.batches"):
        list(lmc.prefetch(3))


def test_a_command_that_is_suggested_can_be_typed(tmp_path, monkeypatch):
    """Also where a name has a space."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my edges.csv").write_text("source,target\na,b\n")
    line = fails(2, "inspect", "my edges.csv", through=run_here)
    assert "`lmc import 'my edges.csv' --out FOLDER`" in line
    done = run_here("import", "my edges.csv", "--out", "my graph")
    assert "`lmc predict RUN --data 'my graph'` predicts it" in done.stdout


def test_a_model_that_is_called_as_those_of_pyg(graph, model):
    data = graph.to_pyg()
    with pytest.raises(lmc.ArgumentError, match=r"^model: takes one lmc.Graph, not 2 arguments"):
        model(data.x, data.edge_index)
    with pytest.raises(lmc.ArgumentError, match=r"^graph: Data is not an lmc.Graph; lmc.Graph.from_pyg"):
        model(data)


def test_a_graph_in_the_place_of_data_of_pyg(graph):
    with pytest.raises(lmc.ArgumentError, match=r"^data: is an lmc.Graph already"):
        lmc.Graph.from_pyg(graph)
    with pytest.raises(lmc.GraphError, match=r"^data: str is not a Data or a HeteroData of PyG$"):
        lmc.Graph.from_pyg("cora")
    with pytest.raises(lmc.GraphError, match=r"^data: list is not one Data; Graph.from_pyg_list takes"):
        lmc.Graph.from_pyg([graph.to_pyg()])
    with pytest.raises(lmc.GraphError, match=r"^graphs\[1\]: NoneType is not a Data"):
        lmc.Graph.from_pyg_list([graph.to_pyg(), None])


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


def test_a_name_that_is_too_long_for_a_folder(graph, model):
    with pytest.raises(lmc.RunError, match=r"^a+: cannot be written to \(File name too long"):
        lmc.fit(graph, model, lmc.LMC(), parts=4, epochs=1, out="a" * 300)


def test_a_folder_that_cannot_be_written_is_said_before_a_graph_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(Config, "load_graph", lambda *_, **__: pytest.fail("a graph is loaded"))
    (tmp_path / "file").touch()
    line = fails(1, "train", "--data", "synthetic", "--out", tmp_path / "file" / "a", through=run_here)
    assert line == f"lmc: {tmp_path / 'file' / 'a'}: cannot be made (Not a directory); --out names another"
    (tmp_path / "new" / "a").mkdir(parents=True)
    full = tmp_path / "new" / "a"
    monkeypatch.setattr("lmc.files.os.access", lambda place, _: place != full)  # root may write anywhere
    line = fails(1, "train", "--data", "synthetic", "--out", tmp_path / "new" / "a", through=run_here)
    assert line == f"lmc: {tmp_path / 'new' / 'a'}: cannot be written to (closed to writing)"


@pytest.mark.parametrize("wrong", ["", "/tmp/a\0b", 3])
def test_paths_that_name_nothing(graph, model, wrong):
    with pytest.raises(lmc.ArgumentError, match=r"out=.*: must be a path"):
        lmc.fit(graph, model, lmc.LMC(), parts=4, epochs=1, out=wrong)
    with pytest.raises(lmc.ArgumentError, match=r"path=.*: must be a path"):
        graph.save(wrong)
    with pytest.raises(lmc.ArgumentError, match=r"path=.*: must be a path"):
        lmc.Graph.open(wrong)


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


def test_more_clusters_a_batch_than_there_are_is_warned_of(graph):
    clusters = lmc.partition(graph, 4)
    with pytest.warns(UserWarning, match="parts_per_batch=30: there are 4 clusters, so a batch is the whole"):
        (batch,) = lmc.batches(graph, clusters, 30)
    assert batch.num_nodes == 200


def test_a_hand_written_model_is_led_to_its_convolutions(graph):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(8, 10)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).relu()

    with pytest.raises(lmc.ArgumentError, match=r"lmc.GNN\(layers=\[...\]\) takes convolutions"):
        lmc.fit(graph, Block(), lmc.LMC())
    with pytest.raises(lmc.ArgumentError, match=r"no bipartite form.*can be a layer by itself"):
        lmc.fit(graph, lmc.GNN([Block()]), lmc.LMC())


def test_spaces_between_methods_do_not_matter(tmp_path):
    given = ("--parts", "4", "--epochs", "1", "--hidden", "4", "--out", tmp_path / "x")
    done = run_here("compare", "--methods", "gas, cluster", *given)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lmc.GCN(4, 8, 3).to("meta"), "is on the device 'meta', without a value"),
        (lambda: torch.compile(lmc.GCN(4, 8, 3)), "torch.compile has wrapped GCN: give it uncompiled"),
        (lambda: in_inference_mode(lambda: lmc.GCN(4, 8, 3)), "was made in torch.inference_mode(): nothing"),
    ],
)
def test_models_that_cannot_be_trained_as_they_are(make, message):
    small = lmc.synthetic(nodes=50, features=4, classes=3)
    with pytest.raises(lmc.ArgumentError, match=re.escape(message)):
        lmc.fit(small, make(), lmc.GAS(), parts=4, epochs=1)


def in_inference_mode(make):
    with torch.inference_mode():
        return make()


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_compiled_model_of_pyg_is_asked_for_uncompiled():
    with pytest.raises(lmc.ArgumentError, match=r"torch\.compile has wrapped GCN: give it uncompiled"):
        lmc.from_pyg(torch.compile(GCN(4, 8, 2, 3)))
