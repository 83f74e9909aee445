"""SIGN: powers of the adjacency times the features, and a network on their rows."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import batch_norm, cross_entropy, layer_norm

import lmc
from commands import called, fails, metrics
from estimating import EVERY, KINDS, bound, distance, full_gradient, gradient, graph_of, settled, sign
from lmc.batching.samplers import BatchOptions
from lmc.data import normalization
from lmc.kernels import parallel
from lmc.sparse import CSR
from strategies import graphs
from test_normalization import dense_norm
from test_resumed import StopAt


def dense_powers(a, x, hops):
    """(nodes, features) each: x, A x, A A x, .."""
    return [np.linalg.matrix_power(a, power) @ x for power in range(hops + 1)]


def dense_adjacency(graph):
    """(nodes, nodes) D^-1/2 (A + I) D^-1/2 of a graph without self-loops, from its list of edges."""
    data = graph.to_pyg()
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else data.edge_weight
    a = np.eye(graph.num_nodes)
    own = dict.fromkeys(range(graph.num_nodes))
    for (source, target), each in zip(data.edge_index.T.tolist(), weight.double().tolist(), strict=True):
        if source == target:
            own[source] = each
        else:
            a[target, source] += each
    for node, each in own.items():
        a[node, node] = 1.0 if each is None else each
    root = 1 / np.sqrt(a.sum(axis=1))
    return root[:, None] * a * root


@given(example=graphs(), hops=st.integers(1, 4))
def test_powers_are_the_dense_ones(example, hops):
    model = lmc.SIGN(example.graph, hops=hops)
    expected = dense_powers(dense_norm(example, "gcn"), example.graph.x.numpy(), hops)
    found = model.precomputed(example.graph)
    assert len(found) == hops + 1
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one.numpy(), other, rtol=1e-12, atol=1e-14)
    assert all(one is other for one, other in zip(found, model.precomputed(example.graph), strict=True))


def dense_prediction(model, powers, norm):
    """(rows, out) by the formula, from rows of the powers."""
    named = dict(model.named_parameters())
    linears = [f"head.parts.1.linears.{power}" for power in range(len(powers))]
    mapped = zip(linears, powers, strict=True)
    z = torch.cat([x @ named[f"{at}.weight"].T + named[f"{at}.bias"] for at, x in mapped], dim=1)
    for place in range(2, len(model.head.parts), 2):
        scale, shift = (named.get(f"head.parts.{place}.norm.{name}") for name in ("weight", "bias"))
        if norm == "layer":
            z = layer_norm(z, z.shape[1:], scale, shift)
        elif norm == "batch":
            z = batch_norm(z, None, None, scale, shift, training=True)
        last = f"head.parts.{place + 1}"
        z = z.relu() @ named[f"{last}.weight"].T + named[f"{last}.bias"]
    return z


@pytest.mark.parametrize(
    ("kind", "norm", "hops", "layers"),
    [
        ("undirected", "none", 1, 1),
        ("directed", "batch", 2, 2),
        ("weighted", "layer", 3, 3),
        ("directed weighted", "none", 4, 2),
    ],
)
def test_the_gradient_is_that_of_dense_autograd(kind, norm, hops, layers):
    """Of a batch with nodes that have no label, a scale and weights."""
    graph, model = graph_of(kind), sign(hops, layers=layers, norm=norm)
    nodes, weights = torch.randperm(36)[:20], torch.rand(20).double() + 0.1
    labelled = graph.train_mask[nodes]
    loss, found = gradient(bound(lmc.Precomputed(), model, graph), graph.batch(nodes, 1.7, weights))
    powers = dense_powers(dense_adjacency(graph), graph.x.numpy(), hops)
    model.zero_grad()
    predicted = dense_prediction(model, [torch.tensor(power)[nodes] for power in powers], norm)
    losses = cross_entropy(predicted[labelled], graph.y[nodes][labelled], reduction="none")
    expected = 1.7 * (weights[labelled] * losses).sum() / graph.train_mask.sum()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-9)
    for name, parameter in model.named_parameters():
        assert torch.allclose(found[name], parameter.grad, rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("kind", KINDS)
def test_all_training_rows_have_the_full_gradient_and_batches_average_to_it(kind):
    graph, model = graph_of(kind), sign(3)
    full_loss, full = full_gradient(model, graph)
    for size in (100, 1):
        estimator = bound(lmc.Precomputed(batch_size=size), model, graph)
        epoch = [gradient(estimator, b) for b in estimator.make_sampler(graph, BatchOptions()).epoch(0)]
        assert len(epoch) == -(-int(graph.train_mask.sum()) // size)
        mean = {name: sum(found[name] for _, found in epoch) / len(epoch) for name in full}
        assert sum(loss for loss, _ in epoch) / len(epoch) == pytest.approx(full_loss, rel=1e-12)
        assert max(distance(mean, full).values()) < 1e-9


def test_everything_in_one_batch_is_full_batch_with_dropout_and_batch_norm():
    graph, model = graph_of("directed"), sign(2, norm="batch", dropout=0.5, input_dropout=0.2)
    _, full = full_gradient(model, graph, seed=5)
    for seed, agrees in ((5, True), (6, False)):
        estimator = bound(lmc.Precomputed(), model, graph, seed=seed)
        _, found = gradient(estimator, graph.batch(range(graph.num_nodes)))
        assert (max(distance(found, full).values()) < 1e-10) == agrees


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("estimator", EVERY)
def test_other_estimators_take_it(estimator, hops):
    graph, model = graph_of("directed"), sign(hops)
    full_loss, full = full_gradient(model, graph)
    everything = graph.batch(range(graph.num_nodes))
    loss, found = gradient(bound(EVERY[estimator](), model, graph), everything)
    assert loss == pytest.approx(full_loss, rel=1e-12)
    assert max(distance(found, full).values()) < 1e-10


@pytest.mark.parametrize("make", [lmc.GAS, lambda: lmc.LMC(alpha=0)])
def test_histories_of_powers_become_exact(make):
    """Derivatives that are dropped outside of the batch would reach no parameter."""
    graph, model = graph_of("directed weighted"), sign(3)
    _, full = full_gradient(model, graph)
    assert max(distance(settled(bound(make(), model, graph), graph), full).values()) < 1e-10


def test_a_row_needs_no_other_row():
    """Not even in training: whatever the other rows are, a batch has the same estimate."""
    graph, model = graph_of("undirected"), sign(2, norm="layer", dropout=0.5)
    nodes = graph.train_mask.nonzero()[:4, 0]
    estimator = bound(lmc.Precomputed(), model, graph)
    with estimator.frozen():
        loss, found = gradient(estimator, graph.batch(nodes))
        alone = lmc.predict(graph, model)[nodes]
        others = torch.ones(graph.num_nodes, dtype=torch.bool).index_fill_(0, nodes, value=False)
        for power in model.precomputed(graph):
            power.data[others] = math.nan  # unseen: else powers of other features would be made
        again, found_again = gradient(estimator, graph.batch(nodes))
    assert loss == again
    assert all(torch.equal(found[name], found_again[name]) for name in found)
    assert torch.equal(lmc.predict(graph, model)[nodes], alone)


def trained(graph, batch_size=16, **options):
    torch.manual_seed(0)
    model = lmc.SIGN(graph, hops=2, hidden=8, dropout=0.3, norm="batch")
    result = lmc.fit(graph, model, lmc.Precomputed(batch_size), **{"epochs": 3, **options})
    return [torch.tensor([[r.loss, r.val] for r in result.history]), *model.state_dict().values()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_no_edge_is_read_once_the_powers_are_known():
    """A run with its evaluations has the same bytes without the edges."""
    graph, cut = (lmc.synthetic(nodes=120, features=8, classes=4) for _ in range(2))
    expected = trained(graph)
    lmc.SIGN(cut, hops=2).precomputed(cut)
    none = CSR(torch.zeros(121, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), None, 120)
    vars(cut).update(adjacency=none)
    known = normalization._cache[cut]
    for what in [key for key in known if not key[1].startswith("propagated")]:
        del known[what]
    assert same(trained(cut), expected)
    assert not any(key[1] == "matrix" for key in known)


@pytest.mark.slow
def test_a_run_is_the_same_on_any_threads_and_in_the_background(monkeypatch):
    monkeypatch.setattr(parallel, "SMALL", 0)
    before, runs = torch.get_num_threads(), []
    try:
        for threads, background in ((1, True), (2, True), (2, False)):
            torch.set_num_threads(threads)
            graph = lmc.synthetic(nodes=120, features=8, classes=4)
            runs.append(trained(graph, background=background))
    finally:
        torch.set_num_threads(before)
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])
    assert not same(runs[0], trained(graph, seed=1))


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_a_run_goes_on(tmp_path, stop):
    graph = lmc.synthetic(nodes=120, features=8, classes=4)
    trained(graph, out=tmp_path / "a", callbacks=[StopAt(stop)])
    assert same(trained(graph, out=tmp_path / "a", resume=True)[1:], trained(graph)[1:])


def test_predictions_for_another_graph_are_of_its_own_powers():
    graph, other = graph_of("undirected"), graph_of("directed weighted", seed=1)
    model = sign(3).eval()
    lmc.predict(graph, model)
    powers = dense_powers(dense_adjacency(other), other.x.numpy(), 3)
    expected = dense_prediction(model, [torch.tensor(power) for power in powers], "none")
    assert torch.allclose(lmc.predict(other, model, rows_at_once=5), expected, rtol=1e-9, atol=1e-12)
    assert torch.allclose(model(other), expected, rtol=1e-9, atol=1e-12)
    assert torch.allclose(lmc.predict(other, model, nodes=[7, 3]), expected[[7, 3]], rtol=1e-9, atol=1e-12)


def test_gradient_error_has_no_bias():
    graph, model = graph_of("undirected"), sign(2, dropout=0.5)
    estimator = lmc.Precomputed(batch_size=5)
    batches = list(estimator.make_sampler(graph, BatchOptions()).epoch(0))
    estimator.bind(model, graph)
    errors = lmc.gradient_error(graph, model, estimator, batches)
    assert errors.bias["total"] == 0
    assert errors["total"] > 0.1
    assert errors.variance["total"] >= errors["total"]
    whole = [graph.batch(range(graph.num_nodes))]
    assert lmc.gradient_error(graph, model, estimator, whole)["total"] < 1e-12


def test_memory_is_that_of_the_powers_and_of_the_rows_of_a_step(monkeypatch):
    """Of 2,000 nodes: three powers of 64 features, and rows of four."""
    graph = lmc.synthetic(nodes=2000, features=64)
    model, powers = lmc.SIGN(graph, hops=3), 3 * 2000 * 64 * 4
    for size, fits in ((2000, False), (64, True)):
        monkeypatch.setattr("lmc.memory_use.free", lambda: powers + 500_000)
        if fits:
            lmc.fit(graph, model, lmc.Precomputed(size), epochs=1)
        else:
            with pytest.raises(
                lmc.ArgumentError, match=r"^Precomputed: training needs .* smaller batch_size"
            ):
                lmc.fit(graph, model, lmc.Precomputed(size), epochs=1)
    monkeypatch.setattr("lmc.memory_use.free", lambda: powers)
    with pytest.raises(lmc.ArgumentError, match=r"^Precomputed: training needs"):
        lmc.fit(graph, model, lmc.Precomputed(64), epochs=1)


def test_a_graph_without_edges_and_one_without_features():
    for x in (torch.ones(3, 5), None):
        graph = lmc.Graph(np.empty((2, 0), int), x, [0, 1, 2], [True] * 3)
        with pytest.warns(UserWarning, match="no features") if x is None else nullcontext():
            loss = bound(lmc.Precomputed(), lmc.SIGN(graph), graph).backward(graph.batch([2, 0]))
        assert math.isfinite(loss)


MISTAKES = [
    (lambda graph: lmc.SIGN(graph, hops=0), "hops=0: must be 1 or more"),
    (lambda graph: lmc.SIGN(graph, layers=0), "layers=0: must be 1 or more"),
    (lambda graph: lmc.SIGN(graph, hidden=0), "hidden=0: must be 1 or more"),
    (lambda graph: lmc.SIGN(graph, norm="bach"), "norm='bach': must be one of none, batch, layer"),
    (lambda graph: lmc.SIGN(graph, dropout=1), "dropout=1: must be in"),
    (lambda graph: lmc.SIGN(lmc.Graph([[0], [1]], torch.ones(2, 5))), "graph: has no labels"),
    (lambda graph: lmc.SIGN(graph.to_pyg()), "graph: Data is not an lmc.Graph; lmc.Graph.from_pyg"),
    (lambda graph: lmc.Precomputed(batch_size=0), "batch_size=0: must be 1 or more"),
    (
        lambda graph: lmc.fit(graph, lmc.GCN(5, 6, 3).double(), lmc.Precomputed(), epochs=1),
        "model: GCN: Precomputed needs layers without anything to train, such as those of lmc.SIGN",
    ),
]


@pytest.mark.parametrize(("make", "line"), MISTAKES)
def test_mistakes_are_one_line(make, line):
    with pytest.raises(lmc.ArgumentError, match=f"^{line}"):
        make(graph_of("undirected"))


# -- settings and commands --------------------------------------------------------------------------


def test_the_command_line(small, tmp_path):
    """Train, go on, predict, and load by the folder alone; `fit` with the same objects has the same bytes."""
    model = ["--hidden", 8, "--layers", 1, "--dropout", 0.2, "--norm", "layer", "--set", "model.hops=2"]
    flags = ["--data", small, "--method", "sign", "--batch-size", 64, *model, "--quiet"]
    assert called("train", *flags, "--epochs", 3, "--out", tmp_path / "a").returncode == 0
    assert called("train", *flags, "--epochs", 2, "--out", tmp_path / "b").returncode == 0
    assert called("train", "--resume", tmp_path / "b", "--epochs", 3, "--quiet").returncode == 0
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    run, graph = lmc.load_run(tmp_path / "a"), lmc.load(str(small))
    assert run.settings["method"] == {"name": "sign", "batch_size": 64}
    assert run.settings["model"]["name"] == "sign"
    assert len(run.model.layers) == run.settings["model"]["hops"] == 2
    done = called("predict", tmp_path / "a", "--out", tmp_path / "p.npz")
    assert done.returncode == 0, done.stderr

    torch.manual_seed(0)
    again = lmc.SIGN(graph, hops=2, hidden=8, layers=1, dropout=0.2, norm="layer")
    lmc.fit(graph, again, lmc.Precomputed(64), epochs=3, out=tmp_path / "c")
    assert same(again.state_dict().values(), run.model.state_dict().values())
    assert metrics(tmp_path / "c") == metrics(tmp_path / "a")
    assert lmc.load_run(tmp_path / "c").settings["method"] == run.settings["method"]
    assert torch.equal(lmc.load_run(tmp_path / "c").predict(), lmc.predict(graph, again))


def test_it_is_compared_with_methods_that_have_another_model(small, tmp_path):
    sizes = ["--data", small, "--model", "gcn", "--hidden", 4, "--parts", 4, "--epochs", 1]
    done = called("compare", *sizes, "--methods", "gas,sign", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    models = {name: lmc.load_run(tmp_path / name).settings["model"] for name in ("gas", "sign")}
    assert [models[name]["name"] for name in ("gas", "sign")] == ["gcn", "sign"]
    assert [models[name]["hidden"] for name in ("gas", "sign")] == [4, 4]
    assert "SIGN" in (tmp_path / "report.html").read_text()


def test_another_model_by_name_is_one_line(small):
    for command in (["train", "--method", "sign"], ["train", "--method", "sign", "--set", "model.layers=2"]):
        line = fails(2, *command, "--data", small, "--model", "gcn", through=called)
        rule = "the method sign trains the model sign alone; leave the model out, or name it"
        assert line == f"lmc: model.name='gcn': {rule}"
