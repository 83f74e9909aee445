"""Spider: the algorithm as printed, over any estimator, without a trace of the second estimate."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import lmc
from estimating import EVERY, bound, gcn, gradient, graph_of
from lmc.batching.samplers import BatchOptions
from test_resumed import goes_on
from test_sign import dense_adjacency

DRAWN = {
    "NeighborSampling": lambda: lmc.NeighborSampling([2, 2], batch_size=8),
    "VRGCN": lambda: lmc.VRGCN([2, 2], batch_size=8),
    "FastGCN": lambda: lmc.FastGCN([9, 9], batch_size=8),
    "LADIES": lambda: lmc.LADIES([9, 9], batch_size=8),
    "GraphSAINT": lambda: lmc.GraphSAINT(batch_size=8, coverage=2),
}
LAST = 8
"""Call at which a second large batch comes."""
ALL = {**EVERY, "FullBatch": lmc.FullBatch, **DRAWN}


def random_batches(graph, count, seed=0):
    rng = np.random.default_rng(seed)
    return [graph.batch(rng.permutation(graph.num_nodes)[:12], scale=3.0) for _ in range(count)]


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def dense_estimate(graph, w, batch):
    """Theorem 1, dense: derivatives of the whole loss, by what the rows of the batch make of parameters."""
    a = torch.from_numpy(dense_adjacency(graph))
    inside = torch.isin(torch.arange(graph.num_nodes), batch.nodes)[:, None]
    of_batch = {name: value.clone().requires_grad_() for name, value in w.items()}
    h = graph.x
    for layer in range(2):
        names = f"layers.{layer}.linear.weight", f"layers.{layer}.linear.bias"
        received = a @ (h if layer == 0 else h.relu())
        h = torch.where(inside, *(received @ p[names[0]].T + p[names[1]] for p in (of_batch, w)))
    loss = cross_entropy(h[graph.train_mask], graph.y[graph.train_mask])
    found = torch.autograd.grad(loss, list(of_batch.values()))
    return {name: batch.scale * value for name, value in zip(w, found, strict=True)}


# -- the algorithm ----------------------------------------------------------------------------------


def test_with_sgd_it_is_the_algorithm_as_printed():
    graph, model, eta, q = graph_of("undirected"), gcn(2), 0.2, 3
    estimator = bound(lmc.Spider(lmc.BackwardSGD(), every=q), model, graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=eta)
    before, w = None, weights(model)
    for k, batch in enumerate(random_batches(graph, 8)):
        optimizer.zero_grad()
        estimator.backward(batch)
        optimizer.step()
        g = dense_estimate(graph, w, batch)
        if k % q == 0:
            after = {name: w[name] - eta * g[name] for name in w}
        else:  # W_{k+1} = 2 W_k - W_{k-1} - η (g_k - g_{k-1})
            at_before = dense_estimate(graph, before, batch)
            after = {n: 2 * w[n] - before[n] - eta * (g[n] - at_before[n]) for n in w}
        before, w = w, after
        for name, value in weights(model).items():
            assert torch.allclose(value, w[name], rtol=1e-10, atol=1e-12), (k, name)


def test_parameters_may_be_moved_by_any_optimizer():
    graph, model, last, before = graph_of("undirected"), gcn(2), None, None
    estimator = bound(lmc.Spider(lmc.BackwardSGD(), every=4), model, graph)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for k, batch in enumerate(random_batches(graph, 6)):
        w, (loss, found) = weights(model), gradient(estimator, batch)
        expected = dense_estimate(graph, w, batch)
        if k % 4 > 0:
            at_before = dense_estimate(graph, before, batch)
            expected = {name: expected[name] - at_before[name] + last[name] for name in w}
        for name, value in found.items():
            assert torch.allclose(value, expected[name], rtol=1e-9, atol=1e-12), (k, name)
        assert loss == bound(lmc.BackwardSGD(), model, graph).estimate(batch)[0]
        optimizer.step()
        last, before = found, w


@pytest.mark.parametrize("name", ALL)
def test_while_parameters_rest_so_does_the_estimate(name):
    """To the bit: both estimates have the same masks, draws, histories and running statistics."""
    graph = graph_of("undirected")
    model = gcn(2, dropout=0.5, norm="batch").train()
    estimator = lmc.Spider(ALL[name](), every=LAST)
    sampler = estimator.make_sampler(graph, BatchOptions(parts=4))
    estimator.bind(model, graph)
    coming = itertools.chain.from_iterable(map(sampler.epoch, itertools.count()))
    if name in EVERY:
        coming = iter(random_batches(graph, LAST + 1))
    found = []
    for batch in itertools.islice(coming, LAST + 1):
        model.zero_grad(set_to_none=False)  # in place: what is kept is no part of `.grad`
        estimator.prepare(batch)
        estimator.backward(batch)
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for later in found[1:LAST]:
        for part, value in later.items():
            assert torch.equal(value, found[0][part]), part
    assert any(not torch.equal(found[LAST][part], found[0][part]) for part in found[0])  # by other masks


@pytest.mark.parametrize("name", ALL)
def test_only_the_estimate_at_the_parameters_of_now_leaves_a_trace(name):
    """`inner` and the model's statistics are as if `inner` had been alone on the same way."""
    graph = graph_of("undirected")
    model = gcn(2, dropout=0.5, norm="batch").train()
    other = copy.deepcopy(model)
    spider, alone = bound(lmc.Spider(ALL[name](), every=3), model, graph), bound(ALL[name](), other, graph)
    told = []
    spider.watch = lambda batch, v, received: told.append(batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = random_batches(graph, 5)
    for batch in batches:
        with torch.no_grad():
            for p, value in zip(other.parameters(), model.parameters(), strict=True):
                p.copy_(value)
        gradient(spider, batch)
        alone.estimate(batch)
        optimizer.step()
    for key, value in alone.state_dict().items():
        assert torch.equal(spider.state_dict()[f"inner.{key}"], value), key
    for one, value in zip(model.buffers(), other.buffers(), strict=True):
        assert torch.equal(one, value)
    assert spider.found() == alone.found()
    if name not in DRAWN:
        assert len(told) == len(batches)


def test_draws_made_ahead_serve_both_estimates():
    graph, model, drawn = graph_of("undirected"), gcn(2), []

    class Counting(lmc.NeighborSampling):
        def draw(self, batch, address):
            drawn.append(address)
            return super().draw(batch, address)

    estimator = bound(lmc.Spider(Counting([2, 2], batch_size=8), every=9), model, graph)
    for batch in lmc.prefetch(estimator.make_sampler(graph, BatchOptions()).epoch(0), estimator.prepare):
        estimator.backward(batch)
    assert len(drawn) == len(set(drawn)) == estimator._step > 1
    assert len(estimator.inner._ahead) == 0


def test_parameters_that_are_frozen_stay_out_and_those_thawed_later_are_estimated_plainly():
    graph, model = graph_of("undirected"), gcn(2)
    first = model.layers[0].linear.weight.requires_grad_(requires_grad=False)
    estimator = bound(lmc.Spider(lmc.GAS(), every=3), model, graph)
    batches = random_batches(graph, 3)
    estimator.backward(batches[0])
    assert first.grad is None
    assert not any("layers.0.linear.weight" in name for name in estimator.state_dict())
    first.requires_grad_()
    with estimator.inner.frozen():
        expected = estimator.inner.estimate(batches[1])[1][first]
    assert torch.equal(gradient(estimator, batches[1])[1]["layers.0.linear.weight"], expected)


# -- without a trace, and from where it was ------------------------------------------------------------


@pytest.mark.parametrize("name", ["LMC found", "GraphFM", "VRGCN"])
def test_a_frozen_estimate_is_the_one_to_come(name):
    graph, model = graph_of("undirected"), gcn(2)
    estimator = bound(lmc.Spider(ALL[name](), every=3), model, graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in random_batches(graph, 5):
        before = {key: value.clone() for key, value in estimator.state_dict().items()}
        with estimator.frozen():
            ahead = estimator.estimate(batch)
        for key, value in estimator.state_dict().items():
            assert torch.equal(value, before[key]), key
        model.zero_grad()
        assert estimator.backward(batch) == ahead[0]
        for p, value in ahead[1].items():
            assert torch.equal(p.grad, value)
        optimizer.step()


def test_gradient_errors_are_measured_and_full_batches_have_none():
    graph, model = graph_of("undirected"), gcn(2)
    for inner in (lmc.FullBatch(), lmc.LMC(), lmc.NeighborSampling([2])):
        estimator = bound(lmc.Spider(inner, every=9), model, graph)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = random_batches(graph, 3)
        for batch in batches:
            gradient(estimator, batch)
            optimizer.step()
        before = {key: value.clone() for key, value in estimator.state_dict().items()}
        errors = lmc.gradient_error(graph, model, estimator, batches)
        for key, value in estimator.state_dict().items():
            assert torch.equal(value, before[key]), key
        assert (errors["total"] < 1e-10) == isinstance(inner, lmc.FullBatch)
        assert errors.variance == lmc.gradient_error(graph, model, inner, batches).variance


@pytest.mark.parametrize("name", ["LMC found", "FullBatch", "VRGCN"])
def test_state_is_saved_and_loaded(name):
    graph, batches = graph_of("undirected"), random_batches(graph_of("undirected"), 7)
    batches = [graph.batch(batch.nodes, scale=3.0) for batch in batches]

    def trained(model, estimator, some):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in some:
            gradient(estimator, batch)
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    model = gcn(2, dropout=0.5).train()
    straight = bound(lmc.Spider(ALL[name](), every=5), model, graph)
    trained(model, straight, batches[:4])
    again = copy.deepcopy(model)
    state = {key: value.clone() for key, value in straight.state_dict().items()}
    resumed = bound(lmc.Spider(ALL[name](), every=5), again, graph, init="exact")
    resumed.load_state_dict(state)
    expected = trained(model, straight, batches[4:])
    for one, other in zip(trained(again, resumed, batches[4:]), expected, strict=True):
        assert torch.equal(one, other)
    straight.reset()
    fresh = bound(lmc.Spider(ALL[name](), every=5), model, graph).state_dict()
    assert all(torch.equal(value, fresh[key]) for key, value in straight.state_dict().items())
    del state["estimate.layers.1.linear.bias"]
    with pytest.raises(lmc.ArgumentError, match=r"^state\['estimate.layers.1.linear.bias'\] is missing$"):
        straight.load_state_dict(state)


@pytest.mark.parametrize("stop", [2, 6])
def test_a_run_goes_on_anywhere(tmp_path, stop):
    goes_on(tmp_path, stop, lambda: lmc.Spider(lmc.LMC(), every=3), balance="gradients")


def test_a_run_of_drawn_messages_goes_on(tmp_path):
    goes_on(tmp_path, 4, lambda: lmc.Spider(lmc.VRGCN([2, 2], batch_size=32), every=3))
