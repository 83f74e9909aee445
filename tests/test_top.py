"""TOP beside dense algebra: exact where messages are in the span of the basis, and the said map elsewhere."""

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.functional import cross_entropy

import lmc
from estimating import (
    MODELS,
    bound,
    clusters_of,
    distance,
    full_gradient,
    gcn,
    gradient,
    graph_of,
    mean_gradient,
)
from lmc.estimators.basis import orthonormal
from lmc.estimators.low_rank import LowRank, gram, inverse_root

# -- exact where messages are in the span of the basis ----------------------------------------------


def lifted(kind="undirected", copies=6, seed=0):
    """Copies of a graph of seven nodes; each edge is a perfect matching between the copies of its ends.

    Features and labels are those of the original, so that all copies of a node send the same.
    """
    rng = np.random.default_rng(seed)
    ends = np.array([[0, 1, 2, 3, 4, 5, 6, 0, 2], [1, 2, 3, 4, 5, 6, 0, 3, 6]])
    matched = [(s + 7 * np.arange(copies), t + 7 * rng.permutation(copies)) for s, t in ends.T]
    edges = np.concatenate([np.stack(pair) for pair in matched], 1)
    weight, types = np.repeat(rng.uniform(0.5, 2, 9), copies), np.repeat(np.arange(9) % 3, copies)
    if kind == "undirected":
        edges, types = np.concatenate([edges, edges[::-1]], 1), np.tile(types, 2)
    of = np.tile(np.arange(7), copies)
    x, y, train = rng.normal(size=(7, 5)), rng.integers(0, 3, 7), np.array([1, 1, 0, 1, 1, 1, 0], bool)
    options = {"edge_weight": weight} if kind == "directed weighted" else {"edge_type": types}
    graph = lmc.Graph(edges, torch.from_numpy(x[of]), y[of], train[of], num_classes=3, **options)
    return graph, torch.arange(7 * copies) // 14  # two copies of each node in a cluster


def moved(model, seed=5):
    """Parameters far from where they were."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))


def stacked(first, second):
    torch.manual_seed(0)
    return lmc.GNN([first, nn.Sequential(nn.ReLU(), second)]).double()


WRAPPED = {
    "sage": lambda: stacked(pyg.SAGEConv(5, 6), pyg.SAGEConv(6, 3)),
    "hops": lambda: lmc.GNN([nn.Sequential(nn.Linear(5, 3), pyg.APPNP(3, 0.2))]).double(),
    "jumps": lambda: lmc.from_pyg(pyg.GCN(5, 6, 3, 3, jk="cat").double()),
    "typed edges": lambda: stacked(pyg.RGCNConv(5, 6, 3), pyg.RGCNConv(6, 3, 3, num_bases=2)),
}
CASES = [(name, kind) for kind in ("undirected", "directed weighted") for name in (*MODELS, *WRAPPED)]


@pytest.mark.parametrize(
    ("name", "kind"), [case for case in CASES if case != ("typed edges", "directed weighted")]
)
def test_in_the_span_of_the_basis_every_batch_has_the_gradient(name, kind):
    graph, clusters = lifted(kind)
    torch.manual_seed(0)
    model = MODELS[name](3) if name in MODELS else WRAPPED[name]()
    estimator = bound(lmc.TOP(rank=21), model, graph)
    moved(model)
    loss, expected = full_gradient(model, graph)
    for batch in lmc.batches(graph, clusters):  # each has every node of the original equally often
        assert batch.num_halo > 0
        found_loss, found = gradient(estimator, batch)
        assert found_loss == pytest.approx(loss, rel=1e-8)
        assert max(distance(found, expected).values()) < 1e-8


def dense_losses(model, graph):
    """(nodes,) of a GCN."""
    a, z = lmc.normalize(graph).to_dense(), graph.x
    for place, layer in enumerate(model.layers):
        z = layer.linear(a @ (z if place == 0 else z.relu()))
    return cross_entropy(z, graph.y, reduction="none") * graph.train_mask


def test_in_the_span_of_the_basis_a_batch_has_the_gradient_of_its_own_losses():
    """Every cluster has each node of the original once or more, some of them more often than others."""
    graph, _ = lifted(copies=9)
    copy = torch.arange(graph.num_nodes) // 7
    random = torch.from_numpy(np.random.default_rng(0).integers(0, 3, graph.num_nodes))
    batches = list(lmc.batches(graph, torch.where(copy < 3, copy, random)))
    assert len({batch.num_nodes for batch in batches}) > 1
    model = gcn(3)
    estimator = bound(lmc.TOP(rank=21), model, graph)
    moved(model)
    losses = dense_losses(model, graph)
    for batch in batches:
        own = batch.scale * losses[batch.nodes].sum() / graph.train_mask.sum()
        wanted = torch.autograd.grad(own, list(model.parameters()), retain_graph=True)
        loss, found = gradient(estimator, batch)
        assert loss == pytest.approx(own.item(), rel=1e-8)
        assert max(distance(found, dict(zip(found, wanted, strict=True))).values()) < 1e-8
    mean = mean_gradient(estimator, batches)
    assert max(distance(mean, full_gradient(model, graph)[1]).values()) < 1e-8


# -- the map elsewhere ------------------------------------------------------------------------------


def dense_top(model, graph, batch, bases):
    """The batch's loss by A_BB + A_B,halo R, with R = argmin ||Q_halo - R Q_B|| formed."""
    a, h = lmc.normalize(graph).to_dense()[batch.nodes], graph.x[batch.nodes]
    z = a @ graph.x
    for place, layer in enumerate(model.layers, start=1):
        if place > 1:
            q, beyond = (bases[place][nodes].numpy() for nodes in (batch.nodes, batch.halo))
            r = torch.from_numpy(beyond @ np.linalg.pinv(q, rcond=1e-2))
            h = z.relu()
            z = a[:, batch.nodes] @ h + a[:, batch.halo] @ (r @ h)
        z = layer.linear(z) + (h if layer.residual else 0)
    labelled = graph.train_mask[batch.nodes]
    losses = cross_entropy(z[labelled], graph.y[batch.nodes][labelled], reduction="sum")
    return batch.scale * losses / int(graph.train_mask.sum())


