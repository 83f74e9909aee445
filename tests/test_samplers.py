"""Methods that draw messages, against dense algebra, PyG, and the mean over all draws or many."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import DirGNNConv, GCNConv

import lmc
import pyg_models
import test_typed_edges as typed_edges
from estimating import KINDS, bound, distance, gcn, gcnii, gradient, graph_of, mostly_long
from hop_models import make_hops
from lmc import hashed_random
from lmc.batching.samplers import BatchOptions
from lmc.data.sampled import SampledBlock
from lmc.estimators.graph_saint import Subgraphs
from lmc.estimators.layer_sampling import drawn_by, layer_chances


def exact(model, graph, batch, predict=None):
    """The loss of a batch's targets, and its gradient by name, by autograd over the whole graph."""
    model.zero_grad()
    out = (predict or (lambda: model(graph)))()
    labelled = graph.train_mask[batch.nodes]
    nodes = batch.nodes[labelled]
    weights = torch.ones(len(nodes)).double() if batch.weights is None else batch.weights[labelled]
    losses = weights * cross_entropy(out[nodes], graph.y[nodes], reduction="none")
    loss = batch.scale * losses.sum() / int(graph.train_mask.sum())
    loss.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    model.zero_grad()
    return loss.item(), found


def check_exact(model, graph, predict=None):
    """All neighbours of some nodes, the isolated last one among them, in an order of its own."""
    nodes = [*range(graph.num_nodes - 1, 3, -2), 0]
    for weights in (None, np.linspace(0.5, 2, len(nodes))):
        batch = graph.batch(nodes, 2.5, weights)
        estimator = bound(lmc.NeighborSampling(fanouts=[-1]), model, graph)
        loss, found = gradient(estimator, batch)
        expected_loss, expected = exact(model, graph, batch, predict)
        assert loss == pytest.approx(expected_loss, rel=1e-9)
        assert max(distance(found, expected).values()) < 1e-9


OWN = {
    "gcn": lambda: gcn(2),
    "gcn deep": lambda: gcn(3, linear_in=True, linear_out=True, residual=True, norm="layer"),
    "gcnii": lambda: gcnii(3),
    "APPNP": lambda: make_hops("APPNP").wrapped(),
    "ChebConv": lambda: make_hops("ChebConv").wrapped(),
}


@pytest.mark.parametrize(("of_edges", "name"), mostly_long(list(product(KINDS, OWN)), 2))
def test_all_neighbours_give_the_exact_gradient(name, of_edges):
    check_exact(OWN[name](), graph_of(of_edges))


@pytest.mark.parametrize("of_edges", ["undirected", "directed weighted"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in ("SAGE mean", "GIN", "SAGE max", "GAT", "PNA", "GAT of edges")),
        ("SAGE mean", {"jk": "cat", "num_layers": 3}),
        ("GCN", {"jk": "max"}),
    ],
)
def test_all_neighbours_give_the_gradient_of_pyg(kind, options, of_edges):
    module = pyg_models.make(kind, **options)
    graph = pyg_models.graph_with(of_edges) if "of edges" in kind else graph_of(of_edges)
    model = lmc.from_pyg(module)
    check_exact(model, graph, lambda: pyg_models.by_pyg(module, graph))


@pytest.mark.parametrize("of_edges", ["undirected features", "directed weighted features"])
@pytest.mark.parametrize("kind", ["RGCNConv", "RGCNConv, max", "RGATConv"])
def test_all_neighbours_of_every_type(kind, of_edges):
    """On a multigraph with self-loops."""
    data = typed_edges.typed(of_edges)
    graph, (model, convs) = lmc.Graph.from_pyg(data), typed_edges.model_of(kind)
    check_exact(model, graph, lambda: typed_edges.by_pyg(convs, data))


def test_all_neighbours_both_ways():
    torch.manual_seed(0)
    model = lmc.GNN([DirGNNConv(GCNConv(*size)).double() for size in ((5, 6), (6, 3))])
    check_exact(model, graph_of("directed"))


