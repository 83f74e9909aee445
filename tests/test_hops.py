"""Convolutions of several hops: PyG's own function and gradients, exact by mini-batches."""

from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.parametrizations import weight_norm
from torch_geometric import nn as pyg
from torch_geometric.nn import JumpingKnowledge

import lmc
from estimating import EVERY, bound, clusters_of, distance, full_gradient, graph_of, mostly_long, settled
from hop_models import EVERY_HOP, HOPS, OPTIONS, make_hops
from lmc.nn.activation import Activation


def pyg_gradient(reference, wrapped, graph):
    """By autograd through PyG's calls, under the names of the wrapped model."""
    wrapped.zero_grad()
    out, labelled = reference(graph.to_pyg()), graph.train_mask
    cross_entropy(out[labelled], graph.y[labelled]).backward()
    zero = torch.zeros_like
    found = {n: zero(p) if p.grad is None else p.grad.clone() for n, p in wrapped.named_parameters()}
    wrapped.zero_grad()
    return found


def estimate(estimator, batch):
    """By name, and zero for parameters that nothing reaches."""
    _, found = estimator.estimate(batch)
    return {n: found.get(p, torch.zeros_like(p)) for n, p in estimator.model.named_parameters()}


def mean_over(estimator, graph):
    """The mean estimate over a partition."""
    estimates = [estimate(estimator, batch) for batch in lmc.batches(graph, clusters_of(graph))]
    return {name: sum(e[name] for e in estimates) / len(estimates) for name in estimates[0]}


def far(one, other):
    """The largest relative distance of a parameter's gradient."""
    return max(distance(one, other).values())


# -- the same function ------------------------------------------------------------------------------

OTHER_GRAPHS = [
    pytest.param(*case, marks=pytest.mark.long) for case in product(HOPS, ["directed", "weighted"])
]
CASES = [*product(HOPS, ["undirected"]), *product(EVERY_HOP, ["directed weighted"]), *OTHER_GRAPHS]


@pytest.mark.parametrize(("kind", "graph_kind"), CASES)
def test_predictions_and_gradients_are_those_of_pyg(kind, graph_kind):
    """Self-loops and isolated nodes included; on features, whose sums are known, and after an encoder."""
    graph = graph_of(graph_kind)
    assert (graph.adjacency.row_ids() == graph.adjacency.indices).any()
    reference = make_hops(kind, linear_in=graph_kind in ("undirected", "directed"))
    wrapped = reference.wrapped()
    with torch.no_grad():
        expected = reference(graph.to_pyg())
    assert torch.allclose(wrapped(graph), expected, rtol=1e-9, atol=1e-12)
    for rows in (17, 1 << 15):
        found = lmc.predict(graph, wrapped, rows_at_once=rows)
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)
    full = pyg_gradient(reference, wrapped, graph)
    assert far(estimate(bound(lmc.FullBatch(), wrapped, graph), graph.batch(range(36))), full) < 1e-9


def test_predictions_of_a_few_nodes_and_of_wide_layers():
    """Cut off from a part of the graph, a Laplacian would be another; and sums of 40 columns go by blocks."""
    ring, generator = torch.arange(60), torch.Generator().manual_seed(0)
    x, weight = torch.randn(60, 5, generator=generator).double(), torch.rand(60, generator=generator) + 0.5
    graph = lmc.Graph(torch.stack([ring, ring.roll(-1)]), x, edge_weight=weight)
    for kind in ("ChebConv", "ChebConv as it is", "APPNP", "SGConv"):
        model = make_hops(kind, hidden=40).wrapped()
        whole = lmc.predict(graph, model)
        assert torch.allclose(whole, model(graph), rtol=1e-9, atol=1e-12), kind
        assert torch.allclose(lmc.predict(graph, model, nodes=[33, 31]), whole[[33, 31]], rtol=1e-9), kind


def test_what_is_kept_of_features_is_taken_and_nothing_else():
    graph = graph_of("directed weighted")
    data = graph.to_pyg()
    for conv in (pyg.SGConv(5, 3, K=2, cached=True), pyg.SSGConv(5, 3, alpha=0.1, K=2, cached=True)):
        model = lmc.GNN([conv.double()])
        expected = conv(data.x, data.edge_index, data.edge_weight.to(data.x))
        assert torch.allclose(lmc.predict(graph, model), expected, rtol=1e-9)
        with pytest.raises(
            lmc.ArgumentError, match=r"layers\[1\] \(.*\): cached=True keeps what it is first given"
        ):
            lmc.GNN([pyg.SAGEConv(5, 5), conv])


