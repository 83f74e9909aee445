"""Spider: the algorithm as printed, over any estimator, without a trace of the second estimate."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import lmc
from commands import called, fails, metrics
from estimating import EVERY, bound, gcn, gradient, graph_of
from lmc.batching.samplers import BatchOptions, ClusterSampler
from test_resumed import GRAPH, StopAt, goes_on, made
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


# -- its batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"balance": "labels"}, {"fixed": True}])
def test_large_batches_come_at_every_third_step_in_the_place_of_others(options):
    graph, parts = lmc.synthetic(nodes=300, classes=4), 13
    clusters = lmc.partition(graph, parts=parts)
    plain, sampler = (ClusterSampler(graph, clusters, 2, seed=1, **options) for _ in range(2))
    sampler.enlarge(every=3, large=4)
    assert sampler.steps == plain.steps == 7
    large = []
    for epoch in range(4):
        own, others = list(sampler.epoch(epoch)), list(plain.epoch(epoch))
        for step, (batch, other) in enumerate(zip(own, others, strict=True)):
            if (epoch * 7 + step) % 3 == 0:
                large.append(set(clusters[batch.nodes].tolist()))
                assert len(large[-1]) == 4
                assert batch.scale == parts / 4
                assert torch.equal(
                    batch.nodes.sort()[0],
                    torch.isin(clusters, torch.tensor(sorted(large[-1]))).nonzero()[:, 0],
                )
            else:
                assert torch.equal(batch.nodes, other.nodes)
                assert batch.scale == other.scale
        for start in range(8):
            rest = list(sampler.epoch(epoch, start))
            assert [b.nodes.tolist() for b in rest] == [b.nodes.tolist() for b in own[start:]]
    first = torch.cat([batch.nodes for batch in itertools.islice(plain.epoch(0), 2)])
    assert large[0] != set(clusters[first].tolist())  # an order of their own
    rounds = [large[i : i + 3] for i in range(0, 9, 3)]  # three of four clusters, one is left out
    assert all(len(set.union(*each)) == 12 for each in rounds)
    assert (rounds[0] == rounds[1]) == ("fixed" in options)


def test_large_groups_are_alike_where_others_are():
    """By the deviation of their label counts from their share of all."""
    graph = lmc.synthetic(nodes=2000, classes=4)
    clusters, away = lmc.partition(graph, parts=40), {}
    for balance in ("none", "labels"):
        sampler = ClusterSampler(graph, clusters, 2, balance=balance)
        sampler.enlarge(every=1, large=10)
        counts = torch.stack(
            [
                torch.bincount(graph.y[batch.nodes][graph.train_mask[batch.nodes]], minlength=4).double()
                for epoch in range(3)
                for batch in sampler.epoch(epoch)
            ]
        )
        share = torch.bincount(graph.y[graph.train_mask], minlength=4).double() / 4
        away[balance] = float((counts - share).square().sum())
    assert away["labels"] < away["none"] / 2


@pytest.mark.parametrize(("every", "parts_per_batch", "expected"), [(3, 2, 6), (10, 2, 8), (1, 2, 2)])
def test_by_default_a_large_batch_is_as_large_as_all_from_one_to_the_next(every, parts_per_batch, expected):
    options = BatchOptions(parts=8, parts_per_batch=parts_per_batch)
    sampler = lmc.Spider(lmc.GAS(), every=every).make_sampler(GRAPH, options)
    assert next(sampler.epoch(0)).scale == 8 / expected
    assert sampler.largest == ("large", expected)


def test_in_a_run_large_batches_are_those_of_large_steps_also_after_it_was_stopped(tmp_path):
    seen = []

    class Seen(lmc.Spider):
        def estimate_on(self, batch):
            seen.append((self._step, batch.scale))
            return super().estimate_on(batch)

    options = {"parts": 8, "parts_per_batch": 2, "epochs": 4, "out": tmp_path / "a"}
    estimator = lambda: Seen(lmc.GAS(), every=3, large=5)  # noqa: E731
    lmc.fit(GRAPH, made(), estimator(), **options, callbacks=[StopAt(6)])
    result = lmc.fit(GRAPH, made(), estimator(), **options, resume=True)
    assert seen == [(k, 8 / 5 if k % 3 == 0 else 8 / 2) for k in range(16)]
    assert result.batches.endswith("; each 3 steps one of 5")


def test_the_loss_of_an_epoch_is_the_mean_over_what_was_visited():
    """With everything in every batch, that of the graph."""
    options = {"parts": 4, "epochs": 1, "optimizer": "sgd", "lr": 1e-30, "seed": 1}
    torch.manual_seed(0)
    model = lmc.GCN(8, 8, 4)
    expected = lmc.fit(GRAPH, model, lmc.FullBatch(), **options).history[0].loss
    found = lmc.fit(GRAPH, model, lmc.Spider(lmc.GAS(), every=1, large=4), **options).history[0].loss
    assert found == pytest.approx(expected, rel=1e-5)


def test_memory_is_that_of_the_largest_batch(monkeypatch):
    graph = lmc.synthetic(nodes=2000)
    model = lmc.GCN(graph.num_features, 64, graph.num_classes, layers=2)
    options = {"parts": 20, "epochs": 1}
    monkeypatch.setattr("lmc.memory_use.free", lambda: 2_000_000)
    lmc.fit(graph, model, lmc.Spider(lmc.GAS(), every=2), **options)
    with pytest.raises(lmc.ArgumentError, match=r"^large=18: training needs .*; parts=20, large=4 fits"):
        lmc.fit(graph, model, lmc.Spider(lmc.GAS(), every=2, large=18), **options)
    with pytest.raises(lmc.ArgumentError, match=r"^Spider: training needs .*; LMC with parts="):
        lmc.fit(graph, model, lmc.Spider(lmc.BackwardSGD()), **options)


# -- settings and commands --------------------------------------------------------------------------


def test_flags_and_files_and_fit_say_the_same(small, tmp_path):
    flags = ["--data", small, "--hidden", 8, "--epochs", 2, "--method", "gas"]
    flags += ["--parts", 8, "--parts-per-batch", 2, "--spider", 3]
    large = ["--set", "method.spider_large=5"]
    by_flags = called("train", *flags, *large, "--out", tmp_path / "a")
    assert by_flags.returncode == 0, by_flags.stderr
    method = {"name": "gas", "precision": "full", "spider": 3, "spider_large": 5}
    assert lmc.load_run(tmp_path / "a").settings["method"] == method
    by_file = called("train", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    assert by_file.returncode == 0, by_file.stderr
    graph = lmc.load(str(small))
    model = lmc.build_model("gcn", graph, hidden=8)
    model.load_state_dict(_untrained(graph).state_dict())
    estimator = lmc.Spider(lmc.GAS(), every=3, large=5)
    lmc.fit(graph, model, estimator, parts=8, parts_per_batch=2, epochs=2, out=tmp_path / "c")
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b") == metrics(tmp_path / "c")
    assert lmc.load_run(tmp_path / "c").settings["method"] == method
    for name in "ac":
        assert called("train", "--resume", tmp_path / name, "--epochs", 3, "--quiet").returncode == 0
    assert metrics(tmp_path / "a") == metrics(tmp_path / "c")
    other = called("train", *flags[:-2], "--out", tmp_path / "d")
    assert other.returncode == 0
    assert metrics(tmp_path / "d") != metrics(tmp_path / "a")[:2]
    assert called("report", tmp_path / "a").returncode == 0
    assert "SPIDER over GAS" in (tmp_path / "a" / "report.html").read_text()
    assert "must be 1 or more" in fails(2, "train", *flags[:-2], "--spider", 0, through=called)
    assert "spider, which is not given" in fails(2, "train", *flags[:-2], *large, through=called)


def _untrained(graph):
    torch.manual_seed(0)
    return lmc.build_model("gcn", graph, hidden=8)


@pytest.mark.slow
def test_it_is_put_on_top_of_every_method_compared(small, tmp_path):
    sizes = ["--data", small, "--hidden", 4, "--parts", 4, "--epochs", 1, "--batch-size", 99]
    asked = ["--methods", "gas,sage", "--spider", 2, "--set", "method.spider_large=3"]
    done = called("compare", *sizes, *asked, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert lmc.load_run(tmp_path / "gas").settings["method"]["spider_large"] == 3
    assert lmc.load_run(tmp_path / "sage").settings["method"]["spider"] == 2  # without clusters
    assert "SPIDER over GAS" in (tmp_path / "report.html").read_text()


MISTAKES = {
    "every=0: must be": lambda: lmc.Spider(lmc.LMC(), every=0),
    "every=2.5: must be": lambda: lmc.Spider(lmc.LMC(), every=2.5),
    "large=0: must be": lambda: lmc.Spider(lmc.LMC(), large=0),
    "inner: is a Spider already": lambda: lmc.Spider(lmc.Spider(lmc.LMC())),
    "inner='lmc': must be an lmc.Estimator": lambda: lmc.Spider("lmc"),
    "large=9: must be at most parts=8": lambda: lmc.Spider(lmc.GAS(), large=9).check_batches(
        BatchOptions(parts=8)
    ),
    "large=1: must be from 2, ": lambda: lmc.Spider(lmc.GAS(), large=1).make_sampler(
        GRAPH, BatchOptions(parts=8, parts_per_batch=2)
    ),
    "large=4: batches of FullBatch are not": lambda: lmc.Spider(lmc.FullBatch(), large=4).make_sampler(
        GRAPH, BatchOptions()
    ),
    "Spider is not bound": lambda: lmc.Spider(lmc.GAS()).backward(GRAPH.batch([0])),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_one_line(message):
    with pytest.raises(lmc.ArgumentError) as caught:
        MISTAKES[message]()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
