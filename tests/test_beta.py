"""The β that LMC finds: what it is learned from, and that the mix is exact where histories are."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import lmc
import pyg_models
from estimating import (
    bound,
    clusters_of,
    distance,
    full_gradient,
    gcn,
    gcnii,
    graph_of,
    mean_gradient,
    perturbed,
)
from hop_models import make_hops
from lmc.data.normalization import normalize
from lmc.estimators.beta import BINS, MEMORY, FoundBeta
from lmc.estimators.mixed_halo import MixedSums

MANY = 1000.0


def found_of(estimator):
    return {"forward": estimator.forward_beta, "backward": estimator.backward_beta}


def told_zero(estimator):
    """As after many rows whose histories were right."""
    for betas in found_of(estimator).values():
        for beta in betas.values():
            beta.sums[:, 1] = MANY
    return estimator


def stack(conv, depth=3, **options):
    torch.manual_seed(0)
    widths = [5, *[6] * (depth - 1), 3]
    convs = [conv(*widths[place : place + 2]) for place in range(depth)]
    layers = [convs[0], *(nn.Sequential(nn.Tanh(), conv) for conv in convs[1:])]
    return perturbed(lmc.GNN(layers, **options).double())


# -- what it is learned from ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["undirected", "directed weighted"])
def test_it_is_learned_from_a_sample_of_batch_rows(kind):
    """Against dense algebra: a step after the parameters have moved away from exact histories."""
    graph, model = graph_of(kind, nodes=120), gcn(3)
    a, y, labelled = normalize(graph, "gcn").to_dense(), graph.y, graph.train_mask
    linked = (graph.neighbours.to_dense() > 0).double()
    linked.fill_diagonal_(0)

    def maps():
        return [
            (layer.linear.weight.detach().clone(), layer.linear.bias.detach().clone())
            for layer in model.layers
        ]

    def derivative(logits, rows):
        one_hot = torch.nn.functional.one_hot(y[rows], 3).double()
        return (logits.softmax(1) - one_hot) * labelled[rows, None]

    old = maps()
    sums = [a @ graph.x]
    for weight, bias in old:
        z = sums[-1] @ weight.T + bias
        sums.append(a @ z.relu())
    came_back = a.T @ derivative(z, torch.arange(120))

    estimator = told_zero(bound(lmc.LMC(), model, graph, init="exact"))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    batch = graph.batch(torch.randperm(120)[:70])
    estimator.backward(batch)

    (_, (w2, b2), (w3, b3)), (w1, b1) = maps(), maps()[0]
    nodes, halo = batch.nodes, batch.halo
    inside, in_reach = (torch.zeros(120, 1, dtype=torch.float64) for _ in range(2))
    inside[nodes] = in_reach[batch.members] = 1
    complete = halo[(linked @ in_reach)[halo, 0] == linked[halo].sum(1)]
    now = torch.cat([nodes, complete])  # the others of the halo take their histories
    z1 = sums[0] @ w1.T + b1  # known everywhere
    received = {2: a @ z1.relu()}
    z2 = torch.zeros(120, 6, dtype=torch.float64)
    z2[halo] = sums[1][halo] @ w2.T + b2
    z2[now] = received[2][now] @ w2.T + b2
    received[3] = a @ z2.relu()
    z3 = torch.zeros(120, 3, dtype=torch.float64)
    z3[halo] = sums[2][halo] @ w3.T + b3
    z3[now] = received[3][now] @ w3.T + b3
    v3 = torch.zeros_like(z3)
    v3[nodes], v3[halo] = derivative(z3[nodes], nodes), derivative(z3[halo], halo)
    cases = [
        ("forward", 2, received[2], sums[1], a @ (inside * z1.relu())),
        ("forward", 3, received[3], sums[2], a @ (inside * z2.relu())),
        ("backward", 2, a.T @ v3, came_back, a.T @ (inside * v3)),
    ]
    asked = [
        (node, share)
        for node in nodes  # of a large batch, a part
        if (share := float(linked[node] @ inside[:, 0]) / max(1.0, float(linked[node].sum()))) < 1
        and linked[node].sum() > 0
    ]
    assert len(asked) > 2
    for direction, layer, truth, before, incomplete in cases:
        expected = np.zeros((BINS, 2))
        expected[:, 1] = MEMORY * MANY
        for node, share in asked:
            ahead = incomplete[node] - before[node]
            expected[int(share * BINS)] += [float((truth[node] - before[node]) @ ahead), float(ahead @ ahead)]
        assert np.allclose(
            found_of(estimator)[direction][layer].sums.numpy(), expected, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize(
    "conv",
    [
        lambda i, o: pyg.DirGNNConv(pyg.SAGEConv(i, o, aggr="sum")),
        lambda i, o: pyg.SAGEConv(i, o, aggr="max"),
        lambda i, o: pyg.GATConv(i, o, heads=2, concat=False),
    ],
)
def test_what_a_convolution_receives_from_the_batch_is_that_of_pyg(conv, monkeypatch):
    graph, model = graph_of("directed", nodes=120), stack(conv, depth=2)
    seen = []
    monkeypatch.setattr(FoundBeta, "learn", lambda self, *given: seen.append(given))
    batch = graph.batch(torch.randperm(120, generator=torch.Generator().manual_seed(0))[:70])
    bound(lmc.LMC(), model, graph).backward(batch)
    local = torch.full((120,), -1)
    local[batch.nodes] = torch.arange(70)
    ends = local[graph.to_pyg().edge_index]
    alone = model.layers[0].conv(graph.x[batch.nodes], ends[:, (ends >= 0).all(0)])
    rows, share = batch.telling
    assert len(rows) > 2
    assert torch.equal(seen[0][0], share)
    assert torch.allclose(seen[0][3], alone[rows])
    assert not torch.allclose(seen[0][1], seen[0][3])


def test_rounding_tells_nothing():
    """Where nothing comes from outside and nothing has moved, the ratio would be that of two roundings."""
    beta, old = FoundBeta(torch.zeros_like), torch.rand(1, 8, dtype=torch.float64) + 1
    same = old * (1 + 2 * torch.finfo(torch.float64).eps)
    beta.learn(torch.tensor([0.5]), same, old, same)
    assert beta.by_tenths.tolist() == BINS * [0]
    beta.learn(torch.tensor([0.5]), old + 1e-6, old, old + 1e-6)
    assert beta.by_tenths[5] == pytest.approx(1)


def test_a_batch_of_which_no_row_tells_leaves_it_as_it_is():
    """Of more than a thousand rows some are asked, and only one that is not has a neighbour outside."""
    path = torch.tensor([[1, 2], [2, 1]])
    graph = lmc.Graph(
        path, torch.eye(1100)[:, :3], torch.arange(1100) % 2, torch.ones(1100, dtype=torch.bool)
    )
    estimator = told_zero(bound(lmc.LMC(), lmc.GCN(3, 4, 2, layers=3), graph))
    before = {name: value.clone() for name, value in estimator.state_dict().items() if "beta" in name}
    estimator.backward(graph.batch([node for node in range(1100) if node != 2]))
    after = estimator.state_dict()
    assert before
    assert all(torch.equal(after[name], value) for name, value in before.items())


# -- the mix ----------------------------------------------------------------------------------------


def jumping(mode):
    return lambda: lmc.from_pyg(pyg_models.make("SAGE mean", num_layers=3, jk=mode))


def frozen_encoder():
    model = gcn(3, linear_in=True, residual=True)
    model.encoder.requires_grad_(False)
    return model


MODELS = {
    "GCN of one layer": lambda: gcn(1),
    "GCN of two": lambda: gcn(2),
    "GCN": lambda: gcn(3),
    "GCN with an encoder": lambda: gcn(3, linear_in=True, residual=True),
    "GCN with a frozen encoder": frozen_encoder,
    "GCNII": lambda: gcnii(4),
    "GraphSAGE": lambda: lmc.from_pyg(pyg_models.make("SAGE mean", num_layers=3)),
    "GIN": lambda: lmc.from_pyg(pyg_models.make("GIN", num_layers=3)),
    "jumps to all": jumping("cat"),
    "TAGConv of features": lambda: make_hops("TAGConv", linear_in=False).wrapped(),
    "ChebConv": lambda: make_hops("ChebConv").wrapped(),
    "ARMAConv of features": lambda: make_hops("ARMAConv", linear_in=False).wrapped(),
    "DirGNNConv": lambda: stack(lambda i, o: pyg.DirGNNConv(pyg.GCNConv(i, o))),
    "GraphConv, an encoder": lambda: stack(pyg.GraphConv, encoder=nn.Linear(5, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_at_exact_histories_the_mean_is_the_gradient_and_stays_it(name):
    graph, model = graph_of("directed weighted"), MODELS[name]()
    _, full = full_gradient(model, graph)
    estimator = told_zero(bound(lmc.LMC(), model, graph, init="exact"))
    batches = list(lmc.batches(graph, clusters_of(graph)))
    for _ in range(3):  # rows are written and asked meanwhile
        assert max(distance(mean_gradient(estimator, batches), full).values()) < 1e-9


@pytest.mark.parametrize("depth", [1, 2])
def test_the_memory_of_the_halo_is_kept_only_where_derivatives_come_back(depth):
    graph = graph_of("undirected")
    batch = graph.batch(range(12))
    assert not MixedSums(bound(lmc.LMC(), gcn(depth), graph), batch).revisits
    assert MixedSums(bound(lmc.LMC(), gcn(3), graph), batch).revisits
    assert not MixedSums(bound(lmc.LMC(compensate_backward=False), gcn(3), graph), batch).revisits


# -- features that are dropped in training, and only there ------------------------------------------


def test_what_is_remembered_does_not_depend_on_the_mode_it_is_bound_in():
    graph, model = graph_of("undirected"), gcn(3, input_dropout=0.5)
    kept = [list(bound(lmc.LMC(), model.train(mode), graph).embeddings) for mode in (True, False)]
    assert kept == [[1, 2, 3], [1, 2, 3]]


def test_without_dropout_the_first_layer_is_exact_again():
    graph, model = graph_of("undirected"), gcn(3, input_dropout=0.5)
    estimator = told_zero(bound(lmc.LMC(), model, graph, init="exact"))
    batches = list(lmc.batches(graph, clusters_of(graph)))
    estimator.embeddings[1].values += 1  # which nothing reads then
    assert lmc.gradient_error(graph, model, estimator, batches).bias["total"] < 1e-12
    model.eval()
    _, full = full_gradient(model, graph)
    for _ in range(2):
        assert max(distance(mean_gradient(estimator, batches), full).values()) < 1e-9