@pytest.mark.parametrize("kind", HOPS)
def test_hops_read_what_they_say_and_nothing_else(kind, monkeypatch):
    """By derivatives: what nothing reads again is not kept, and goes by blocks of columns."""
    model, found = make_hops(kind).wrapped(), []

    def watched(update_at, rows, *given):
        given = [each.detach().requires_grad_() for each in given]
        z = update_at(rows, *given)
        reached = torch.autograd.grad(z.sum(), given, allow_unused=True)
        found.append([derivative is not None for derivative in reached])
        return z

    for layer in model.layers:
        monkeypatch.setattr(layer, "update_at", partial(watched, layer.update_at))
    model(graph_of("undirected"))
    assert found == [[True, layer.reads_own, bool(layer.reads)] for layer in model.layers]


# -- estimates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*HOPS, *mostly_long(OPTIONS, every=4)])
def test_at_exact_histories_the_mean_is_the_gradient(kind):
    graph, reference = graph_of("directed weighted"), make_hops(kind)
    wrapped = reference.wrapped()
    full = pyg_gradient(reference, wrapped, graph)
    assert far(mean_over(bound(lmc.LMC(alpha=0), wrapped, graph, init="exact"), graph), full) < 1e-8
    assert far(mean_over(bound(lmc.BackwardSGD(), wrapped, graph), graph), full) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["LGConv", *(pytest.param(k, marks=pytest.mark.long) for k in HOPS if k != "LGConv")]
)
def test_error_of_the_mean_gradient(kind):
    """Rows of the table of docs/models.md; `pytest -rP -k error_of_the_mean` prints them."""
    graph, wrapped = graph_of("undirected"), make_hops(kind).wrapped()
    full = estimate(bound(lmc.FullBatch(), wrapped, graph), graph.batch(range(36)))
    errors = {}
    for name, estimator in {"LMC": lmc.LMC(alpha=0), "LMC 0.4": lmc.LMC(), "GAS": lmc.GAS()}.items():
        bound(estimator, wrapped, graph)
        for _ in range(2 * len(wrapped.layers)):
            mean = mean_over(estimator, graph)
        flat = [torch.cat([g[n].flatten() for n in full]) for g in (mean, full)]
        errors[name] = float((flat[0] - flat[1]).norm() / flat[1].norm())
    print(kind, {name: f"{error:.1e}" for name, error in errors.items()})
    assert errors["LMC"] < 1e-8 < 1e-4 < errors["GAS"]


def reached(graph, hub=0):
    """The graph with a node that all others send to and receive from: its batch has everything in reach."""
    data, others = graph.to_pyg(), torch.arange(1, graph.num_nodes)
    ends = torch.stack([torch.full_like(others, hub), others])
    data.edge_index = torch.cat([data.edge_index, ends, ends.flip(0)], 1)
    data.edge_weight = torch.cat([data.edge_weight, torch.ones(2 * len(others))])
    return lmc.Graph.from_pyg(data, num_classes=3)


@pytest.mark.parametrize(
    ("kind", "on_features"), [*product(HOPS, [False]), ("APPNP", True), ("ChebConv", True)]
)
def test_where_all_is_in_reach_up_to_date_values_are_exact(kind, on_features):
    """At beta = 1 nothing historical is read: halo rows compute all values and derivatives themselves."""
    graph = reached(graph_of("directed weighted"))
    wrapped = make_hops(kind, linear_in=not on_features).wrapped()
    batch = graph.batch(range(8), scale=4.0)
    assert batch.num_halo == 28
    expected = estimate(bound(lmc.BackwardSGD(), wrapped, graph), batch)
    assert far(estimate(bound(lmc.LMC(alpha=1, score="1"), wrapped, graph), batch), expected) < 1e-9
    backward = bound(lmc.LMC(alpha=1, score="1", compensate_forward=False), wrapped, graph, init="exact")
    assert far(estimate(backward, batch), expected) < 1e-9
    forward = bound(lmc.LMC(alpha=1, score="1", compensate_backward=False), wrapped, graph)
    dropped = estimate(bound(lmc.GAS(), wrapped, graph, init="exact"), batch)
    assert far(estimate(forward, batch), dropped) < 1e-9


