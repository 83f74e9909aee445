"""Rules of the design that the estimators keep, each by hand."""

import math

import pytest
import torch

import lmc
from estimating import (
    EVERY,
    bound,
    clusters_of,
    distance,
    full_gradient,
    gcn,
    gcnii,
    gradient,
    graph_of,
    mean_gradient,
    settled,
)
from lmc.estimators.mixed_halo import MixedSums, MixedValues
from lmc.estimators.vjp import Computed

pytestmark = pytest.mark.usefixtures("_either_kernels")


@pytest.mark.parametrize(
    "estimator", ["GAS", "GraphFM", "LMC", "LMC alpha 0", "LMC alpha 1", "MVSGNN", "TOP history"]
)
def test_halo_rows_reach_no_parameter(estimator):
    """No node of the batch is labelled, so its rows give nothing to the last layer and the head.

    A leak of halo rows, whose losses are not zero, would show in them.
    """
    graph = graph_of("undirected")
    batch = graph.batch((~graph.train_mask).nonzero().flatten())
    assert batch.train_mask[batch.num_nodes :].any()
    model = gcn(2, linear_in=True, linear_out=True)
    _, found = gradient(bound(EVERY[estimator](), model, graph, init="exact"), batch)
    for part in ("head.parts.1", "layers.1.linear"):
        assert torch.count_nonzero(found[f"{part}.weight"]) == 0
        assert torch.count_nonzero(found[f"{part}.bias"]) == 0
    if "LMC" in estimator:  # compensation: the halo's losses do reach the batch's own lower layers
        assert torch.count_nonzero(found["layers.0.linear.weight"]) > 0
    else:
        assert all(torch.count_nonzero(g) == 0 for g in found.values())


@pytest.mark.parametrize("estimator", EVERY)
def test_a_batch_without_labels_has_a_loss_of_zero(estimator):
    graph, model = graph_of("undirected"), gcn(2)
    batches = (graph.batch([i]) for i in (~graph.train_mask).nonzero().flatten().tolist())
    batch = next(b for b in batches if b.train_mask[1:].any())
    loss, found = gradient(bound(EVERY[estimator](), model, graph), batch)
    assert loss == 0.0
    assert all(torch.isfinite(g).all() for g in found.values())


def test_only_batch_rows_are_written_but_graphfm_writes_the_halo():
    graph, model = graph_of("undirected"), gcn(3)
    batch = graph.batch([0, 1, 2, 3])
    top = lmc.TOP(rank=4, basis="history")
    for estimator in (lmc.GAS(), lmc.GraphFM(), lmc.LMC(alpha=1, score="1"), lmc.MVSGNN(), top):
        bound(estimator, model, graph)
        before = {name: values.clone() for name, values in estimator.state_dict().items()}
        with torch.no_grad():
            model.layers[0].linear.weight.mul_(1.1)
        estimator.backward(batch)
        expected = set(batch.nodes.tolist())
        if isinstance(estimator, lmc.GraphFM):
            expected |= set(batch.halo.tolist())
        for name, values in estimator.state_dict().items():
            if name.startswith(("embeddings", "auxiliaries")):
                written = set((values != before[name]).any(1).nonzero().flatten().tolist())
                assert written <= expected
                if name.startswith("embeddings"):
                    assert written == expected


