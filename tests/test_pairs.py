"""Convolutions to which PyG gives no bipartite form: the same function, the same gradients."""

import copy
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric import nn as pyg

import lmc
from estimating import bound, clusters_of, distance, graph_of, mostly_long
from pairs import (
    EVERY,
    EXACT,
    EXACT_BY_OPTION,
    OPTIONS,
    WIDTH,
    by_pyg,
    gradient,
    gradient_by_pyg,
    make,
    parts_of,
    settled,
    wrapped,
)
from pyg_models import graph_with

# -- the same function ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "graph_kind"),
    [
        *product(EVERY, ["directed weighted"]),
        *mostly_long([*product(EVERY, ["undirected"]), *product(OPTIONS, ["directed weighted"])], every=4),
    ],
)
def test_predictions_and_gradients_are_those_of_pyg(kind, graph_kind):
    """Both graphs have self-loops at some nodes, and isolated nodes at the end."""
    graph, (model, parts) = graph_with(graph_kind), make(kind)
    expected = by_pyg(parts, graph).detach()
    for rows in (7, 1 << 15):
        found = lmc.predict(graph, model, rows_at_once=rows)
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)
    some = [35, 3, 9]
    assert torch.allclose(lmc.predict(graph, model, nodes=some), expected[some], rtol=1e-9, atol=1e-12)
    full = gradient_by_pyg(model, parts, graph)
    for estimator in (lmc.FullBatch(), lmc.LMC(0.4)):
        found = gradient(model, bound(estimator, model, graph), graph.batch(range(graph.num_nodes)))
        assert max(distance(found, full).values()) < 1e-9


def test_graphs_have_what_the_tests_say():
    for kind in ("undirected", "directed weighted"):
        graph = graph_of(kind)
        source, target = graph.to_pyg().edge_index
        assert (source == target).any()
        assert int(max(source.max(), target.max())) < graph.num_nodes - 2


def test_pdn_without_features_of_edges_is_pygs():
    graph = graph_of("directed")
    model, (encoder, (first, second), head) = make("PDNConv")
    data = graph.to_pyg()
    expected = head(second(first(encoder(data.x), data.edge_index).tanh(), data.edge_index).tanh())
    assert torch.allclose(lmc.predict(graph, model, rows_at_once=5), expected, rtol=1e-9)
    with pytest.raises(lmc.ArgumentError, match="normalize=False: needs features of edges, edge_attr"):
        lmc.predict(graph, make("PDNConv, as it is")[0])


def test_of_repeated_self_loops_pdn_normalises_the_last():
    """As PyG. Its autograd gives a share to the others too, so gradients are compared with differences."""
    torch.manual_seed(0)
    ends = torch.tensor([[0, 1, 1, 1, 2, 3, 3, 0, 2], [1, 1, 0, 1, 1, 3, 3, 2, 0]])
    edge_attr, x, y = torch.randn(9, 4).double(), torch.randn(4, 5).double(), [0, 1, 2, 0]
    graph = lmc.Graph(ends, x, y, [True] * 4, edge_attr=edge_attr)
    conv = pyg.PDNConv(5, 3, 4, 6).double()
    data, model = graph.to_pyg(), lmc.GNN([conv])

    def loss():
        return cross_entropy(conv(data.x, data.edge_index, data.edge_attr), graph.y)

    for rows in (1, 4):
        found = lmc.predict(graph, model, rows_at_once=rows)
        assert torch.allclose(found, conv(data.x, data.edge_index, data.edge_attr), rtol=1e-9)
    bound(lmc.FullBatch(), model, graph).backward(graph.batch(range(4)))
    weight = conv.mlp[2].weight
    with torch.no_grad():
        for column, found in enumerate(weight.grad[0].clone()):
            weight[0, column] += 1e-5
            above = loss()
            weight[0, column] -= 2e-5
            assert abs((above - loss()) / 2e-5 - found) < 1e-8
            weight[0, column] += 1e-5