def test_a_maximum_is_that_of_the_messages_as_they_are():
    graph = graph_of("undirected")
    conv = GCNConv(5, 3, aggr="max").double()
    estimator = bound(lmc.NeighborSampling([1]), lmc.GNN([conv]), graph)
    nodes = torch.tensor([4, 9, 35])
    (block,) = estimator.draw(graph.batch(nodes), (0, 0))
    found = estimator.step_over([block], None).prediction()
    a, sent = lmc.normalize(graph).to_dense(), graph.x @ conv.lin.weight.T
    for row, node in enumerate(nodes.tolist()):
        heard = block.heard.rows(slice(row, row + 1)).indices
        assert len(heard) == (1 if node == 35 else 2)
        expected = (a[node, heard, None] * sent[heard]).max(0).values + conv.bias
        assert torch.allclose(found[row], expected, rtol=1e-12)


# -- draws ------------------------------------------------------------------------------------------


def spread_out(block, norm, columns):
    """(nodes, graph's nodes) what was drawn, dense."""
    dense = torch.zeros(block.num_nodes, columns, dtype=torch.float64)
    dense[:, block.members] = block.block(norm).to_dense()
    return dense


def within(found, mean, trials):
    """Whether the mean of (trials, ...) is another one, within five deviations."""
    allowed = 5 * found.std(0) / trials**0.5 + 1e-12
    return bool(((found.mean(0) - mean).abs() <= allowed).all())


@pytest.mark.parametrize("norm", ["gcn", "mean", "sum"])
def test_sums_over_some_neighbours_are_unbiased(norm):
    graph, trials = graph_of("directed weighted"), 600
    estimator = bound(lmc.NeighborSampling(fanouts=[2]), gcn(1), graph)
    nodes, found = torch.tensor([7, 3, 35, 20]), []
    for trial in range(trials):
        heard = estimator.drawn_of(nodes, 2, (trial,))
        found.append(spread_out(SampledBlock.of_heard(graph, nodes, heard), norm, 36))
    full = lmc.normalize(graph, norm).to_dense()[nodes]
    assert within(torch.stack(found), full, trials)
    assert not torch.allclose(found[0], full)


def test_draws_are_addressed_by_seed_epoch_step_layer_and_node():
    graph = lmc.synthetic(nodes=300)
    model = lmc.GCN(graph.num_features, 4, graph.num_classes, layers=2)

    def heard(seed=0, epoch=0, start=0, size=40):
        estimator = lmc.NeighborSampling(fanouts=[2, 2], batch_size=size)
        sampler = estimator.make_sampler(graph, BatchOptions(seed=seed))
        estimator.bind(model, graph, seed=seed)
        batch = next(iter(sampler.epoch(epoch, start)))
        return [block.heard.indices.tolist() for block in estimator.draw(batch, batch.address)]

    sampler = lmc.NeighborSampling(batch_size=40).make_sampler(graph, BatchOptions(seed=7))
    assert [batch.address for batch in sampler.epoch(3)] == [(7, 3, step) for step in range(sampler.steps)]
    first = heard()
    assert heard() == first
    assert all(heard(**other) != first for other in ({"seed": 1}, {"epoch": 1}, {"start": 1}))
    # The same nodes hear others at another layer, and the same ones whoever is in the batch with them.
    estimator = bound(lmc.NeighborSampling(), model, graph)
    some, more = torch.arange(50), torch.arange(100)
    at = estimator.drawn_of(some, 2, (0, 0, 0, 0))
    assert at.indices.tolist() != estimator.drawn_of(some, 2, (0, 0, 0, 1)).indices.tolist()
    together = estimator.drawn_of(more, 2, (0, 0, 0, 0))
    assert together.rows(slice(0, 50)).indices.tolist() == at.indices.tolist()


# -- VR-GCN -----------------------------------------------------------------------------------------

SUMS = {
    "gcn": lambda: gcn(3),
    "gcn linear": lambda: gcn(2, linear_in=True),
    "gcnii": lambda: gcnii(3),
    "GIN": lambda: lmc.from_pyg(pyg_models.make("GIN")),
    "SAGE": lambda: lmc.from_pyg(pyg_models.make("SAGE mean", jk="cat")),
    "RGCN": lambda: typed_edges.model_of("RGCNConv")[0],
}