def test_batch_norm_keeps_batch_and_halo_apart():
    """By hand, dense: batch rows by their own statistics, halo rows by the running ones, one scale."""
    graph = graph_of("undirected")
    a = lmc.normalize(graph).to_dense()
    batch = graph.batch(range(10))
    model = gcn(2, norm="batch")
    norm = model.layers[1].message.norm
    with torch.no_grad():
        z = model.layers[0].linear(a @ graph.x)

    def activated(rows, mean, variance):
        return ((rows - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias).relu()

    estimator = bound(lmc.LMC(alpha=0), model, graph, init="exact")
    assert not norm.running_mean.any()  # the exact pass leaves them alone
    estimator.backward(batch)
    sent = torch.zeros_like(z)
    mean, variance = z[:10].mean(0), z[:10].var(0, correction=0)
    running = 0.1 * mean, 0.9 + 0.1 * z[:10].var(0)
    sent[batch.nodes] = activated(z[batch.nodes], mean, variance)
    sent[batch.halo] = activated(z[batch.halo], *running)
    expected = model.layers[1].linear(a @ sent)[batch.nodes]
    assert torch.allclose(estimator.embeddings[2].values[batch.nodes], expected, rtol=1e-10)
    assert torch.allclose(norm.running_mean, running[0])
    assert torch.allclose(norm.running_var, running[1])


@pytest.mark.parametrize("estimator", ["BackwardSGD", "LMC", "LMC alpha 0", "GAS"])
def test_running_statistics_are_those_of_batch_rows_everywhere(estimator):
    """The head's norm too, which sees halo rows when their losses are taken."""
    graph = graph_of("undirected")
    model = gcn(2, norm="batch", linear_out=True)
    batch = graph.batch(range(12))
    bound(EVERY[estimator](), model, graph, init="exact").backward(batch)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert [int(norm.num_batches_tracked) for norm in norms] == [1, 1]


def test_cluster_gcn_is_full_batch_on_the_subgraph():
    graph, model = graph_of("directed weighted"), gcn(3)
    nodes = torch.arange(3, 20)
    data = graph.to_pyg().subgraph(nodes)
    alone = lmc.Graph.from_pyg(data, num_classes=3)
    _, expected = full_gradient(model, alone)
    _, found = gradient(bound(lmc.ClusterGCN(), model, graph), graph.batch(nodes, scale=2.0))
    share = 2.0 * int(alone.train_mask.sum()) / int(graph.train_mask.sum())
    assert max(distance(found, {name: share * g for name, g in expected.items()}).values()) < 1e-10


@pytest.mark.parametrize("make", [gcn, gcnii])
def test_graphfm_equals_two_steps_by_hand(make):
    """Histories and values of two steps, dense: in-batch neighbours only, mixed, written back and used."""
    graph, momentum = graph_of("undirected"), 0.3
    model = make(3, residual=True, **({"linear_in": True} if make is gcn else {}))
    a = lmc.normalize(graph).to_dense()
    estimator = bound(lmc.GraphFM(momentum=momentum), model, graph)
    history = {1: torch.zeros(36, 6, dtype=torch.float64), 2: torch.zeros(36, 6, dtype=torch.float64)}
    for nodes in (range(0, 12), range(8, 30)):
        batch = graph.batch(nodes)
        with torch.no_grad():
            z = model.encoder.parts[1](graph.x)
            initial = model.initial(z)
            for place in (1, 2):
                sent = z.relu()
                reach = torch.zeros_like(sent)
                reach[batch.members] = sent[batch.members]
                inside = torch.zeros_like(sent)
                inside[batch.nodes] = sent[batch.nodes]
                layer = model.layers[place - 1]
                new, partial = layer.update(a @ reach, sent, initial), layer.update(a @ inside, sent, initial)
                history[place][batch.nodes] = new[batch.nodes]
                moved = (1 - momentum) * history[place] + momentum * partial
                history[place][batch.halo] = moved[batch.halo]
                z = history[place]
        with estimator.frozen():
            estimator.backward(batch)
        estimator.backward(batch)
        for place, values in history.items():
            assert torch.allclose(estimator.embeddings[place].values, values, rtol=1e-12)


def test_backward_sgd_with_dropout_averages_to_the_same_step_of_full_batch():
    """Masks of halo rows, and of the encoder's, are those of the step."""
    graph = graph_of("undirected")
    model = gcn(3, dropout=0.5, input_dropout=0.3, linear_in=True)
    _, expected = full_gradient(model, graph)
    estimator = bound(lmc.BackwardSGD(), model, graph)
    with estimator.frozen():
        found = mean_gradient(estimator, list(lmc.batches(graph, clusters_of(graph))))
    assert max(distance(found, expected).values()) < 1e-10


def test_full_batches_have_neither_bias_nor_spread():
    graph, model = graph_of("directed"), gcn(2)
    estimator, batches = bound(lmc.FullBatch(), model, graph), list(lmc.batches(graph, clusters_of(graph)))
    errors = lmc.gradient_error(graph, model, estimator, batches)
    assert max(errors["total"], errors.bias["total"], errors.variance["total"]) < 1e-12
    assert lmc.gradient_error(graph, model, bound(lmc.GAS(), model, graph), batches).bias["total"] > 1e-3


def test_masks_differ_from_step_to_step():
    graph, model = graph_of("undirected"), gcn(3, dropout=0.5)
    estimator, everything = bound(lmc.FullBatch(), model, graph), graph.batch(range(36))
    first, second = (gradient(estimator, everything)[0] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_the_mean_of_lmc_is_the_gradient_for_other_labels(task):
    graph, model = graph_of("directed weighted", task=task), gcn(3, linear_out=True)
    _, expected = full_gradient(model, graph)
    found = settled(bound(lmc.LMC(alpha=0), model, graph), graph)
    assert max(distance(found, expected).values()) < 1e-8


def test_gradients_accumulate_in_place():
    graph, model = graph_of("undirected"), gcn(2)
    estimator, everything = bound(lmc.FullBatch(), model, graph), graph.batch(range(36))
    estimator.backward(everything)
    held = [p.grad for p in model.parameters()]
    once = [g.clone() for g in held]
    estimator.backward(everything)
    assert all(torch.equal(2 * g, h) for g, h in zip(once, held, strict=True))


def test_frozen_parameters_get_nothing_and_tied_ones_the_sum():
    graph, model = graph_of("undirected"), gcn(4)
    model.layers[2].linear.weight = model.layers[1].linear.weight
    model.layers[1].linear.bias = model.layers[2].linear.bias
    model.layers[0].linear.weight.requires_grad_(False)
    estimator = bound(lmc.LMC(alpha=0), model, graph, init="exact")
    _, found = estimator.estimate(graph.batch(range(36)))
    loss = torch.nn.functional.cross_entropy(model(graph)[graph.train_mask], graph.y[graph.train_mask])
    loss.backward()
    assert model.layers[0].linear.weight.grad is None
    assert model.layers[0].linear.weight not in found
    for p in model.parameters():
        if p.requires_grad:
            assert torch.allclose(found[p], p.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("linear_in", "asked"), [(False, [3, 2]), (True, [3, 2, 1])])
@pytest.mark.parametrize(("alpha", "policy"), [(0.4, MixedValues), ("auto", MixedSums)])
def test_derivatives_of_the_halo_are_made_only_where_they_are_read(
    linear_in, asked, alpha, policy, monkeypatch
):
    """After the first layer they are read if something before it is trained."""
    graph, model = graph_of("undirected"), gcn(3, linear_in=linear_in)
    estimator, layers = bound(lmc.LMC(alpha), model, graph), []
    made = policy.auxiliaries
    monkeypatch.setattr(
        policy,
        "auxiliaries",
        lambda self, layer, *given: layers.append(layer) or made(self, layer, *given),
    )
    estimator.backward(graph.batch(range(12)))
    assert layers == asked


def test_state_goes_on_where_it_was_taken():
    graph = graph_of("undirected")
    batches = list(lmc.batches(graph, clusters_of(graph)))
    for make in EVERY.values():
        model = gcn(3, dropout=0.5)
        one, other = bound(make(), model, graph), bound(make(), model, graph)
        for batch in batches:
            gradient(one, batch)
        other.load_state_dict(one.state_dict())
        (loss_1, found_1), (loss_2, found_2) = gradient(one, batches[0]), gradient(other, batches[0])
        assert loss_1 == loss_2
        assert all(torch.equal(found_1[name], found_2[name]) for name in found_1)
        one.reset()
        fresh = bound(make(), model, graph)
        assert gradient(one, batches[0])[0] == gradient(fresh, batches[0])[0]


def test_half_precision_out_of_range_stays_finite():
    graph = graph_of("undirected", dtype=torch.float32)
    graph.x.mul_(1e6)
    estimator = bound(lmc.LMC(precision="half"), gcn(3, dtype=torch.float32), graph)
    batches = list(lmc.batches(graph, clusters_of(graph)))
    assert all(math.isfinite(gradient(estimator, batch)[0]) for batch in batches * 3)


def test_half_precision_halves_the_histories_and_stays_close():
    graph, model = graph_of("undirected", dtype=torch.float32), gcn(3, dtype=torch.float32)
    full, half = (bound(lmc.LMC(alpha=0, precision=p), model, graph) for p in ("full", "half"))
    found = [settled(estimator, graph) for estimator in (full, half)]
    assert 0 < max(distance(*found).values()) < 1e-2
    sizes = [sum(v.nbytes for n, v in e.state_dict().items() if n != "step") for e in (full, half)]
    assert sizes[0] == 2 * sizes[1]


def test_exact_values_ask_for_no_derivative_of_a_parameter(monkeypatch):
    """They would be computed for nothing."""
    asked, usual = [], Computed.vjp

    def watched(computed, derivative, *wanted):
        asked.extend(wanted)
        return usual(computed, derivative, *wanted)

    monkeypatch.setattr(Computed, "vjp", watched)
    bound(lmc.LMC(), gcn(3), graph_of("undirected"), init="exact")
    assert asked
    assert not any(isinstance(each, torch.nn.Parameter) for each in asked)


def with_stray(model):
    model.stray = torch.nn.Parameter(torch.zeros(1))
    return model


def one_more_loaded(estimator):
    estimator.load_state_dict(estimator.state_dict() | {"more": torch.zeros(1)})


def test_a_failed_bind_changes_nothing():
    graph, model = graph_of("undirected"), gcn(2)
    estimator = bound(lmc.GAS(), model, graph)
    with pytest.raises(lmc.ArgumentError):
        estimator.bind(lmc.GCN(7, 4, 3), graph)
    assert estimator.model is model
    estimator.backward(graph.batch([0]))
    assert repr(lmc.LMC(0.2, compensate_forward=False)).startswith(
        "LMC(alpha=0.2, score='2x-x^2', compensate_forward=False, compensate_back"
    )


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda g, m: lmc.LMC().backward(g.batch([0])), "LMC is not bound: call bind(model, graph) first"),
        (lambda g, m: lmc.GAS().prepare(g.batch([0])), "GAS is not bound: call bind(model, graph) first"),
        (lambda g, m: lmc.LMC().state_dict(), "LMC is not bound: call bind(model, graph) first"),
        (lambda g, m: lmc.LMC().load_state_dict({}), "LMC is not bound: call bind(model, graph) first"),
        (
            lambda g, m: lmc.FullBatch().prepare(g.batch([0])),
            "FullBatch is not bound: call bind(model, graph)",
        ),
        (lambda g, m: bound(lmc.GAS(), m, g).backward(graph_of("undirected").batch([0])), "batch: it is of"),
        (lambda g, m: lmc.LMC(alpha=1.5), "alpha=1.5: must be in [0, 1]"),
        (lambda g, m: lmc.LMC("full"), "alpha='full': must be in [0, 1] or 'auto'"),
        (lambda g, m: lmc.LMC(torch.ones(2)), "alpha=tensor([1., 1.]): must be a number"),
        (lambda g, m: lmc.LMC(score="x^3"), "score='x^3': must be one of x^2, 2x^2, 2x-x^2, x, 1, sin"),
        (lambda g, m: lmc.LMC(compensate_forward="no"), "compensate_forward='no': must be True or False"),
        (lambda g, m: lmc.GCN(5, 4, 3, linear_in="no"), "linear_in='no': must be True or False"),
        (lambda g, m: lmc.GCNII(5, 4, 3, residual=1), "residual=1: must be True or False"),
        (lambda g, m: lmc.GraphFM(momentum=-1), "momentum=-1: must be in [0, 1]"),
        (lambda g, m: lmc.TOP(rank=0), "rank=0: must be 1 or more"),
        (lambda g, m: lmc.TOP(basis="learned"), "basis='learned': must be one of random, history"),
        (lambda g, m: lmc.GAS(precision="double").bind(m, g), "precision='double': must be one of"),
        (lambda g, m: lmc.GAS().bind(m, g, init="random"), "init='random': must be one of zero, exact"),
        (lambda g, m: lmc.GAS().bind(lmc.GCN(7, 4, 3), g), "model: does not take the graph's 5 features"),
        (lambda g, m: lmc.GAS().bind(gcn(2).float(), g), "model: does not take the graph's 5 features of"),
        (lambda g, m: lmc.GAS().bind(lmc.GCN(5, 4, 2).double(), g), "model: predicts 2 columns"),
        (lambda g, m: lmc.GAS().bind(torch.nn.Linear(5, 3), g), "model: Linear is not an lmc model"),
        (lambda g, m: lmc.GAS().bind(with_stray(m), g), "model: parameter 'stray' is in neither encoder"),
        (
            lambda g, m: full_gradient(m, g, loss=torch.nn.functional.cross_entropy),
            "loss=cross_entropy: gives shape () for predictions (19, 3) and labels (19,); must be one number "
            "per row; torch's own losses",
        ),
        (lambda g, m: bound(lmc.GAS(), m, g).load_state_dict({}), "state['embeddings.1'] is missing"),
        (lambda g, m: one_more_loaded(bound(lmc.GAS(), m, g)), "state['more'] is of another estimator"),
    ],
)
def test_mistakes_are_one_line(mistake, message):
    graph, model = graph_of("undirected"), gcn(2)
    with pytest.raises(lmc.ArgumentError) as caught:
        mistake(graph, model)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x", "y", "train_mask"])
@pytest.mark.parametrize("estimator", [lmc.FullBatch, lmc.LMC, lambda: lmc.Spider(lmc.LMC())])
def test_arrays_that_are_changed_in_place_ask_for_another_bind(estimator, name):
    graph, model = graph_of("undirected"), gcn(2)
    bound_to = bound(estimator(), model, graph)
    batch = graph.batch(range(graph.num_nodes))
    bound_to.backward(batch)
    getattr(graph, name)[:3] = 0
    with pytest.raises(lmc.ArgumentError, match=rf"graph\.{name}: changed in place since bind"):
        bound_to.backward(batch)
    bound_to.bind(model, graph)
    bound_to.backward(graph.batch(range(graph.num_nodes)))