def test_every_node_has_its_loop_in_egconv():
    """PyG leaves those out that are behind the last edge, so the isolated nodes are put first here."""
    data = graph_of("directed").to_pyg()
    data.edge_index = data.edge_index + 2
    graph = lmc.Graph.from_pyg(lmc.Graph(data.edge_index, data.x, data.y, data.train_mask).to_pyg())
    conv = pyg.EGConv(5, 6, ["max", "mean"], num_heads=2).double()
    found = lmc.predict(graph, lmc.GNN([conv]), rows_at_once=9)
    assert torch.allclose(found, conv(data.x, graph.to_pyg().edge_index), rtol=1e-9)


# -- estimates --------------------------------------------------------------------------------------


def batches_of(graph):
    return list(lmc.batches(graph, clusters_of(graph)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_long(EXACT | EXACT_BY_OPTION, every=2))
def test_settled_lmc_averages_to_the_gradient(kind):
    """By PyG's own gradient: weights, degrees and attention of a message are exact in every batch."""
    graph, (model, parts) = graph_with("directed weighted"), make(kind)
    expected = gradient_by_pyg(model, parts, graph)
    batches = batches_of(graph)
    found = settled(model, lmc.LMC(alpha=0), graph, batches)
    assert max(distance(found, expected).values()) < 1e-8
    biased = gradient(model, bound(lmc.GAS(), model, graph), batches[0])
    assert max(distance(biased, expected).values()) > 1e-3


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_long(EVERY, every=6))
def test_error_of_the_mean_gradient(kind):
    """The table of docs/models.md; `pytest -rP -k error_of_the_mean` prints it."""
    graph, errors = graph_with("undirected"), {}
    batches = batches_of(graph)
    for name, estimator in {"LMC": lmc.LMC(alpha=0), "LMC 0.4": lmc.LMC(), "GAS": lmc.GAS()}.items():
        model, parts = make(kind, depth=3)
        full = gradient_by_pyg(model, parts, graph)
        mean = settled(model, estimator, graph, batches)
        flat = [torch.cat([g[n].flatten() for n in full]) for g in (mean, full)]
        errors[name] = float((flat[0] - flat[1]).norm() / flat[1].norm())
    print(kind, {name: f"{error:.1e}" for name, error in errors.items()})
    assert errors["LMC"] < (1e-8 if kind in EXACT else errors["GAS"])


@pytest.mark.parametrize("kind", EVERY)
def test_a_halo_that_has_all_its_neighbours_in_reach_is_exact(kind):
    """Of all nodes but one, that one included: its values and derivatives are computed, not remembered."""
    graph, (model, _) = graph_with("directed weighted"), make(kind)
    batch = graph.batch([node for node in range(36) if node != 7])
    assert batch.halo.tolist() == [7]
    fresh, exact = lmc.LMC(alpha=1, score="1"), lmc.BackwardSGD()
    found, expected = (gradient(model, bound(estimator, model, graph), batch) for estimator in (fresh, exact))
    assert max(distance(found, expected).values()) < 1e-9


def test_both_directions_are_cut_to_what_the_batch_sends():
    graph, (model, _) = graph_with("directed weighted"), make("DirGNNConv of GCNConv")
    batch = graph.batch(range(9))
    every = model.layers[0].halo_edges(batch)
    some = every.sent_from(batch.num_halo)
    for one, other in ((every.along, some.along), (every.against, some.against)):
        expected = one.ends[:, one.ends[0] >= batch.num_halo]
        assert torch.equal(other.ends, expected)
        assert 0 < expected.shape[1] < one.ends.shape[1]


@pytest.mark.parametrize(
    ("kind", "estimator"), mostly_long([*product(EVERY, [lmc.LMC, lmc.GraphFM])], every=5)
)
def test_batches_without_a_message_have_finite_gradients(kind, estimator):
    """Two isolated nodes, one of them, and one node with all its neighbours outside."""
    graph, (model, _) = graph_with("undirected"), make(kind)
    bound_to = bound(estimator(), model, graph)
    for nodes in ([34, 35], [35], [0]):
        assert all(g.isfinite().all() for g in gradient(model, bound_to, graph.batch(nodes)).values())


