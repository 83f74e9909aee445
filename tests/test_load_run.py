"""A run folder alone gives the model back: any of ours, any of PyG; one's own by a function that is named."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.nn import models

import lmc
from commands import called, fails, last_weights, metrics
from lmc.data.set_once import with_arrays
from lmc.runs import checkpoint, registry
from lmc.runs.description import alike, model_settings
from lmc.runs.models import built, degree_histogram
from pyg_models import EVERY, OPTIONS, PARTICULAR, by_pyg, graph_with, make

pytestmark = pytest.mark.slow

GRAPH = lmc.synthetic(nodes=200, features=8, classes=4)
SIZES = {"parts": 4, "parts_per_batch": 2, "epochs": 2}
UNNAMED = ("a function",)  # options that are objects
OURS = {
    "gcn": lambda: lmc.GCN(8, [6, 7], 4, layers=3, norm="batch", dropout=0.3, input_dropout=0.1),
    "gcn with ends": lambda: lmc.GCN(8, 6, 4, residual=True, linear_in=True, linear_out=True, norm=None),
    "gcnii": lambda: lmc.GCNII(8, 6, 4, layers=3, alpha=0.2, theta=1.0, shared_weights=False, norm="layer"),
    "more columns than classes": lambda: lmc.GCN(8, 6, 9),
}


@pytest.fixture(autouse=True)
def _nothing_imported(monkeypatch):
    monkeypatch.setattr(registry, "_OWN_MODELS", {})


def fit(model, folder, graph=GRAPH, estimator=None, **options):
    return lmc.fit(graph, model, estimator or lmc.LMC(), **SIZES | options, out=folder)


# -- what is given back -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:model. predicts 9 classes")
@pytest.mark.parametrize("name", OURS)
def test_a_model_of_ours(tmp_path, name):
    result = fit(OURS[name](), tmp_path / "a")
    expected = lmc.predict(GRAPH, result.model)
    loaded = lmc.load_run(str(tmp_path / "a"))
    assert torch.equal(loaded.predict(GRAPH), expected)
    assert alike(loaded.model, result.model)
    assert [record.loss for record in loaded.metrics] == [record.loss for record in result.history]
    assert loaded.settings["training"]["parts_per_batch"] == 2
    assert loaded.task == "multiclass"


KINDS = ["GCN", "SAGE mean", "GIN", "GAT", "GATv2", "EdgeCNN", "GAT of edges", "PNA of edges, towers"]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_a_model_of_pyg_are_those_of_the_plain_one(tmp_path, kind):
    """In a plain model of PyG by its own names, and in the one that the folder gives."""
    graph = graph_with("undirected")
    options = {} if kind in PARTICULAR else {"norm": "BatchNorm", "dropout": 0.2, "jk": "cat"}
    fit(lmc.from_pyg(make(kind, **options)), tmp_path / "a", graph, partition="random")
    plain = make(kind, seed=9, **options)
    plain.load_state_dict(load_file(tmp_path / "a" / "best.safetensors"))
    expected = by_pyg(plain.eval(), graph)
    loaded = lmc.load_run(tmp_path / "a")
    assert not loaded.settings["model"]["name"].startswith("in memory")
    assert torch.allclose(loaded.predict(graph), expected, rtol=1e-9, atol=1e-12)
    assert torch.allclose(by_pyg(loaded.model.original, graph), expected, rtol=1e-12)
    assert loaded.model.original.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_pygs_models_is_described(kind, option):
    model = lmc.from_pyg(make(kind, **OPTIONS[option]))
    settings = model_settings(model, 5)
    # GIN and EdgeCNN give a norm by its name to their networks, and one that is a module not.
    unnamed = option in UNNAMED or (kind in ("GIN", "EdgeCNN") and option == "layer norm, elu")
    assert settings["name"].startswith("in memory") == unnamed
    if not unnamed:
        rebuilt_is_the_same(model, settings)


@pytest.mark.parametrize("kind", PARTICULAR)
def test_every_option_of_their_convolutions_is_described(kind):
    model = lmc.from_pyg(make(kind))
    settings = model_settings(model, 5)
    assert settings["name"] in registry.MODELS
    rebuilt_is_the_same(model, settings)


def rebuilt_is_the_same(model, settings):
    """With the same weights, the model of the settings says the same."""
    graph = graph_with()
    again = built(settings, graph.num_features, model.recipe.out_features).double()
    again.original.load_state_dict(model.original.state_dict())
    assert torch.equal(lmc.predict(graph, again), lmc.predict(graph, model))


def test_a_width_that_pyg_found_out_for_itself(tmp_path):
    plain = models.GraphSAGE(-1, 6, 2, 4)
    plain(GRAPH.x, GRAPH.to_pyg().edge_index)
    result = fit(lmc.from_pyg(plain), tmp_path / "a")
    loaded = lmc.load_run(tmp_path / "a")
    assert torch.equal(loaded.predict(GRAPH), lmc.predict(GRAPH, result.model))


def test_what_no_file_can_hold_is_not_described():
    norm = {"norm": "BatchNorm", "norm_kwargs": {"momentum": None}}
    assert model_settings(lmc.from_pyg(make("GCN", **norm)), 5) == {"name": "in memory: GCN"}


def test_what_was_changed_after_it_was_made_is_not_described():
    model = lmc.GCN(8, 6, 4)
    model.head = torch.nn.Linear(4, 4)
    assert model_settings(model, 8) == {"name": "in memory: GCN"}
    plain = make("SAGE mean")
    plain.convs[1].normalize = True
    assert model_settings(lmc.from_pyg(plain), 5) == {"name": "in memory: GraphSAGE"}

    class Mine(lmc.GCN):
        pass

    assert model_settings(Mine(8, 6, 4), 8) == {"name": "in memory: Mine"}


def test_degrees_of_pna_are_those_of_the_graph_and_come_back(tmp_path):
    model = lmc.build_model("pna", GRAPH, hidden=8, scalers=["amplification", "linear"])
    data = GRAPH.to_pyg()
    degrees = torch.bincount(data.edge_index[1], minlength=200)
    assert torch.equal(degree_histogram(GRAPH), torch.bincount(degrees))
    mean = model.original.convs[0].aggr_module.avg_deg_lin
    assert mean.item() == pytest.approx(degrees.double().mean().item())
    fit(model, tmp_path / "a")
    assert "degrees" not in lmc.load_run(tmp_path / "a").settings["model"]
    again = lmc.load_run(tmp_path / "a").model.original.convs[0].aggr_module.avg_deg_lin
    assert torch.equal(again, mean)


# -- runs of fit on the command line ----------------------------------------------------------------


def test_a_run_of_fit_is_resumed_predicted_and_reported(small, tmp_path):
    graph, folder = lmc.Graph.open(small), tmp_path / "a"
    options = {"optimizer": torch.optim.AdamW, "scheduler": "plateau", "weight_decay": 0.01}

    def model():
        torch.manual_seed(3)
        return lmc.build_model("gatv2", graph, hidden=8, heads=2, norm="batch", dropout=0.2)

    fit(model(), folder, graph, lmc.GraphFM(momentum=0.2), **options)
    fit(model(), tmp_path / "straight", graph, lmc.GraphFM(momentum=0.2), **options | {"epochs": 4})
    done = called("train", "--resume", folder, "--epochs", 4, "--quiet")
    assert done.returncode == 0, done.stderr
    assert metrics(folder) == metrics(tmp_path / "straight")
    assert last_weights(folder) == last_weights(tmp_path / "straight")
    assert called("predict", folder, "--out", tmp_path / "p.npz").returncode == 0
    page = called("report", folder, "--out", tmp_path / "page.html")
    assert page.returncode == 0, page.stderr
    assert "GATv2" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("change", ["none", "x", "in place", "edges"])
def test_a_graph_that_was_changed_has_no_source(small, change):
    graph = lmc.Graph.open(small)
    if change == "x":
        graph = graph.replace(x=graph.x * 2)
    elif change == "in place":
        graph.x[0] += 1
    elif change == "edges":
        ends = graph.adjacency
        weights = torch.rand(ends.num_entries)
        graph = with_arrays(graph, adjacency=lmc.CSR(ends.indptr, ends.indices, weights, ends.num_cols))
    assert graph.source == ({"name": str(small)} if change == "none" else None)


def test_a_graph_in_memory_is_asked_for(small, tmp_path):
    graph = lmc.Graph.open(small)
    graph = graph.to(torch.float64)
    assert graph.source is None
    graph.save(tmp_path / "graph")
    fit(lmc.GCN(8, 6, graph.num_classes).double(), tmp_path / "a", graph)
    assert "names no graph; give one (--data" in fails(2, "predict", tmp_path / "a", through=called)
    with pytest.raises(lmc.ArgumentError, match="names no graph"):
        lmc.load_run(tmp_path / "a").predict()
    asked = fails(2, "train", "--resume", tmp_path / "a", "--epochs", 3, through=called)
    assert "data.name='in memory': was an object of a script" in asked
    given = ["--data", tmp_path / "graph", "--epochs", 3, "--quiet"]
    assert called("train", "--resume", tmp_path / "a", *given).returncode == 0
    assert len(metrics(tmp_path / "a")) == 3
    assert lmc.load_run(tmp_path / "a").predict().dtype == torch.float64
    other = fails(1, "train", "--resume", tmp_path / "a", "--data", small, "--epochs", 4, through=called)
    assert f"its checkpoint is of a run on {tmp_path / 'graph'}, and {small} is another graph" in other


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"optimizer": torch.optim.Adafactor}, "training.optimizer='in memory: Adafactor'"),
        (
            {"scheduler": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1)},
            "training.scheduler=",
        ),
        ({"loss": lambda prediction, y: prediction.square().sum(dim=1)}, "training.loss="),
        ({"frozen": True}, "training.frozen='in memory: layers.0.linear.weight'"),
    ],
    ids=["optimizer", "scheduler", "loss", "frozen"],
)
def test_what_only_a_script_can_go_on_with_is_named(small, tmp_path, options, place):
    graph = lmc.Graph.open(small)
    model = lmc.GCN(8, 6, graph.num_classes)
    if options.pop("frozen", False):
        model.layers[0].linear.weight.requires_grad_(requires_grad=False)
    fit(model, tmp_path / "a", graph, **options)
    line = fails(2, "train", "--resume", tmp_path / "a", "--epochs", 3, through=called)
    assert place in line
    assert "config.toml" in line
    assert called("predict", tmp_path / "a", "--out", tmp_path / "p.csv").returncode == 0


# -- on the command line by name --------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in registry.MODELS if name not in ("gcn", "gcnii", "sign")])
def test_every_model_trains_by_name(small, tmp_path, name):
    more = {"gat": ["--set", "model.heads=4"], "pna": ["--set", "model.aggregators=['mean', 'max']"]}
    sizes = ["--hidden", 8, "--layers", 2, "--dropout", 0.1, "--norm", "layer", "--epochs", 1, "--quiet"]
    done = called(
        "train", "--data", small, "--model", name, *sizes, *more.get(name, []), "--out", tmp_path / "a"
    )
    assert done.returncode == 0, done.stderr
    graph = lmc.Graph.open(small)
    plain = lmc.load_run(tmp_path / "a").model.original
    plain.load_state_dict(load_file(tmp_path / "a" / "best.safetensors"))
    assert torch.allclose(by_pyg(plain.eval(), graph), lmc.load_run(tmp_path / "a").predict(), atol=1e-5)


# -- folders of strangers ---------------------------------------------------------------------------


def test_a_stranger_does_not_have_code_imported(tmp_path, monkeypatch):
    """Neither settings nor weights that name a function have it called."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    fit(lmc.GCN(8, 6, 4), tmp_path / "a")
    weights, about = checkpoint.load_weights(tmp_path / "a" / "best.safetensors")
    before = (tmp_path / "a" / "config.toml").read_text()
    for name in ("evil:run", "os:system"):
        about["config"]["model"] = {"name": name}
        checkpoint.save_weights(tmp_path / "a" / "best.safetensors", weights, about)
        (tmp_path / "a" / "config.toml").write_text(before.replace('name = "gcn"', f'name = "{name}"'))
        for command in (["predict", "a"], ["train", "--resume", "a"], ["train", "a/config.toml"]):
            assert "is code, and no file has it imported" in called(*command, "--data", "synthetic").stderr
        with pytest.raises(lmc.ArgumentError, match="is code"):
            _ = lmc.load_run("a").model