@pytest.mark.parametrize("name", SUMS)
def test_with_exact_histories_the_loss_is_exact_whatever_is_drawn(name):
    if name == "RGCN":
        graph = lmc.Graph.from_pyg(typed_edges.typed("directed weighted features"))
    else:
        graph = graph_of("directed weighted")
    model = SUMS[name]()
    estimator = bound(lmc.VRGCN(fanouts=[1]), model, graph, init="exact")
    for _ in range(3):  # each draws others
        batch = graph.batch(range(0, graph.num_nodes, 2), 2.0)
        assert gradient(estimator, batch)[0] == pytest.approx(exact(model, graph, batch)[0], rel=1e-9)
    if name != "RGCN":  # and with the histories of nothing it is not
        empty = bound(lmc.VRGCN(fanouts=[1]), model, graph)
        assert gradient(empty, batch)[0] != pytest.approx(exact(model, graph, batch)[0], rel=1e-4)


def test_any_histories_leave_the_sum_unbiased():
    graph, trials = graph_of("directed weighted"), 600
    estimator = bound(lmc.VRGCN(fanouts=[2]), gcn(2), graph)
    torch.manual_seed(0)
    history = torch.randn(36, 6, dtype=torch.float64)
    estimator.embeddings[2].restore(history)
    sent, nodes, found = torch.randn(36, 6, dtype=torch.float64), torch.tensor([7, 3, 35, 20]), []
    for trial in range(trials):
        block = SampledBlock.of_heard(graph, nodes, estimator.drawn_of(nodes, 2, (trial,)))
        with estimator.frozen():
            _, controlled = estimator.step_over([block, block], None).blocks
            found.append(controlled.received("gcn", sent[block.members]))
    assert within(torch.stack(found), (lmc.normalize(graph).to_dense() @ sent)[nodes], trials)
    assert torch.equal(estimator.embeddings[2].snapshot(), history)  # frozen


def test_what_is_sent_is_remembered():
    graph, model = graph_of("undirected"), gcn(2)
    estimator = bound(lmc.VRGCN(fanouts=[1, -1]), model, graph)
    batch = graph.batch([4, 9, 11])
    members = estimator.draw(batch, (0, 0))[1].members
    estimator.backward(batch)
    dense = lmc.normalize(graph).to_dense()
    first = model.layers[0].linear
    expected = torch.zeros(36, 6, dtype=torch.float64)
    expected[members] = (dense @ graph.x @ first.weight.T + first.bias).relu()[members]
    assert estimator.embeddings.keys() == {2}  # what the first layer adds up never changes
    assert torch.allclose(estimator.embeddings[2].snapshot(), expected, rtol=1e-12)
    assert 3 < len(members) <= 6


@pytest.mark.parametrize("precision", ["full", "half"])
def test_the_state_of_histories_goes_on(precision):
    graph, batches = graph_of("undirected"), [[1, 2, 3], [5, 20, 8], [3, 30, 31]]
    one, other = (bound(lmc.VRGCN([1], precision=precision), gcn(3), graph) for _ in range(2))
    for nodes in batches:
        one.backward(graph.batch(nodes))
    state = {name: value.clone() for name, value in one.state_dict().items()}
    assert set(state) == {"step", "embeddings.2", "embeddings.3"}
    assert state["embeddings.2"].dtype == (torch.float16 if precision == "half" else torch.float64)
    other.load_state_dict(state)
    loss, found = gradient(one, graph.batch([1, 9, 30]))
    loss_too, found_too = gradient(other, graph.batch([1, 9, 30]))
    assert loss == loss_too
    assert all(torch.equal(found[name], found_too[name]) for name in found)


# -- layers -----------------------------------------------------------------------------------------


def dense_gcn(graph):
    """D^-1/2 (A + I) D^-1/2 by hand, of a graph without weights, self-loops or repeated edges."""
    a = np.eye(graph.num_nodes)
    for source, target in graph.to_pyg().edge_index.T.tolist():
        a[target, source] = 1
    power = a.sum(1) ** -0.5
    return power[:, None] * a * power


def small_directed():
    ends = [[1, 2, 3, 0, 4, 4], [0, 0, 0, 2, 1, 3]]
    return lmc.Graph(ends, torch.randn(6, 5).double(), [0, 1, 2, 0, 1, 2], [True] * 6)