@pytest.mark.parametrize("kind", EVERY)
def test_cluster_gcn_knows_nothing_outside_of_the_batch(kind):
    """Its gradient is that of PyG on the subgraph, degrees included."""
    graph, (model, parts) = graph_with("directed weighted"), make(kind)
    nodes = [n for n in range(36) if n % 3]
    part = lmc.Graph.from_pyg(graph.to_pyg().subgraph(torch.tensor(nodes)), num_classes=3)
    share = int(part.train_mask.sum()) / int(graph.train_mask.sum())
    expected = {name: share * g for name, g in gradient_by_pyg(model, parts, part).items()}
    found = gradient(model, bound(lmc.ClusterGCN(), model, graph), graph.batch(nodes))
    assert max(distance(found, expected).values()) < 1e-9


# -- training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", mostly_long(EVERY, every=4))
def test_training_trains_the_modules_that_were_given(kind):
    graph = graph_with("undirected")
    options = {"parts": 4, "parts_per_batch": 2, "epochs": 2, "partition": "random"}
    results = []
    for background in (True, False):
        parts = parts_of(kind)
        model = wrapped(*parts, dropout=0.3).double()
        before = [p.clone() for p in parts[1][0].parameters()]
        lmc.fit(graph, model, lmc.LMC(), background=background, **options)
        after = list(parts[1][0].parameters())
        assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
        results.append([p.detach() for p in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("kind", ["AGNNConv", "FAConv", "PDNConv", "SuperGATConv"])
def test_a_model_can_be_copied_after_a_step(kind):
    """No convolution holds on to what it has computed, with the graph behind it."""
    graph, (model, _) = graph_with("undirected"), make(kind)
    bound(lmc.LMC(), model, graph).backward(graph.batch(range(9)))
    copied = copy.deepcopy(model)
    assert torch.equal(lmc.predict(graph, copied), lmc.predict(graph, model))


RATES = {"FAConv": 2e-2, "GCNConv, mean": 2e-2}
# With 140 labels, small batches of any estimator lose ten points by a maximum and a deviation together.
ON_CORA = [kind for kind in EVERY if kind != "EGConv, max and std"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.long) for kind in ON_CORA])
def test_cora_by_small_batches_is_as_accurate_as_by_full_ones(kind, real):
    cora = real("cora")
    torch.manual_seed(0)
    x = cora.x @ torch.pca_lowrank(cora.x, q=32, center=False)[2]
    masks = (cora.train_mask, cora.val_mask, cora.test_mask)
    ends = cora.to_pyg().edge_index
    degree = torch.bincount(ends[1], minlength=cora.num_nodes).float()
    attr = torch.stack([degree[ends[0]].log(), degree[ends[1]].log()], 1) if kind == "PDNConv" else None
    graph = lmc.Graph(ends, x / x.std(), cora.y, *masks, edge_attr=attr)

    def accuracy(estimator, epochs, **options):
        right = []
        for seed in (0, 1):
            encoder, convs, head = parts_of(kind, seed=seed, features=32, width=32, classes=7)
            model = wrapped(encoder, convs, head, dropout=0.5)
            settings = {"lr": RATES.get(kind, 5e-3), "weight_decay": 5e-4}
            lmc.fit(graph, model, estimator, seed=seed, epochs=epochs, **settings, **options)
            right.append((lmc.predict(graph, model).argmax(1) == graph.y)[graph.test_mask])
        return float(torch.cat(right).double().mean())

    full = accuracy(lmc.FullBatch(), 60)
    # Random groups: with 140 labels in 20 clusters, those that are alike by labels keep neighbours apart,
    # which costs two points whatever the method is.
    small = accuracy(lmc.LMC(), 30, parts=20, parts_per_batch=5, balance=None)
    print(f"{kind}: full batch {full:.3f}, LMC {small:.3f}")
    assert small > max(full - 0.02, 0.55)


# -- what stays refused -----------------------------------------------------------------------------


class Interested(nn.Module):
    """Asks for what no layer can give."""

    def forward(self, x, edge_index, weather):
        return x


def with_a_curved_map(conv):
    conv.lin_out = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    return conv


def with_a_hook(module):
    module.register_forward_hook(lambda module, given, out: 2 * out)
    return module


