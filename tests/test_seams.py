"""The seams of the library, each by a use that is not one of its own."""

import inspect
import itertools
from dataclasses import fields

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GATConv, SAGEConv, TransformerConv

import lmc
from estimating import EVERY, MODELS, bound, clusters_of, distance, full_gradient, gcn, gradient, graph_of
from lmc.batching.samplers import BatchOptions, between_clusters
from lmc.data import normalization
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.history import MemoryHistory
from pyg_models import graph_with

# -- weights of nodes -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_an_estimate_is_linear_in_the_weights_of_its_nodes(name):
    graph, model, nodes = graph_of("directed weighted"), MODELS[name](3), [3, 0, 7, 20]
    estimator = bound(lmc.LMC(alpha=0.4), model, graph, init="exact")

    def estimate(weights):
        with estimator.frozen():
            return gradient(estimator, graph.batch(nodes, scale=2.0, weights=weights))

    each = [estimate([float(i == j) for j in range(4)]) for i in range(4)]
    for weights in ([1.0, 1.0, 1.0, 1.0], None, [0.5, 2.0, 0.0, -1.0]):
        loss, found = estimate(weights)
        factors = weights or [1.0] * 4
        assert loss == pytest.approx(sum(w * part for w, (part, _) in zip(factors, each, strict=True)))
        expected = {p: sum(w * g[p] for w, (_, g) in zip(factors, each, strict=True)) for p in found}
        assert max(distance(found, expected).values()) < 1e-10


def attention():
    """Attention to features of edges, between an encoder, a linear convolution and a head."""
    torch.manual_seed(0)
    layers = [
        TransformerConv(6, 4, heads=2, edge_dim=2),
        nn.Sequential(nn.LayerNorm(8), nn.PReLU(), nn.Dropout(0.3), SAGEConv(8, 6)),
        nn.Sequential(nn.Linear(6, 6), nn.ELU(), TransformerConv(6, 5, edge_dim=2, beta=True)),
    ]
    encoder = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Dropout(0.2))
    return lmc.GNN(layers, encoder, nn.Sequential(nn.Tanh(), nn.Linear(5, 3))).double()


@pytest.mark.parametrize("make", [lambda: gcn(3, linear_in=True, linear_out=True), attention])
def test_nodes_drawn_with_unequal_chances_average_to_the_gradient(make):
    """Every pair of four groups of nodes has a chance of its own; weights are one over a node's chance."""
    graph, model = graph_with("undirected"), make()
    loss, expected = full_gradient(model, graph)
    group = torch.arange(graph.num_nodes) % 4
    chances = dict(zip(itertools.combinations(range(4), 2), (0.3, 0.05, 0.1, 0.25, 0.1, 0.2), strict=True))
    of_group = [sum(p for pair, p in chances.items() if g in pair) for g in range(4)]
    estimator = bound(lmc.BackwardSGD(), model, graph)
    mean_loss, mean = 0.0, dict.fromkeys(expected, 0.0)
    for pair, chance in chances.items():
        nodes = torch.isin(group, torch.tensor(pair)).nonzero().flatten()
        weights = [1 / of_group[g] for g in group[nodes].tolist()]
        weights = torch.tensor(weights, dtype=torch.float64)
        with estimator.frozen():
            part, found = gradient(estimator, graph.batch(nodes, weights=weights))
        mean_loss += chance * part
        mean = {name: mean[name] + chance * found[name] for name in mean}
    assert mean_loss == pytest.approx(loss, rel=1e-12)
    assert max(distance(mean, expected).values()) < 1e-10


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "weights has shape (1,): must be (2,), one per node"),
        ([1.0, float("nan")], "weights[1] = nan"),
    ],
)
def test_wrong_weights_are_named(weights, message):
    with pytest.raises(lmc.GraphError) as caught:
        graph_of("undirected").batch([0, 1], weights=weights)
    assert str(caught.value).startswith(message)


# -- halo values that are a function of batch values ------------------------------------------------


class LinearHalo(HaloPolicy):
    """Halo values are a linear map of batch values; no histories."""

    revisits = True

    def __init__(self, maps):
        self.maps = maps

    def embeddings(self, layer, z, incomplete):
        return self.maps[layer] @ z

    def back_to_batch(self, layer, derivative):
        return self.maps[layer].T @ derivative()


def linear_halo(batch, seed=0):
    random = torch.Generator().manual_seed(seed)
    size = (batch.num_halo, batch.num_nodes)
    return {layer: torch.randn(size, generator=random, dtype=torch.float64) / 5 for layer in range(1, 9)}


