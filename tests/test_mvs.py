"""MVS-GNN: chances, draws, norms and steps against dense algebra; its spread beside that of uniform draws."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAT, GraphSAGE, RGCNConv

import lmc
from estimating import bound, distance, full_gradient, gcn, gcnii, gradient, graph_of
from hop_models import make_hops
from lmc.batching import minimal_variance
from lmc.batching.minimal_variance import importance_of, minimal_variance_chances, systematic_draw
from lmc.batching.samplers import BatchOptions
from lmc.estimators.losses import loss_of


def drawn_steps(estimator, graph, epochs=1, seed=0):
    sampler = estimator.make_sampler(graph, BatchOptions(seed=seed))
    return [batch for epoch in range(epochs) for batch in sampler.epoch(epoch)]


# -- chances and draws ------------------------------------------------------------------------------


def chances_by_bisection(norms, size):
    """min(1, (0.1 + 0.9 |g| / mean |g|) / μ), with the μ for which they add up to the size."""
    importance = 0.1 + 0.9 * norms / norms.mean()
    low, high = 0.0, importance.sum()
    for _ in range(200):
        mu = (low + high) / 2
        low, high = (mu, high) if np.minimum(1, importance / mu).sum() > size else (low, mu)
    return np.minimum(1, importance / high)


@pytest.mark.parametrize("size", [1, 2, 7, 40, 59])
@pytest.mark.parametrize("tail", [0.0, 0.5, 3.0])
def test_chances_are_those_of_minimal_variance(tail, size):
    norms = np.exp(tail * np.random.default_rng(size).standard_normal(60)) * 1e-3
    found = minimal_variance_chances(importance_of(norms), size)
    assert found.sum() == pytest.approx(size, rel=1e-12)
    np.testing.assert_allclose(found, chances_by_bisection(norms, size), rtol=1e-9)
    assert found.min() >= 0.1 * size / 60 - 1e-12
    if tail == 3.0 and size == 40:
        assert 1 < (found == 1).sum() < size


def test_no_other_chances_leave_less_variance():
    importance = importance_of(np.random.default_rng(0).exponential(size=9) ** 3)
    best = minimal_variance_chances(importance, 4)
    random = np.random.default_rng(1)
    for _ in range(200):
        moved = best + 0.05 * (move := random.standard_normal(9)) - 0.05 * move.mean()
        if (moved > 0).all() and (moved <= 1).all():
            assert (importance**2 / moved).sum() >= (importance**2 / best).sum()


@pytest.mark.parametrize(
    ("norms", "size", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0], 2, [0.5] * 4),
        ([3.0], 1, [1.0]),
        ([3.0, 0.0], 5, [1.0, 1.0]),
        ([1e308] * 4, 1, [0.25] * 4),
        ([5e-324, 0.0], 1, [0.95, 0.05]),
        ([float("nan"), float("inf"), 1.0, 1.0], 2, [0.05, 0.05, 0.95, 0.95]),
    ],
)
def test_odd_norms_have_lawful_chances(norms, size, expected):
    found = minimal_variance_chances(importance_of(np.array(norms)), size)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_nodes_are_drawn_as_often_as_their_chances_say():
    chances = minimal_variance_chances(importance_of(np.random.default_rng(0).exponential(size=14) ** 4), 5)
    assert (chances == 1).any()
    times, often, together = 3000, np.zeros(14), set()
    for step in range(times):
        places = systematic_draw(chances, 3, 1, step)
        assert len(set(places.tolist())) == 5
        often[places] += 1
        together.add(tuple(places))
    deviation = np.sqrt(chances * (1 - chances) / times)
    assert (np.abs(often / times - chances) <= 4 * deviation).all()
    assert len(together) > 14  # which is the most that one order has


@pytest.mark.parametrize("size", [1, 999, 1000])
def test_as_many_are_drawn_as_were_asked_for(size):
    importance = importance_of(np.random.default_rng(0).exponential(size=1000) ** 8)
    chances = minimal_variance_chances(importance, size)
    assert all(len(systematic_draw(chances, 0, step)) == size for step in range(20))


def every_draw(chances, monkeypatch, order):
    """All draws that one order has, by where the first mark is: after each, how likely it is."""
    uncertain = [place for place in order if chances[place] < 1]
    ends = np.unique(np.concatenate([[0.0, 1.0], np.cumsum(chances[uncertain]) % 1.0]))
    monkeypatch.setattr(minimal_variance.hashed_random, "permutation", lambda *address: np.array(order))
    for before, after in pairwise(ends):
        middle = np.array([(before + after) / 2])
        monkeypatch.setattr(minimal_variance.hashed_random, "uniform", lambda *address, at=middle: at)
        yield after - before


def test_the_mean_over_all_draws_is_the_gradient(monkeypatch):
    """With exact values outside: of the last map and the head; with all messages, of every parameter."""
    graph, model = graph_of("directed weighted"), gcn(2, linear_out=True)
    loss, expected = full_gradient(model, graph)
    estimator = bound(lmc.MVSGNN(batch_size=6), model, graph)
    (batch, *_), reference = drawn_steps(estimator, graph), estimator.references()
    order = np.random.default_rng(0).permutation(len(estimator.chances)).tolist()
    names = {p: name for name, p in model.named_parameters()}
    mean_loss, mean, exact_mean, weight = 0.0, dict.fromkeys(expected, 0.0), dict.fromkeys(expected, 0.0), 0.0
    draws = set()
    for chance in every_draw(estimator.chances, monkeypatch, order):
        draws.add(tuple(estimator.loss_weights(batch).nonzero().flatten().tolist()))
        with estimator.frozen():
            part, found = gradient(estimator, batch)
        mean_loss, weight = mean_loss + chance * part, weight + chance
        mean = {name: mean[name] + chance * found[name] for name in mean}
        for p, exact in reference(batch).items():
            exact_mean[names[p]] += chance * exact
    assert len(draws) > 10
    assert weight == pytest.approx(1, rel=1e-12)
    assert mean_loss == pytest.approx(loss, rel=1e-10)
    assert max(distance(exact_mean, expected).values()) < 1e-10
    last = {name: value for name, value in expected.items() if not name.startswith("layers.0")}
    assert max(distance(mean, last).values()) < 1e-10
    assert distance(mean, expected)["layers.0.linear.weight"] > 1e-3  # derivatives from outside are dropped


# -- norms of gradients -----------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
@pytest.mark.parametrize("make", [lambda: gcn(3), lambda: gcn(2, linear_out=True, norm="layer")])
def test_norms_are_those_of_the_last_maps_gradient(make, task):
    graph, model = graph_of("directed weighted", task=task), make()
    estimator = bound(lmc.MVSGNN(batch_size=4), model, graph)
    targets = graph.train_mask.nonzero().flatten()
    losses = loss_of(task)(model(graph)[targets], graph.y[targets])
    last = list(model.layers[-1].linear.parameters())
    each = [torch.autograd.grad(loss, last, retain_graph=True) for loss in losses]
    expected = [torch.cat([part.flatten() for part in found]).norm() for found in each]
    torch.testing.assert_close(estimator.state_dict()["norms"], torch.stack(expected), rtol=1e-9, atol=0)
    oracle = chances_by_bisection(torch.stack(expected).numpy(), 4)
    np.testing.assert_allclose(estimator.chances, oracle, rtol=1e-8)


def test_without_a_linear_map_norms_are_those_of_the_losses_derivatives():
    torch.manual_seed(0)
    graph, model = graph_of("directed"), lmc.from_pyg(GAT(5, 6, 2, 3).double())
    estimator = bound(lmc.MVSGNN(batch_size=4), model, graph)
    out = model(graph).detach().requires_grad_()
    loss_of("multiclass")(out[graph.train_mask], graph.y[graph.train_mask]).sum().backward()
    expected = out.grad[graph.train_mask].norm(dim=1)
    torch.testing.assert_close(estimator.state_dict()["norms"], expected, rtol=1e-9, atol=0)


# -- steps ------------------------------------------------------------------------------------------


class DenseMVS:
    """A GCN of two layers on dense matrices: embeddings of the first layer are remembered."""

    def __init__(self, graph, weights, size):
        self.a, self.x, self.y = lmc.normalize(graph).to_dense(), graph.x, graph.y
        self.targets, self.size = graph.train_mask.nonzero().flatten(), size
        self.w = [w.detach().clone().requires_grad_() for w in weights]

    def pass_over_the_graph(self):
        w_1, b_1, w_2, b_2 = self.w
        self.history = (self.a @ self.x @ w_1.T + b_1).detach()
        received = (self.a @ self.history.relu())[self.targets]
        logits = (received @ w_2.T + b_2).detach().requires_grad_()
        torch.nn.functional.cross_entropy(logits, self.y[self.targets], reduction="sum").backward()
        each = [
            torch.cat([torch.outer(v, r).flatten(), v]) for v, r in zip(logits.grad, received, strict=True)
        ]
        self.chances = chances_by_bisection(torch.stack(each).norm(dim=1).detach().numpy(), self.size)

    def step(self, address):
        w_1, b_1, w_2, b_2 = self.w
        places = systematic_draw(self.chances, *address)
        nodes = self.targets[places]
        z = self.history.clone()
        fresh = self.a[nodes] @ self.x @ w_1.T + b_1
        z[nodes] = fresh
        logits = self.a[nodes] @ z.relu() @ w_2.T + b_2
        losses = torch.nn.functional.cross_entropy(logits, self.y[nodes], reduction="none")
        loss = (losses / torch.from_numpy(self.chances[places])).sum() / len(self.targets)
        self.history[nodes] = fresh.detach()
        return loss.item(), torch.autograd.grad(loss, self.w)


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("kind", ["undirected", "directed weighted"])
def test_a_run_is_that_of_dense_algebra(kind, every):
    graph, model = graph_of(kind), gcn(2)
    estimator = bound(lmc.MVSGNN(batch_size=7, every=every), model, graph)
    parameters = list(model.parameters())
    dense = DenseMVS(graph, parameters, 7)
    batches = drawn_steps(estimator, graph, epochs=3)
    per_epoch = len(batches) // 3
    assert per_epoch > 2
    for step, batch in enumerate(batches):
        if step % (every or per_epoch) == 0:
            dense.pass_over_the_graph()
        expected_loss, expected = dense.step(batch.address)
        model.zero_grad()
        assert estimator.backward(batch) == pytest.approx(expected_loss, rel=1e-9)
        with torch.no_grad():
            for p, w, wanted in zip(parameters, dense.w, expected, strict=True):
                torch.testing.assert_close(p.grad, wanted, rtol=1e-8, atol=1e-10)
                p -= 0.3 * p.grad
                w -= 0.3 * wanted
    torch.testing.assert_close(estimator.embeddings[1].snapshot(), dense.history, rtol=1e-8, atol=1e-10)


def test_where_all_are_drawn_the_estimate_is_the_gradient():
    graph = graph_of("directed")
    graph = lmc.Graph(torch.stack(graph.to_pyg().edge_index.unbind()), graph.x, graph.y, [True] * 36)
    model = gcn(3)
    estimator = bound(lmc.MVSGNN(batch_size=100), model, graph)
    (batch,) = drawn_steps(estimator, graph)
    loss, found = gradient(estimator, batch)
    expected_loss, expected = full_gradient(model, graph)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    assert max(distance(found, expected).values()) < 1e-10


def test_a_batch_of_ones_own_is_a_step_of_gas():
    graph, model = graph_of("directed"), gcn(3, dropout=0.4)
    mvs, gas = bound(lmc.MVSGNN(every=1), model, graph), bound(lmc.GAS(), model, graph, init="exact")
    for batch in (graph.batch(range(start, 36, 2), 2.0, np.linspace(0.1, 2, 18)) for start in (0, 1, 0)):
        ours, expected = gradient(mvs, batch), gradient(gas, batch)
        assert ours[0] == expected[0]
        assert all(torch.equal(ours[1][name], value) for name, value in expected[1].items())
        with torch.no_grad():
            model.layers[0].linear.weight += 0.1


def test_estimates_that_are_frozen_leave_no_trace():
    graph, model = graph_of("undirected"), gcn(3, norm="batch")
    estimator = bound(lmc.MVSGNN(batch_size=5, every=1), model, graph)
    first, second, *_ = drawn_steps(estimator, graph)
    estimator.backward(first)
    with torch.no_grad():
        model.layers[0].linear.weight.mul_(2)
    before = {name: value.clone() for name, value in estimator.state_dict().items()}
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    lmc.gradient_error(graph, model, estimator, [first, second])
    assert all(torch.equal(before[name], value) for name, value in estimator.state_dict().items())
    assert all(torch.equal(buffers[name], value) for name, value in model.named_buffers())
    estimator.backward(second)  # which passes over the graph first
    after = estimator.state_dict()
    outside = (~torch.isin(torch.arange(36), second.nodes)).nonzero().flatten()
    assert not torch.equal(before["norms"], after["norms"])
    assert (before["embeddings.1"] != after["embeddings.1"]).any(1)[outside].all()


def learned():
    """A model that has learned most labels: the gradients of its nodes differ much."""
    graph = lmc.synthetic(nodes=400, features=8, classes=4).to(torch.float64)
    torch.manual_seed(0)
    model = lmc.GCN(8, 16, 4, layers=2).double()
    lmc.fit(graph, model, lmc.FullBatch(), epochs=40, lr=0.03, progress=False)
    return graph, model


def test_its_spread_is_below_that_of_uniform_draws():
    (graph, model), found = learned(), {}
    for importance in ("gradients", "uniform"):
        estimator = bound(lmc.MVSGNN(batch_size=20, importance=importance), model, graph)
        batches = drawn_steps(estimator, graph, epochs=8, seed=1)
        found[importance] = lmc.gradient_error(graph, model, estimator, batches)
    ours, uniform = found["gradients"], found["uniform"]
    for part in ("layers.1", "total"):
        assert ours.variance[part] < 0.8 * uniform.variance[part]
        assert ours[part] < 0.9 * uniform[part]
    assert max(ours.bias["layers.1"], uniform.bias["layers.1"]) < 1e-12  # histories are exact
    assert ours.bias["layers.0"] > 0.1  # derivatives from outside are dropped


OTHERS = {
    "gcnii": lambda: gcnii(3, norm="batch"),
    "sage": lambda: lmc.from_pyg(GraphSAGE(5, 6, 2, 3, jk="cat").double()),
    "gat": lambda: lmc.from_pyg(GAT(5, 6, 2, 3).double()),
    "ChebConv": lambda: make_hops("ChebConv").wrapped(),
    "typed": lambda: lmc.GNN([RGCNConv(5, 6, 2).double(), RGCNConv(6, 3, 2).double()]),
}


def typed_graph(train_mask):
    data = graph_of("directed").to_pyg()
    data.edge_type, data.train_mask, data.val_mask = torch.arange(data.num_edges) % 2, train_mask, ~train_mask
    return lmc.Graph.from_pyg(data, num_classes=3)


@pytest.mark.parametrize("name", OTHERS)
def test_any_model_is_trained_on_drawn_nodes(name):
    """And has the gradient where the only training node hears nobody."""
    torch.manual_seed(0)
    graph, model = typed_graph(torch.arange(36) % 2 == 0), OTHERS[name]()
    estimator = bound(lmc.MVSGNN(batch_size=4, every=3), model, graph)
    assert 0 < estimator.chances.min() < estimator.chances.max()
    losses = [estimator.backward(batch) for batch in drawn_steps(estimator, graph)]
    assert np.isfinite(losses).all()
    assert len(losses) == 5
    alone = typed_graph(torch.arange(36) == 35)
    estimator = bound(lmc.MVSGNN(batch_size=4), model.eval(), alone)
    (batch,) = drawn_steps(estimator, alone)
    assert max(distance(gradient(estimator, batch)[1], full_gradient(model, alone)[1]).values()) < 1e-9


def test_gradients_of_zero_are_drawn_alike():
    graph = graph_of("undirected", task="regression")
    graph.y.zero_()
    model = gcn(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    estimator = bound(lmc.MVSGNN(batch_size=5), model, graph)
    np.testing.assert_allclose(estimator.chances, 5 / int(graph.train_mask.sum()))
    assert estimator.backward(drawn_steps(estimator, graph)[0]) == 0


def test_a_loss_that_is_not_per_node_is_named_at_bind():
    with pytest.raises(lmc.ArgumentError, match=r"^loss=cross_entropy: gives shape \(\) for"):
        lmc.MVSGNN().bind(gcn(2), graph_of("undirected"), loss=torch.nn.functional.cross_entropy)
