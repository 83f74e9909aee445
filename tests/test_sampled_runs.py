"""Runs of methods that draw messages: threads, the background, a stop, odd graphs, mistakes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAT, ChebConv, GraphSAGE, RGCNConv

import lmc
from commands import called, fails, metrics
from estimating import bound, gcn, gradient, graph_of
from lmc.batching.samplers import BatchOptions
from lmc.kernels import parallel
from lmc.runs.registry import METHODS as METHODS_BY_NAME
from test_resumed import StopAt, goes_on

METHODS = {
    "sage": lambda: lmc.NeighborSampling(fanouts=[3, 2], batch_size=16),
    "vrgcn": lambda: lmc.VRGCN(fanouts=[2], batch_size=16),
    "fastgcn": lambda: lmc.FastGCN(sizes=[40, 50], batch_size=16),
    "ladies": lambda: lmc.LADIES(sizes=[20, 30], batch_size=16),
    "saint node": lambda: lmc.GraphSAINT("node", batch_size=60, coverage=2),
    "saint edge": lambda: lmc.GraphSAINT("edge", batch_size=30, coverage=2),
    "saint walk": lambda: lmc.GraphSAINT("walk", batch_size=20, coverage=2),
    "mvs": lambda: lmc.MVSGNN(batch_size=16, every=2),
}
every_method = pytest.mark.parametrize("method", METHODS)


def trained(graph, method, epochs=2, **options):
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 9, graph.num_classes, layers=2, dropout=0.3, norm="batch")
    result = lmc.fit(graph, model, METHODS[method](), epochs=epochs, **options)
    return [torch.tensor([r.loss for r in result.history]), *(p.detach() for p in model.parameters())]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
@every_method
def test_a_run_is_the_same_on_any_threads_and_in_the_background(method, monkeypatch):
    monkeypatch.setattr(parallel, "SMALL", 1)
    graph, before, runs = lmc.synthetic(nodes=120, features=8, classes=4), torch.get_num_threads(), []
    try:
        for threads, background in ((1, True), (2, True), (2, False)):
            torch.set_num_threads(threads)
            runs.append(trained(graph, method, background=background))
    finally:
        torch.set_num_threads(before)
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])
    assert not same(runs[0], trained(graph, method, seed=1))


@every_method
def test_batches_of_ones_own_are_the_same_ahead_of_their_step(method):
    """Whose draws depend on how many steps were made."""
    graph, losses = graph_of("directed"), []
    for ahead in (lmc.prefetch, lambda batches, prepare: batches):
        estimator = bound(METHODS[method](), gcn(2), graph)
        batches = [graph.batch(range(start, 36, 3), 3.0) for start in range(3)] * 2
        losses.append([estimator.backward(batch) for batch in ahead(batches, estimator.prepare)])
    assert losses[0] == losses[1]


@every_method
def test_a_run_goes_on(tmp_path, method):
    goes_on(tmp_path, 3, METHODS[method])


@pytest.mark.long
@every_method
def test_it_learns(method):
    graph = lmc.synthetic(nodes=400, features=16, classes=4)
    torch.manual_seed(0)
    model = lmc.GCN(16, 16, 4, layers=2)
    result = lmc.fit(graph, model, METHODS[method](), epochs=15, lr=0.02)
    assert result.best.val > 0.7


def odd_graph():
    """A hub that everybody hears and that hears everybody, and an isolated node, which is a target."""
    leaves = np.arange(1, 40)
    hub = np.zeros_like(leaves)
    x = torch.randn(41, 5, generator=torch.Generator().manual_seed(0)).double()
    ends = [[*hub, *leaves], [*leaves, *hub]]
    return lmc.Graph(ends, x, np.arange(41) % 3, [i in (0, 5, 40) for i in range(41)], num_classes=3)


@every_method
def test_a_hub_and_an_isolated_target(method):
    """With sizes above the graph and fewer targets than a batch has."""
    graph, estimator = odd_graph(), METHODS[method]()
    for name in ("fanouts", "sizes"):
        if hasattr(estimator, name):
            estimator = replace(estimator, **{name: [100]}, batch_size=500)
    sampler = estimator.make_sampler(graph, BatchOptions())
    model = gcn(2)
    estimator.bind(model, graph)
    for batch in sampler.epoch(0):
        loss, found = gradient(estimator, batch)
        assert np.isfinite(loss)
        assert all(bool(g.isfinite().all()) for g in found.values())
    if "saint" not in method:
        assert sampler.steps == 1
        assert sorted(batch.nodes.tolist()) == [0, 5, 40]


def test_all_are_heard_where_more_are_asked_for_than_there_are():
    graph, model = odd_graph(), gcn(2)
    full = bound(lmc.NeighborSampling([-1]), model, graph)
    many = bound(lmc.NeighborSampling([100]), model, graph)
    batch = graph.batch([40, 0, 5])
    assert gradient(many, batch)[0] == gradient(full, batch)[0]


@pytest.mark.parametrize("norm", ["gcn", "mean"])
@every_method
def test_a_graph_without_edges(method, norm):
    graph = lmc.Graph(np.empty((2, 0), int), torch.ones(3, 5).double(), [0, 1, 2], [True] * 3)
    model = gcn(2) if norm == "gcn" else lmc.from_pyg(GraphSAGE(5, 6, 2, 3).double())
    if method == "saint edge":
        with pytest.raises(lmc.ArgumentError, match='sampler="edge": the graph has no edges'):
            METHODS[method]().bind(model, graph)
        return
    loss = bound(METHODS[method](), model, graph).backward(graph.batch([2, 0]))
    assert np.isfinite(loss)


@pytest.mark.parametrize("method", ["NeighborSampling", "VRGCN", "FastGCN", "LADIES", "GraphSAINT", "MVSGNN"])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_defaults_take_any_depth(method, layers):
    graph = graph_of("undirected")
    estimator = bound(getattr(lmc, method)(), gcn(layers), graph)
    assert np.isfinite(estimator.backward(graph.batch([1, 2])))


def test_the_last_number_is_repeated():
    graph = graph_of("undirected")
    given, written = (
        bound(lmc.NeighborSampling(fanouts), gcn(3), graph).draw(graph.batch([1, 2]), (0,))
        for fanouts in ([3, 1], [3, 1, 1])
    )
    for one, other in zip(given, written, strict=True):
        assert torch.equal(one.heard.indices, other.heard.indices)
    assert given[-1].heard.row_lengths().max() == 4
    assert given[0].heard.row_lengths().max() == 2


MISTAKES = [
    (lambda: lmc.NeighborSampling([5, 5, 5]), r"fanouts=\[5, 5, 5\]: the model has 2 layers; give as many"),
    (lambda: lmc.VRGCN([2, 2, 2]), r"fanouts=\[2, 2, 2\]: the model has 2 layers"),
    (lambda: lmc.FastGCN([9, 9, 9]), r"sizes=\[9, 9, 9\]: the model has 2 layers"),
    (lambda: lmc.LADIES([9, 9, 9]), r"sizes=\[9, 9, 9\]: the model has 2 layers"),
    (lambda: lmc.NeighborSampling([5, -2]), r"fanouts\[1\]=-2: must be -1 or more"),
    (lambda: lmc.NeighborSampling([0, 5]), r"fanouts=\[0, 5\]: each must be 1 or more, or -1 for all"),
    (lambda: lmc.VRGCN([0]), r"fanouts=\[0\]: each must be 1 or more, or -1 for all"),
    (lambda: lmc.NeighborSampling(5), "fanouts=5: must be a list"),
    (lambda: lmc.NeighborSampling([]), r"fanouts=\[\]: must be"),
    (lambda: lmc.NeighborSampling(batch_size=0), "batch_size=0: must be 1 or more"),
    (lambda: lmc.LADIES(sizes=[0]), r"sizes\[0\]=0: must be 1 or more"),
    (lambda: lmc.FastGCN(sizes=[9, 0]), r"sizes\[1\]=0: must be 1 or more"),
    (lambda: lmc.FastGCN(batch_size=0), "batch_size=0: must be 1 or more"),
    (lambda: lmc.GraphSAINT(batch_size=0), "batch_size=0: must be 1 or more"),
    (lambda: lmc.VRGCN(precision="low"), "precision='low': must be one of"),
    (lambda: lmc.GraphSAINT("nodes"), "sampler='nodes': must be one of node, edge, walk"),
    (lambda: lmc.GraphSAINT(walk_length=0), "walk_length=0: must be 1 or more"),
    (lambda: lmc.MVSGNN(batch_size=0), "batch_size=0: must be 1 or more"),
    (lambda: lmc.MVSGNN(every=0), "every=0: must be 1 or more"),
    (lambda: lmc.MVSGNN(importance="norms"), "importance='norms': must be one of gradients, uniform"),
    (lambda: lmc.MVSGNN(precision="low"), "precision='low': must be one of"),
]


@pytest.mark.parametrize(("make", "line"), MISTAKES)
def test_mistakes_are_one_line_before_the_first_step(make, line):
    graph = graph_of("undirected")
    with pytest.raises(lmc.ArgumentError, match=f"^{line}"):
        lmc.fit(graph, gcn(2), make(), epochs=1, callbacks=[NoStep()])


class NoStep(lmc.Callback):
    """Nothing may be trained."""

    def on_start(self, training):
        raise AssertionError


@pytest.mark.parametrize("method", ["vrgcn", "fastgcn", "ladies"])
def test_layers_that_do_more_than_add_up_are_refused(method):
    graph, model = graph_of("undirected"), lmc.from_pyg(GAT(5, 6, 2, 3).double())
    with pytest.raises(lmc.ArgumentError, match="needs sums of messages, and layers"):
        lmc.fit(graph, model, METHODS[method](), epochs=1, callbacks=[NoStep()])


def test_what_layers_cannot_be_drawn_by_is_named():
    data = graph_of("undirected").to_pyg()
    data.edge_type = torch.arange(data.num_edges) % 2
    typed, model = lmc.Graph.from_pyg(data, num_classes=3), lmc.GNN([RGCNConv(5, 3, 2).double()])
    with pytest.raises(lmc.ArgumentError, match="FastGCN has no draws by type of edges"):
        lmc.FastGCN().bind(model, typed)
    with pytest.raises(lmc.ArgumentError, match="LADIES has messages add up to one"):
        lmc.LADIES().bind(lmc.GNN([ChebConv(5, 3, 2).double()]), graph_of("undirected"))


def test_a_step_is_stopped_and_nothing_is_left_ahead():
    graph = lmc.synthetic(nodes=200, features=8, classes=4)
    estimator = METHODS["sage"]()
    lmc.fit(graph, lmc.GCN(8, 8, 4), estimator, epochs=3, callbacks=[StopAt(2)])
    assert len(estimator._ahead) <= 1


# -- settings and commands --------------------------------------------------------------------------


def test_flags_and_files_say_the_same(small, tmp_path):
    (tmp_path / "run.toml").write_text(
        f'[data]\nname = "{small}"\n[model]\nhidden = 8\n'
        '[method]\nname = "sage"\nfanouts = [4, 2]\nbatch_size = 16\n[training]\nepochs = 2\n'
    )
    flags = ["--data", small, "--hidden", 8, "--epochs", 2, "--method", "sage"]
    by_flags = called("train", *flags, "--fanouts", "4,2", "--batch-size", 16, "--out", tmp_path / "a")
    by_file = called("train", tmp_path / "run.toml", "--out", tmp_path / "b")
    assert (by_flags.returncode, by_file.returncode) == (0, 0), by_flags.stderr + by_file.stderr
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    settings = lmc.load_run(tmp_path / "a").settings
    assert settings["method"] == {"name": "sage", "fanouts": [4, 2], "batch_size": 16}
    assert called("train", "--resume", tmp_path / "a", "--epochs", 3, "--quiet").returncode == 0
    assert len(metrics(tmp_path / "a")) == 3
    assert "layers; give as many" in fails(2, "train", *flags, "--fanouts", "4,2,2,2", through=called)
    assert "whole numbers" in fails(2, "train", *flags, "--fanouts", "4,many", through=called)


def test_a_run_of_fit_goes_on_by_the_command_line(small, tmp_path):
    graph = lmc.load(str(small))
    for name, estimator in {"v": lmc.VRGCN(fanouts=[2]), "l": lmc.LADIES(sizes=[9, 9])}.items():
        model = lmc.GCN(graph.num_features, 8, graph.num_classes)
        lmc.fit(graph, model, estimator, epochs=1, out=tmp_path / name)
        assert called("train", "--resume", tmp_path / name, "--epochs", 2, "--quiet").returncode == 0


@pytest.mark.slow
def test_methods_on_batches_of_their_own_are_compared(small, tmp_path):
    sizes = ["--data", small, "--hidden", 4, "--parts", 4, "--epochs", 1, "--batch-size", 20]
    done = called("compare", *sizes, "--methods", "gas,sage,vrgcn,fastgcn,ladies,saint", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "batches as each method makes them" in done.stdout
    report = (tmp_path / "report.html").read_text()
    assert all(METHODS_BY_NAME[name].title in report for name in ("gas", "sage", "vrgcn", "saint"))


@every_method
def test_gradient_errors_are_recorded_during_a_run(method):
    graph = lmc.synthetic(nodes=200, features=8, classes=4)
    result = lmc.fit(graph, lmc.GCN(8, 8, 4), METHODS[method](), epochs=1, gradient_error_every=1)
    assert result.history[0].gradient_error["total"] > 0