def attention():
    torch.manual_seed(0)
    relu = torch.nn.ReLU
    layers = [
        GATConv(5, 6),
        torch.nn.Sequential(relu(), GATConv(6, 4)),
        torch.nn.Sequential(relu(), GATConv(4, 3)),
    ]
    return lmc.GNN([layer.double() for layer in layers])


@pytest.mark.parametrize("kind", ["undirected", "directed weighted"])
@pytest.mark.parametrize("make", [lambda: gcn(3), lambda: gcn(4, residual=True), attention])
def test_derivatives_flow_back_through_halo_values(make, kind):
    graph, model = graph_of(kind), make()
    batch = graph.batch(range(3, 17), scale=2.0)
    maps = linear_halo(batch)
    loss, found = bound(lmc.FullBatch(), model, graph).estimate_with(batch, LinearHalo(maps))

    a, inside = lmc.normalize(graph).to_dense()[batch.nodes], batch.num_nodes
    z = graph.x[batch.members]
    for place, layer in enumerate(model.layers, start=1):
        h = z if place == 1 else z.relu()
        if isinstance(model, lmc.GNN):
            z = layer.conv((h, h[:inside]), batch.edges.ends)
        else:
            z = layer.linear(a[:, batch.members] @ h) + (h[:inside] if layer.residual else 0)
        last = z
        z = torch.cat([z, maps[place] @ z])
    labelled = graph.train_mask[batch.nodes]
    losses = cross_entropy(last[labelled], graph.y[batch.nodes][labelled], reduction="sum")
    expected = 2.0 * losses / int(graph.train_mask.sum())
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    for (name, parameter), wanted in zip(
        model.named_parameters(), torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        assert torch.allclose(found[parameter], wanted, rtol=1e-9, atol=1e-12), name


def test_a_halo_that_is_not_followed_back_gives_another_gradient():
    graph, model = graph_of("undirected"), gcn(3)
    batch = graph.batch(range(3, 17))
    policy = LinearHalo(linear_halo(batch))
    estimator = bound(lmc.FullBatch(), model, graph)
    followed = estimator.estimate_with(batch, policy)[1]
    policy.back_to_batch = lambda layer, derivative: None
    cut = estimator.estimate_with(batch, policy)[1]
    assert not torch.allclose(followed[model.layers[0].linear.weight], cut[model.layers[0].linear.weight])


# -- what the background builds ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["undirected", "directed"])
@pytest.mark.parametrize("estimator", EVERY)
def test_a_step_builds_nothing_of_a_batch_that_was_prepared(estimator, kind):
    graph, model = graph_of(kind), gcn(3, linear_in=True)
    method = bound(EVERY[estimator](), model, graph)
    batch = graph.batch(range(12))
    method.prepare(batch)

    def built():
        return {name for where in (batch, method.trained_on(batch)) for name in (*where._built, *vars(where))}

    before = built()
    method.backward(batch)
    assert built() - before <= {"members", "y", "train_mask", "global_degree"}


@pytest.mark.parametrize("estimator", EVERY)
def test_a_step_builds_nothing_of_the_graph_that_bind_has_not(estimator):
    graph = graph_of("directed")
    method = bound(EVERY[estimator](), gcn(3), graph)
    before = set(normalization._cache.get(graph, ()))
    method.backward(graph.batch(range(12)))
    assert set(normalization._cache.get(graph, ())) == before


def test_cluster_gcn_prepares_its_own_block_and_not_the_one_it_never_reads():
    graph = graph_of("directed")
    estimator, batch = bound(lmc.ClusterGCN(), gcn(2), graph), graph.batch(range(12))
    estimator.prepare(batch)
    assert not batch._built
    assert len(batch.induced._built) == 2


# -- stores of histories ----------------------------------------------------------------------------


def test_histories_live_where_they_are_told_to():
    pushed = []

    class Watched(MemoryHistory):
        def push(self, nodes, values):
            pushed.append(len(nodes))
            super().push(nodes, values)

    graph, model = graph_of("undirected"), gcn(3)
    one, other = lmc.LMC(), bound(lmc.LMC(), model, graph)
    one.bind(model, graph, histories=Watched)
    for batch in lmc.batches(graph, clusters_of(graph)):
        with_own, with_default = gradient(one, batch), gradient(other, batch)
        assert with_own[0] == with_default[0]
    assert len(pushed) == 4 * 3  # sums of two layers forward and one backward, in each of four batches
    assert set(one.state_dict()) == set(other.state_dict())


@pytest.mark.parametrize("kind", ["undirected", "directed"])
@pytest.mark.parametrize("init", ["zero", "exact"])
@pytest.mark.parametrize("estimator", [lmc.GAS, lmc.GraphFM, lmc.LMC])
def test_nodes_that_are_never_outside_of_a_batch_need_no_history(estimator, init, kind):
    graph, model = graph_of(kind), gcn(3, linear_in=True)
    clusters = (torch.arange(graph.num_nodes) > 32).long()  # most nodes have no neighbour in the other one
    outside = between_clusters(graph, clusters)
    assert 0 < len(outside) < graph.num_nodes
    some, every = estimator(), estimator()
    some.bind(model, graph, init=init, outside=outside)
    every.bind(model, graph, init=init)
    for epoch in range(2):
        for batch in lmc.batches(graph, clusters, epoch=epoch):
            ours, wanted = gradient(some, batch), gradient(every, batch)
            assert ours[0] == wanted[0]
            assert all(torch.equal(ours[1][name], value) for name, value in wanted[1].items())
    for layer, history in some.embeddings.items():
        assert torch.equal(history.snapshot(), every.embeddings[layer].snapshot()[outside])


def test_a_node_without_a_history_is_named_when_it_is_outside():
    path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3).double(), [0, 1, 0], [True] * 3)
    estimator = bound(lmc.LMC(), lmc.GCN(3, 4, 2).double(), path, outside=torch.tensor([1]))
    estimator.backward(path.batch([0]))
    wanted = (
        "batch: node 0 is outside of it and has no history: the estimator was bound for other clusters; "
        "bind(model, graph) remembers all nodes"
    )
    with pytest.raises(lmc.ArgumentError) as error:
        estimator.backward(path.batch([1]))
    assert str(error.value) == wanted