@pytest.mark.parametrize("kind", HOPS)
def test_cluster_gcn_is_pyg_on_the_subgraph(kind):
    graph, reference = graph_of("directed weighted"), make_hops(kind, linear_in=False)
    wrapped, nodes = reference.wrapped(), torch.arange(3, 20)
    found = estimate(bound(lmc.ClusterGCN(), wrapped, graph), graph.batch(nodes, scale=1.0))
    wrapped.zero_grad()
    part = graph.to_pyg().subgraph(nodes)
    losses = cross_entropy(reference(part), part.y, reduction="none")
    (losses[part.train_mask].sum() / graph.train_mask.sum()).backward()
    expected = {n: p.grad for n, p in wrapped.named_parameters() if p.grad is not None}
    assert far(found, expected) < 1e-9


@pytest.mark.parametrize("mode", ["cat", "max"])
def test_a_jump_reads_convolutions_not_hops(mode):
    graph, data = graph_of("directed weighted"), graph_of("directed weighted").to_pyg()
    weight = data.edge_weight.to(data.x)
    torch.manual_seed(0)
    convs = [pyg.TAGConv(5, 6, K=2), pyg.ChebConv(6, 6, K=4), pyg.GatedGraphConv(6, 2)]
    norm, jump, head = nn.BatchNorm1d(6), JumpingKnowledge(mode), nn.Linear(18 if mode == "cat" else 6, 3)
    layers = [
        convs[0],
        nn.Sequential(norm, nn.ReLU(), convs[1]),
        nn.Sequential(nn.Tanh(), convs[2], nn.Tanh()),
    ]
    model = lmc.GNN(layers, head=head, jump=jump).double().eval()

    def reference(data):
        first = norm(convs[0](data.x, data.edge_index, weight)).relu()
        second = convs[1](first, data.edge_index, weight).tanh()
        return head(jump([first, second, convs[2](second, data.edge_index, weight).tanh()]))

    assert torch.allclose(lmc.predict(graph, model), reference(data), rtol=1e-9)
    full = pyg_gradient(reference, model, graph)
    for estimator in (lmc.FullBatch(), lmc.LMC(0.4)):
        assert far(estimate(bound(estimator, model, graph), graph.batch(range(36))), full) < 1e-9
    assert far(mean_over(bound(lmc.LMC(alpha=0), model, graph, init="exact"), graph), full) < 1e-8
    assert far(mean_over(bound(lmc.BackwardSGD(), model, graph), graph), full) < 1e-8
    whole, batch = reached(graph), range(8)
    expected = estimate(bound(lmc.BackwardSGD(), model, whole), whole.batch(batch))
    assert far(estimate(bound(lmc.LMC(1, "1"), model, whole), whole.batch(batch)), expected) < 1e-9


def test_arma_drops_of_its_input_what_a_hash_of_the_node_says():
    """Each hop its own; the same for a node in the batch, in the halo and in the whole graph."""
    graph = reached(graph_of("directed weighted"))
    torch.manual_seed(0)
    convs = [pyg.ARMAConv(5, 6, 2, 2, dropout=0.5), pyg.ARMAConv(6, 3, 2, 2, dropout=0.5)]
    model = lmc.GNN([convs[0], nn.Sequential(nn.Tanh(), convs[1])]).double()
    batch = graph.batch(range(8))
    drops = estimate(bound(lmc.BackwardSGD(), model, graph), batch)
    assert far(estimate(bound(lmc.LMC(1, "1"), model, graph), batch), drops) < 1e-9
    assert far(estimate(bound(lmc.BackwardSGD(), model.eval(), graph), batch), drops) > 1e-2

    one = lmc.GNN([pyg.ARMAConv(5, 5, num_layers=2, act=None, dropout=0.25)]).double()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.zero_()
        one.layers[0].conv.root_weight[1, 0].copy_(torch.eye(5))  # so that the last hop gives x itself
    ones = lmc.Graph([[0], [1]], torch.ones(400, 5).double())
    found = one(ones)
    assert set(found.unique().tolist()) == {0.0, 1 / 0.75}
    assert 0.2 < float((found == 0).double().mean()) < 0.3
    assert torch.equal(one.eval()(ones), ones.x)