def test_a_folder_that_is_none_of_a_run(tmp_path):
    with pytest.raises(lmc.ArgumentError, match="not the folder of a run"):
        lmc.load_run(tmp_path)
    fit(lmc.GCN(8, 6, 4), tmp_path / "a")
    (tmp_path / "a" / "best.safetensors").unlink()
    with pytest.raises(lmc.RunError, match="there are no weights yet"):
        _ = lmc.load_run(tmp_path / "a").model
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(lmc.ArgumentError, match="no such folder"):
        lmc.load_run(tmp_path / "a")


def test_a_folder_without_a_run_has_none_to_resume(tmp_path):
    (tmp_path / "a").mkdir()
    for _ in range(2):
        with pytest.raises(lmc.ArgumentError, match="a: holds no run; there is no run to resume"):
            fit(lmc.GCN(8, 6, 4), tmp_path / "a", resume=True)
    assert not list((tmp_path / "a").iterdir())


def test_a_run_that_was_killed_before_its_start_begins(tmp_path):
    fit(lmc.GCN(8, 6, 4), tmp_path / "a")
    for name in ("metrics.jsonl", "summary.json", "best.safetensors"):
        (tmp_path / "a" / name).unlink()
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    result = fit(lmc.GCN(8, 6, 4), tmp_path / "a", resume=True)
    assert [record.epoch for record in result.history] == list(range(1, len(result.history) + 1))