# -- samplers ---------------------------------------------------------------------------------------


def test_a_run_takes_its_batches_from_the_estimators_sampler():
    graph = lmc.synthetic(nodes=300, features=8)

    class Halves:
        steps = 2

        def epoch(self, number, start=0):
            return (graph.batch(range(150 * i, 150 * (i + 1)), scale=2.0) for i in range(start, 2))

    class FromHalves(lmc.GAS):
        def make_sampler(self, graph, options):
            return Halves()

    result = lmc.fit(graph, lmc.GCN(8, 8, 10), FromHalves(), epochs=2)
    assert len(result.history) == 2


def test_a_sampler_goes_on_in_the_middle_of_an_epoch():
    graph = graph_of("undirected")
    sampler = lmc.GAS().make_sampler(graph, BatchOptions(parts=6, parts_per_batch=2, partition="random"))
    whole = [batch.nodes.tolist() for batch in sampler.epoch(3)]
    assert [batch.nodes.tolist() for batch in sampler.epoch(3, start=1)] == whole[1:]
    assert sampler.steps == len(whole) == 3


# -- options ----------------------------------------------------------------------------------------


def test_fit_names_every_option_with_its_default():
    given = inspect.signature(lmc.fit).parameters
    options = {field.name: field.default for field in fields(lmc.TrainingOptions)}
    assert {name: given[name].default for name in options} == options
    run = {"graph", "model", "estimator", "callbacks", "out", "resume", "progress"}
    assert set(given) - set(options) == run
    for name in options:
        line = f"{name}: "
        assert line in lmc.fit.__doc__
        assert line in lmc.TrainingOptions.__doc__


def test_a_bare_estimator_drops_what_is_outside():
    """As if the halo's values were zero after the first layer: what the docstring says."""
    graph = lmc.synthetic(nodes=300)
    model = lmc.GCN(graph.num_features, 8, graph.num_classes, layers=2)
    estimator = lmc.Estimator()
    estimator.bind(model, graph)
    batch = graph.batch(torch.arange(100))
    a, inside = batch.block("gcn").to_dense(), len(batch.nodes)
    z = a @ graph.x[torch.cat([batch.nodes, batch.halo])]
    hidden = torch.relu(z @ model.layers[0].linear.weight.T + model.layers[0].linear.bias)
    last = model.layers[1].linear
    logits = a[:, :inside] @ hidden @ last.weight.T + last.bias
    labelled = graph.train_mask[batch.nodes]
    expected = cross_entropy(logits[labelled], graph.y[batch.nodes][labelled], reduction="sum")
    expected = expected / graph.train_mask.sum()
    of_truncated = torch.autograd.grad(expected, list(model.parameters()))
    assert estimator.backward(batch) == pytest.approx(expected.item(), rel=1e-5)
    for parameter, derivative in zip(model.parameters(), of_truncated, strict=True):
        torch.testing.assert_close(parameter.grad, derivative, rtol=1e-4, atol=1e-7)