def test_histories_keep_what_is_sent_alone():
    """What a hop reads of its convolution's input is the node's own."""
    graph = graph_of("undirected")
    appnp = lmc.GNN([pyg.APPNP(4, 0.1)], nn.Linear(5, 3)).double()
    assert appnp.widths(graph) == [3, 3, 3, 3, 3]
    cheb = lmc.GNN([pyg.ChebConv(5, 3, 4)]).double()
    assert cheb.widths(graph) == [3, 3, 3, 3]
    estimator = bound(lmc.LMC(), cheb, graph)
    assert {h.values.shape for h in estimator.embeddings.values()} == {(36, 3)}


@pytest.mark.parametrize("kind", mostly_long(["GatedGraphConv", "APPNP", "ChebConv"], every=3))
def test_with_norms_and_dropout_a_run_is_the_same_again(kind):
    """In the background and not, by every estimator that remembers."""
    graph = graph_of("directed weighted")

    def trained(estimator, **options):
        model = make_hops(kind)
        model.norm = nn.Sequential(nn.BatchNorm1d(len(model.norm.weight)), nn.Dropout(0.5)).double()
        options |= {"parts": 4, "parts_per_batch": 2, "epochs": 2, "partition": "random"}
        lmc.fit(graph, model.wrapped(), estimator, **options)
        return model.state_dict()

    for estimator in (lmc.LMC(), lmc.GraphFM()):
        one, other = trained(estimator), trained(estimator, background=False)
        assert all(value.isfinite().all() for value in one.values())
        assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_gcn2conv_on_features():
    """It reads the features themselves where there is no encoder."""
    graph = graph_of("undirected")
    layers = [pyg.GCN2Conv(5, 0.1), nn.Sequential(nn.ReLU(), pyg.GCN2Conv(5, 0.1))]
    model = lmc.GNN(layers, head=nn.Linear(5, 3)).double()
    _, full = full_gradient(model, graph)
    assert far(settled(bound(lmc.LMC(alpha=0), model, graph), graph), full) < 1e-8
    for make in EVERY.values():
        assert estimate(bound(make(), model, graph), graph.batch(range(9)))


# -- what cannot work -------------------------------------------------------------------------------


def hooked():
    conv = pyg.SGConv(5, 6)
    conv.lin.register_forward_hook(lambda *given: None)
    return conv