@pytest.mark.parametrize("kind", ["undirected", "directed weighted"])
@pytest.mark.parametrize(
    ("basis", "rank", "nodes"),
    [
        ("random", 4, range(3, 20)),
        ("random", 30, range(3, 20)),
        ("random", 9, [3, 8, 5]),
        ("random", 2, [7]),
        ("history", 4, range(3, 20)),
    ],
)
def test_the_gradient_is_that_of_dense_autograd(kind, basis, rank, nodes):
    graph, model = graph_of(kind), gcn(3, residual=True, hidden=[5, 5])
    estimator, batch = bound(lmc.TOP(rank, basis), model, graph), graph.batch(nodes, scale=2.0)
    first = estimator.bases
    moved(model)
    estimator.backward(graph.batch(range(graph.num_nodes)))  # from now on there are histories of all nodes
    loss, found = gradient(estimator, batch)
    assert (estimator.bases is first) == (basis == "random")
    expected = dense_top(model, graph, batch, estimator.bases)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    assert loss == pytest.approx(expected.item(), rel=1e-9)
    assert max(distance(found, dict(zip(found, wanted, strict=True))).values()) < 1e-9


def test_without_the_map_the_gradient_is_another():
    graph, model = graph_of("undirected"), gcn(3)
    estimator, batch = bound(lmc.TOP(4), model, graph), graph.batch(range(12))
    _, found = gradient(estimator, batch)
    _, cut = estimator.estimate_with(batch.alone, estimator.halo_policy(batch.alone))
    weight = model.layers[0].linear.weight
    assert (found["layers.0.linear.weight"] - cut[weight]).norm() > 1e-2 * cut[weight].norm()


def test_nodes_without_neighbours_outside_have_the_exact_gradient():
    graph, model = graph_of("undirected"), gcn(3)
    batch = graph.batch([34, 35])  # isolated
    assert batch.num_halo == 0
    one, other = (gradient(bound(each, model, graph), batch) for each in (lmc.TOP(4), lmc.BackwardSGD()))
    assert one[0] == pytest.approx(other[0])
    assert max(distance(one[1], other[1]).values()) < 1e-12


@pytest.mark.parametrize("x", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_that_tell_nothing(x, dtype):
    """All messages may be zero, or all alike: the basis has no column, or one."""
    ends = graph_of("undirected").to_pyg().edge_index
    graph = lmc.Graph(ends, torch.full((36, 5), x, dtype=dtype), [0, 1, 2] * 12, [True] * 36)
    model = gcn(3, dtype=dtype)
    loss, found = gradient(bound(lmc.TOP(), model, graph), graph.batch([1, 2]))
    assert np.isfinite(loss)
    assert all(torch.isfinite(value).all() for value in found.values())


# -- bases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "models"), [(6, 1), (3, 1), (12, 2)])
def test_a_basis_spans_the_messages_of_the_model_as_it_was(rank, models):
    graph, model = graph_of("directed", nodes=60), gcn(3)
    before = [parameter.clone() for parameter in model.parameters()]
    basis = bound(lmc.TOP(rank), model, graph).bases
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))
    assert list(basis) == [2, 3]  # sums of features are known
    a, z = lmc.normalize(graph).to_dense(), graph.x
    for place in (1, 2):
        z = model.layers[place - 1].linear(a @ (z if place == 1 else z.relu())).detach()
        q, message = basis[place + 1], z.relu()
        rank_found = int(torch.linalg.matrix_rank(q, rtol=1e-3))
        of_message = int(torch.linalg.matrix_rank(message))
        assert rank_found > of_message if models > 1 else rank_found == min(rank, of_message)
        rest = (message - q @ torch.linalg.lstsq(q, message).solution).norm() / message.norm()
        if rank == 6:  # as wide as messages
            assert rest < 1e-4
        kept = q[:, q.norm(dim=0) > 1e-2]
        assert torch.allclose(kept.T @ kept / 60, torch.eye(kept.shape[1]).double(), atol=1e-6)