REFUSED = {
    "positions": (
        lambda: pyg.PointTransformerConv(WIDTH, WIDTH),
        "layers[0] (PointTransformerConv): needs pos; a convolution is given its messages, edge_index,",
    ),
    "two that are needed": (
        lambda: pyg.PPFConv(nn.Linear(WIDTH + 4, WIDTH)),
        "layers[0] (PPFConv): needs pos and normal;",
    ),
    "of one's own": (Interested, "layers[0] (Interested): needs weather;"),
    "a hypergraph": (
        lambda: pyg.HypergraphConv(WIDTH, WIDTH),
        "layers[0] (HypergraphConv): takes edges of any number of nodes, hyperedge_index",
    ),
    "signed edges": (
        lambda: pyg.SignedConv(WIDTH, 3, first_aggr=True),
        "layers[0] (SignedConv): takes two lists of edges",
    ),
    "types of nodes": (
        lambda: pyg.HGTConv(WIDTH, WIDTH, (["a"], [("a", "to", "a")])),
        "layers[0] (HGTConv): takes a matrix for each type of nodes",
    ),
    "all nodes": (
        lambda: pyg.GPSConv(WIDTH, pyg.SAGEConv(WIDTH, WIDTH)),
        "layers[0] (GPSConv): attends from every node to every other",
    ),
    "paths": (lambda: pyg.PANConv(WIDTH, WIDTH, 2), "layers[0] (PANConv): weighs paths of several hops"),
    "all layers": (lambda: pyg.DNAConv(WIDTH), "layers[0] (DNAConv): reads the outputs of all layers"),
    "colours": (lambda: pyg.WLConv(), "layers[0] (WLConv): gives colours"),
    "a mesh": (lambda: pyg.MeshCNNConv(WIDTH, WIDTH), "layers[0] (MeshCNNConv): takes the edges of a mesh"),
    "iterations": (
        lambda: pyg.AntiSymmetricConv(WIDTH, num_iters=2),
        "layers[0] (AntiSymmetricConv): num_iters=2: its messages travel several hops",
    ),
    "a maximum before a matrix that mixes it": (
        lambda: pyg.GCN2Conv(WIDTH, 0.1, aggr="max"),
        "layers[0] (GCN2Conv): aggr='max'; must be one of add, sum, mean",
    ),
    "x_0 in both directions": (
        lambda: pyg.DirGNNConv(pyg.FAConv(WIDTH), root_weight=False),
        "layers[0] (DirGNNConv): FAConv: reads x_0, which DirGNNConv does not give to it",
    ),
    "positions in both directions": (
        lambda: pyg.DirGNNConv(pyg.PointTransformerConv(WIDTH, WIDTH)),
        "layers[0] (DirGNNConv): PointTransformerConv: needs pos;",
    ),
    "types of edges in both directions": (
        lambda: pyg.DirGNNConv(pyg.RGATConv(WIDTH, WIDTH, 3)),
        "layers[0] (DirGNNConv): RGATConv: needs edge_type, which DirGNNConv does not give to it",
    ),
    "a curved map of the sum": (
        lambda: with_a_curved_map(pyg.ClusterGCNConv(WIDTH, WIDTH)),
        "layers[0] (ClusterGCNConv): its lin_out is a Sequential; must be a Linear",
    ),
    "a hook on both directions": (
        lambda: with_a_hook(pyg.DirGNNConv(pyg.SAGEConv(WIDTH, WIDTH))),
        "DirGNNConv: has hooks or methods of its own, which would not run",
    ),
    "another direction within": (
        lambda: pyg.DirGNNConv(pyg.SAGEConv(WIDTH, WIDTH, flow="target_to_source")),
        "layers[0] (DirGNNConv): SAGEConv: flow='target_to_source'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_stays_refused_is_told_why(case):
    made, message = REFUSED[case]
    with pytest.raises(lmc.ArgumentError) as error:
        lmc.GNN([made()], nn.Linear(5, WIDTH))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", ["", "conv_in"])
def test_a_hook_on_both_directions_that_comes_later_is_refused(where):
    conv = pyg.DirGNNConv(pyg.SAGEConv(5, 3)).double()
    graph, model = graph_of("directed"), lmc.GNN([conv])
    lmc.predict(graph, model)
    with_a_hook(conv.get_submodule(where))
    with pytest.raises(
        lmc.ArgumentError, match=r"has hooks or methods|was (changed|replaced) after it was wrapped"
    ):
        lmc.predict(graph, model)