class OwnLinear(pyg.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def replaced():
    conv = pyg.SSGConv(5, 6, alpha=0.1)
    conv.lin = OwnLinear(5, 6)
    return conv


def with_a_map(conv, power, lin):
    conv.lins[power] = lin
    return conv


BIAS, CURVED = nn.Linear(5, 6), nn.Sequential(nn.Linear(5, 6, bias=False), nn.Tanh())


REFUSED = {
    "a bias": (
        lambda: with_a_map(pyg.TAGConv(5, 6, K=2), 2, BIAS),
        "(TAGConv): lins[2] is a Linear with a bias",
    ),
    "a bias of Chebyshev": (
        lambda: with_a_map(pyg.ChebConv(5, 6, K=3), 1, BIAS),
        "(ChebConv): lins[1] is a Linear with a bias",
    ),
    "a curved map": (
        lambda: with_a_map(pyg.MixHopConv(5, 6), 2, CURVED),
        "(MixHopConv): lins[2] is a Sequential; must be a Linear without a bias",
    ),
    "edges are dropped": (lambda: pyg.APPNP(2, 0.1, dropout=0.5), "(APPNP): dropout=0.5 drops edges"),
    "no hop": (lambda: pyg.TAGConv(5, 6, K=0), "(TAGConv): has 0 hops; must be 1 to 1000"),
    "no hop of Chebyshev": (lambda: pyg.ChebConv(5, 6, K=1), "(ChebConv): has 0 hops"),
    "the maximum": (lambda: pyg.GatedGraphConv(6, 2, aggr="max"), "(GatedGraphConv): aggr='max'; hops are"),
    "a hook": (hooked, "(SGConv): has hooks or methods of its own on lin"),
    "a map of its own": (replaced, "(SSGConv): its lin is a OwnLinear"),
    "another direction": (lambda: pyg.APPNP(2, 0.1, flow="target_to_source"), "(APPNP): flow="),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_at_the_door(case):
    made, message = REFUSED[case]
    with pytest.raises(lmc.ArgumentError) as error:
        lmc.GNN([nn.Sequential(nn.Linear(5, 5), made())])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_map_that_is_replaced_after_wrapping_is_refused():
    conv = pyg.SGConv(5, 3).double()
    graph, model = graph_of("undirected"), lmc.GNN([conv])
    lmc.predict(graph, model)
    conv.lin = OwnLinear(5, 3).double()
    with pytest.raises(lmc.ArgumentError, match=r"SGConv.lin: was replaced after it was wrapped"):
        lmc.predict(graph, model)


def test_parametrised_weights_of_sgconv_are_read():
    conv = pyg.SGConv(5, 3, K=2).double()
    weight_norm(conv.lin)
    graph = graph_of("undirected")
    data, model = graph.to_pyg(), lmc.GNN([conv])
    assert torch.allclose(
        lmc.predict(graph, model), conv(data.x, data.edge_index, data.edge_weight.double()), rtol=1e-9
    )


def test_a_relu_in_armaconv_is_our_own_and_a_subclass_of_it_is_called():
    class Curved(nn.ReLU):
        def forward(self, x):
            return x.tanh()

    assert isinstance(lmc.GNN([pyg.ARMAConv(5, 3, num_layers=2)]).layers[1].message, Activation)
    conv = pyg.ARMAConv(5, 3, num_stacks=2, num_layers=2, act=Curved()).double()
    graph = graph_of("undirected")
    data, model = graph.to_pyg(), lmc.GNN([conv])
    assert torch.allclose(
        lmc.predict(graph, model), conv(data.x, data.edge_index, data.edge_weight.double()), rtol=1e-9
    )


def test_a_gated_convolution_takes_no_more_columns_than_it_gives():
    with pytest.raises(lmc.ArgumentError, match="its input has 5 columns; must be at most 4"):
        lmc.GNN([pyg.GatedGraphConv(4, 2)]).widths(graph_of("undirected"))


# -- real data --------------------------------------------------------------------------------------


# It learns, but less: 0.64 against 0.76 by full batches. What is outside of a batch is not why: with exact
# values there (BackwardSGD) it is 0.65, without any (ClusterGCN) 0.69. Its gates are shy of small batches.
LESS = {"GatedGraphConv": 0.15}


@pytest.mark.long
@pytest.mark.parametrize("kind", HOPS)
def test_cora_by_small_batches_is_as_accurate_as_by_full_ones(kind, real):
    cora = real("cora")
    torch.manual_seed(0)
    x = cora.x @ torch.pca_lowrank(cora.x, q=32, center=False)[2]
    masks = (cora.train_mask, cora.val_mask, cora.test_mask)
    graph = lmc.Graph(cora.to_pyg().edge_index, x / x.std(), cora.y, *masks)

    def accuracy(estimator, epochs, **options):
        torch.manual_seed(1)
        convs = [EVERY_HOP[kind](32, 32) for _ in range(2 if "Mix" not in kind else 1)]
        width = 96 if "Mix" in kind else 32
        layers = [nn.Sequential(nn.ReLU(), nn.Dropout(0.5), conv) for conv in convs]
        ends = nn.Linear(32, 32), nn.Sequential(nn.ReLU(), nn.Linear(width, 7))
        model = lmc.GNN(layers, *ends)
        lmc.fit(graph, model, estimator, lr=1e-2, weight_decay=5e-4, epochs=epochs, **options)
        return float((lmc.predict(graph, model).argmax(1) == graph.y)[graph.test_mask].double().mean())

    full = accuracy(lmc.FullBatch(), 60)
    # Random groups: with 140 labels in 20 clusters, those that are alike by labels keep neighbours apart,
    # which costs two points whatever the method is.
    small = accuracy(lmc.LMC(), 30, parts=20, parts_per_batch=5, balance=None)
    print(f"{kind}: full batch {full:.3f}, LMC {small:.3f}")
    assert small > full - LESS.get(kind, 0.03)