@pytest.mark.parametrize("size", [1, 2])
def test_the_mean_over_all_draws_of_fastgcn_is_exact(size, monkeypatch):
    """Every sequence of nodes that can be drawn, times its chance."""
    graph = small_directed()
    a = dense_gcn(graph)
    q = (a**2).sum(0) / (a**2).sum()
    middles = q.cumsum() - q / 2
    estimator = bound(lmc.FastGCN(sizes=[size]), gcn(1), graph)
    nodes, mean = torch.tensor([3, 0, 5]), torch.zeros(3, 6, dtype=torch.float64)
    for drawn in product(range(6), repeat=size):
        monkeypatch.setattr(hashed_random, "uniform", lambda *_, drawn=drawn: middles[list(drawn)])
        heard = estimator.heard_by(nodes, lmc.normalize(graph), size, (0,))
        assert set(heard.indices.tolist()) <= set(drawn)
        block = SampledBlock.of_heard(graph, nodes, heard)
        mean += np.prod(q[list(drawn)]) * spread_out(block, "gcn", 6)
    assert np.allclose(mean, a[nodes], rtol=1e-9)


def test_chances_of_fastgcn():
    q = torch.tensor([0.0, 0.5, 0.2, 0.0, 0.3], dtype=torch.float64)
    drawn = drawn_by(q.cumsum(0), 20_000, (5,)).bincount(minlength=5) / 20_000
    assert ((drawn - q).abs() <= 5 * (q * (1 - q) / 20_000).sqrt()).all()


def test_chances_of_ladies():
    graph, trials = small_directed(), 800
    a, nodes = dense_gcn(graph), [0, 2]
    p = (a[nodes] ** 2).sum(0) / (a[nodes] ** 2).sum()
    candidates, chances = layer_chances(lmc.normalize(graph), torch.tensor(nodes))
    assert candidates.tolist() == p.nonzero()[0].tolist()
    assert np.allclose(chances, p[candidates], rtol=1e-12)
    estimator = bound(lmc.LADIES(sizes=[1]), gcn(1), graph)
    often = np.zeros(6)
    for trial in range(trials):
        heard = estimator.heard_by(torch.tensor(nodes), lmc.normalize(graph), 1, (trial,))
        often[list(set(heard.indices.tolist()))] += 1
    others = [1, 3]  # the nodes themselves are there in any case
    assert often[nodes].tolist() == [trials, trials]
    assert (abs(often / trials - p) <= 5 * (p * (1 - p) / trials) ** 0.5)[others].all()


@pytest.mark.parametrize("sizes", [[3, 5], [1], [1000]])
def test_rows_of_ladies_add_up_to_one(sizes):
    graph = graph_of("undirected")
    estimator = bound(lmc.LADIES(sizes=sizes), gcn(2), graph)
    batch, a = graph.batch([30, 2, 35, 9]), lmc.normalize(graph).to_dense()
    above = batch.nodes
    for block, size in zip(reversed(estimator.draw(batch, (0,))), (sizes * 2)[:2], strict=True):
        assert torch.equal(block.nodes, above)
        p = a[above].square().sum(0) / a[above].square().sum()
        assert len(block.members) <= len(above) + size
        assert len(block.members) >= min(size, int((p > 0).sum()))
        expected = a[above][:, block.members] / p[block.members]
        expected /= expected.sum(1, keepdim=True)
        assert torch.allclose(block.block("gcn").to_dense(), expected, rtol=1e-9, atol=0)
        assert torch.allclose(block.block("gcn").row_sums(), torch.ones(len(above)).double(), rtol=1e-12)
        above = block.members