def test_a_run_does_not_go_on_with_settings_that_were_edited(tmp_path):
    fit(lmc.GCN(8, 6, 4), tmp_path / "a")
    GRAPH.save(tmp_path / "graph")
    resume = ["train", "--resume", tmp_path / "a", "--data", tmp_path / "graph", "--epochs", 9]
    file = tmp_path / "a" / "config.toml"
    kept = file.read_text()
    for before, after in (
        ("lr = 0.01", "lr = 0.5"),
        ("dropout = 0.0", "dropout = 0.9"),
        ("seed = 0", "seed = 1"),
    ):
        assert before in kept
        file.write_text(kept.replace(before, after))
        line = fails(2, *resume, through=called)
        edited = f"{before.replace(' =', ' is')}, and cannot become {after.split()[-1]}"
        assert "its checkpoint goes on with the settings of the run: " in line
        assert edited in line
        assert line.endswith("config.toml --out NEW` begins another run")
    file.write_text(kept)
    assert called(*resume, "--quiet").returncode == 0


def test_a_graph_whose_edges_go_another_way_is_named(tmp_path):
    fit(lmc.GCN(8, 6, 4), tmp_path / "a")
    run = lmc.load_run(tmp_path / "a")
    one_way = GRAPH.edge_index[:, GRAPH.edge_index[0] < GRAPH.edge_index[1]]
    directed = lmc.Graph(one_way, GRAPH.x, GRAPH.y)
    with pytest.warns(UserWarning, match="edges go one way, and both ways where .*a was trained") as said:
        run.predict(directed)
    assert said[0].filename == __file__
    run.predict(GRAPH)