def test_historical_bases_are_of_the_messages_that_nodes_sent_when_last_seen():
    graph, model = graph_of("undirected"), gcn(3, norm="batch", dropout=0.5, linear_in=True)
    estimator = bound(lmc.TOP(6, "history"), model, graph)
    first, (*batches, last) = estimator.bases, lmc.batches(graph, clusters_of(graph))
    for batch in batches:
        estimator.backward(batch)
    moved(model)
    with estimator.frozen():
        estimator.backward(last)
    assert estimator.bases is first
    estimator.backward(last)
    model.eval()
    messages = {1: model.encoder.parts[1](graph.x, None).relu()}
    for place in (2, 3):
        norm, history = model.layers[place - 1].message.norm, estimator.embeddings[place - 1]
        messages[place] = norm(history.snapshot()).relu()
    for place, message in messages.items():
        q, message = estimator.bases[place], message.detach()
        assert float((message - q @ torch.linalg.lstsq(q, message).solution).norm() / message.norm()) < 1e-4


# -- state, background, threads ---------------------------------------------------------------------


def run(estimator, model, batches):
    """Losses and parameters after some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        losses.append(estimator.backward(batch))
        optimizer.step()
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


def epochs_of(graph, epochs):
    return [b for epoch in epochs for b in lmc.batches(graph, clusters_of(graph), 1, epoch=epoch)]


@pytest.mark.parametrize("precision", ["full", "half"])
@pytest.mark.parametrize("basis", ["random", "history"])
def test_a_run_goes_on_as_if_it_had_not_been_stopped(basis, precision):
    graph, model = graph_of("directed"), gcn(3, dropout=0.3, linear_in=True)
    estimator = bound(lmc.TOP(5, basis, precision), model, graph)
    run(estimator, model, epochs_of(graph, [0, 1])[:-1])
    state = {name: value.clone() for name, value in estimator.state_dict().items()}
    later = gcn(3, dropout=0.3, linear_in=True)
    later.load_state_dict(model.state_dict())
    other = bound(lmc.TOP(5, basis, precision), later, graph)
    other.load_state_dict(state)
    rest = epochs_of(graph, [1, 2, 3])[3:]
    wanted, found = run(estimator, model, rest), run(other, later, rest)
    assert found[0] == wanted[0]
    assert all(torch.equal(*pair) for pair in zip(found[1], wanted[1], strict=True))


@pytest.mark.parametrize("basis", ["random", "history"])
def test_batches_that_were_prepared_too_early_are_prepared_again(basis):
    graph, found = graph_of("directed"), []
    for prepared in (False, True):
        model = gcn(3)
        estimator, batches = bound(lmc.TOP(4, basis), model, graph), epochs_of(graph, range(3))
        if prepared:
            for batch in batches:
                estimator.prepare(batch)
        found.append(run(estimator, model, batches))
    assert found[0][0] == found[1][0]


def test_maps_and_bases_do_not_depend_on_the_number_of_threads():
    """At a rank at which LAPACK's eigenvalues, and its Cholesky factors, do."""
    random, threads, found = torch.Generator().manual_seed(0), torch.get_num_threads(), []
    columns, message = torch.randn(4000, 256, generator=random), torch.randn(3000, 32, generator=random)
    block = lmc.CSR(torch.arange(3001), torch.randint(3000, 4000, (3000,), generator=random), None, 4000)
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            basis = orthonormal(columns.clone())
            one = LowRank.fitted(block, basis, torch.arange(3000), torch.arange(3000, 4000))
            sums = one.add_to(torch.zeros(3000, 32), message)
            found.append((basis, one.left, one.root, sums, one.add_transposed_to(message.clone(), message)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_the_root_of_an_inverse():
    matrix = torch.randn(40, 7, generator=torch.Generator().manual_seed(0)).double()
    matrix[:, 3] = matrix[:, 1] - matrix[:, 2]
    matrix[:, 5] = 0
    root = inverse_root(gram(matrix), 1e-10)
    projection = matrix @ root @ (matrix @ root).T
    assert np.allclose(projection, matrix.numpy() @ np.linalg.pinv(matrix.numpy()), atol=1e-12)


def test_a_layer_that_does_more_than_add_up_is_one_line():
    model = lmc.GNN([pyg.GATConv(5, 3)]).double()
    with pytest.raises(lmc.ArgumentError, match=r"model: TOP needs sums of messages, and layers.0 does more"):
        lmc.TOP().bind(model, graph_of("undirected"))