# -- subgraphs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
def test_counts_and_coefficients_of_graphsaint_by_hand(kind):
    graph = graph_of("directed weighted")
    estimator = lmc.GraphSAINT(kind, batch_size=6, coverage=5)
    estimator.bind(gcn(2), graph, seed=3)
    subgraphs = Subgraphs(graph, kind, 6, 2)
    edge = lmc.normalize(graph, "sum").to_dense() != 0
    edge |= torch.eye(36, dtype=torch.bool)
    often, together, drawn = np.zeros(36), np.zeros((36, 36)), 0
    while often.sum() < 5 * 36:
        chosen = subgraphs.nodes(3, 0, drawn).tolist()
        often[chosen] += 1
        together[np.ix_(chosen, chosen)] += 1
        drawn += 1
    batch = next(iter(estimator.make_sampler(graph, BatchOptions(seed=1)).epoch(2)))
    nodes = batch.nodes.tolist()
    assert nodes == sorted(set(nodes))
    first, second = estimator.draw(batch, batch.address)
    assert first is second
    a = lmc.normalize(graph).to_dense().numpy()
    expected = np.zeros((len(nodes), len(nodes)))
    for (i, v), (j, u) in product(enumerate(nodes), enumerate(nodes)):
        alpha = 1 if v == u else max(together[v, u], 1) / max(often[v], 1)
        expected[i, j] = a[v, u] / alpha if edge[v, u] else 0
    assert np.allclose(spread_out(first, "gcn", 36).numpy()[:, nodes], expected, rtol=1e-9)
    weights = batch.scale * estimator.loss_weights(batch)
    assert np.allclose(weights, drawn / np.maximum(often[nodes], 1), rtol=1e-12)


@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
def test_normalised_losses_and_sums_of_graphsaint_are_unbiased(kind):
    """As far as counts are chances: within five deviations of those and of the subgraphs here."""
    graph = lmc.Graph(*_ring(8))
    estimator = lmc.GraphSAINT(kind, batch_size=4, coverage=300)
    estimator.bind(gcn(1), graph)
    losses, sums, present, trials = torch.zeros(8), torch.zeros(8, 8), torch.zeros(8), 0
    sampler = estimator.make_sampler(graph, BatchOptions())
    for epoch in range(200):
        for batch in sampler.epoch(epoch):
            losses[batch.nodes] += batch.scale * estimator.loss_weights(batch)
            sums[batch.nodes] += spread_out(estimator.draw(batch, ())[0], "gcn", 8).float()
            present[batch.nodes] += 1
            trials += 1
    counts = estimator._counts
    assert ((losses / trials - 1).abs() < 5 * (1 / present + 1 / counts.nodes) ** 0.5).all()
    assert (losses / trials - 1).abs().max() < 0.3
    a, sources = lmc.normalize(graph).to_dense(), graph.sources
    often = sources.with_values(counts.edges.double()).to_dense().clamp(min=1)
    alpha = often / counts.nodes[:, None]
    allowed = 5 * a * (1 / (alpha * present[:, None]) + 1 / often) ** 0.5
    off = ~torch.eye(8, dtype=torch.bool)
    difference = (sums / present[:, None] - a).abs()
    assert (difference <= allowed)[off].all()
    assert difference.diagonal().max() < 1e-6
    assert difference.mean() < 0.03


def _ring(nodes):
    """Each node hears its two neighbours, and node 0 everybody."""
    here = np.arange(nodes)
    ends = [[*here, *((here + 1) % nodes), *here[2:-1]], [*((here + 1) % nodes), *here, *[0] * (nodes - 3)]]
    return ends, torch.ones(nodes, 5).double(), here % 3, here >= 0


def test_chances_of_subgraphs():
    graph = small_directed()
    node, edge = (Subgraphs(graph, kind, 5, 2) for kind in ("node", "edge"))
    a = dense_gcn(graph)
    assert np.allclose(node._until, (a**2).sum(0).cumsum(), rtol=1e-12)
    heard = a - np.diag(a.diagonal()) > 0
    degree = np.maximum(heard.sum(1), 1)
    targets, sources = heard.nonzero()
    assert np.allclose(edge._until, (1 / degree[targets] + 1 / degree[sources]).cumsum(), rtol=1e-12)


def test_walks_go_from_neighbour_to_neighbour():
    graph = small_directed()
    heard = (dense_gcn(graph) > 0) & ~np.eye(6, dtype=bool)
    path = Subgraphs(graph, "walk", 50, 3)._walked(0, 1).view(4, 50)
    assert set(path[0].tolist()) == set(range(6))
    for before, after in zip(path[:-1].flatten().tolist(), path[1:].flatten().tolist(), strict=True):
        assert heard[before, after] or (before == after and not heard[before].any())
