"""Models of PyG, wrapped: the same function, the same gradients, the same parameters."""

import copy
from itertools import product

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import LayerNorm, models

import lmc
from estimating import KINDS, bound, distance, full_gradient, gradient, graph_of, mostly_long, settled
from pyg_models import EVERY, LINEAR, OPTIONS, OTHER, PARTICULAR, by_pyg, graph_with, make

CASES = [(kind, options) for kind in EVERY for options in OPTIONS] + [(kind, None) for kind in PARTICULAR]


def pyg_gradient(model, graph):
    model.zero_grad()
    out, labelled = by_pyg(model, graph), graph.train_mask
    cross_entropy(out[labelled], graph.y[labelled].clamp(max=out.shape[1] - 1)).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def own_gradient(model, estimator, batch):
    model.zero_grad()
    estimator.backward(batch)
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


# -- the same function ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), mostly_long(CASES, every=2))
def test_one_batch_of_all_nodes_has_the_gradient_of_pyg(kind, options):
    graph = graph_with()
    model = make(kind, **OPTIONS.get(options, {}))
    statistics = copy.deepcopy(model)
    expected = pyg_gradient(statistics, graph)
    wrapped = lmc.from_pyg(model)
    for estimator in (lmc.FullBatch(), lmc.LMC(0.4)):
        before = copy.deepcopy(model.state_dict())
        estimator.bind(wrapped, graph)
        found = own_gradient(model, estimator, graph.batch(range(graph.num_nodes)))
        assert max(distance(found, expected).values()) < 1e-6
        for name, value in statistics.named_buffers():  # running statistics moved as PyG moves them
            assert torch.allclose(dict(model.named_buffers())[name], value, rtol=1e-9), name
        model.load_state_dict(before)


@pytest.mark.parametrize(("kind", "options"), mostly_long(CASES, every=4))
def test_predictions_are_those_of_pyg(kind, options):
    graph = graph_with()
    model = make(kind, **OPTIONS.get(options, {})).eval()
    with torch.no_grad():
        expected = by_pyg(model, graph)
    for rows in (7, 1 << 15):
        found = lmc.predict(graph, lmc.from_pyg(model), rows_at_once=rows)
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gcn_normalisation_is_that_of_the_whole_graph(kind):
    """In a small batch too: a row with exact neighbours is the row of the full pass."""
    graph, model = graph_of(kind), make("GCN")
    estimator = bound(lmc.BackwardSGD(), lmc.from_pyg(model), graph)
    expected = pyg_gradient(model, graph)
    mean = {name: torch.zeros_like(g) for name, g in expected.items()}
    for start in range(0, 36, 6):
        for name, g in own_gradient(
            model, estimator, graph.batch(range(start, start + 6), scale=6.0)
        ).items():
            mean[name] += g / 6
    assert max(distance(mean, expected).values()) < 1e-9


# -- estimates --------------------------------------------------------------------------------------


JUMPS = {"plain": {}, "jk cat": {"jk": "cat", "num_layers": 3}, "jk max": {"jk": "max", "num_layers": 3}}


@pytest.mark.slow
@pytest.mark.parametrize("graph_kind", ["undirected", "directed weighted"])
@pytest.mark.parametrize(
    ("kind", "jump"),
    [
        *mostly_long([*product(LINEAR, JUMPS)], every=4),
        ("SAGE of unit length", "plain"),
        ("GIN eps", "plain"),
    ],
)
def test_settled_lmc_averages_to_the_gradient_where_aggregation_is_linear(kind, jump, graph_kind):
    graph, model = graph_of(graph_kind), lmc.from_pyg(make(kind, **JUMPS[jump]))
    _, expected = full_gradient(model, graph)
    found = settled(bound(lmc.LMC(alpha=0), model, graph), graph)
    assert max(distance(found, expected).values()) < 1e-8
    _, biased = gradient(bound(lmc.GAS(), model, graph), graph.batch(range(9), scale=4.0))
    assert max(distance(biased, expected).values()) > 1e-3


THEOREM_1 = {
    "plain": {"num_layers": 3},
    "jk max, dropout": {"num_layers": 3, "jk": "max", "dropout": 0.4},
    "layer norm, elu": {"num_layers": 3, "norm": LayerNorm(6, mode="node"), "act": "elu"},
}


def without_own_dropout(model):
    """PyG's models hand their dropout on to their convolutions, which draw it anew for each call."""
    for conv in model.convs:
        for part in conv.modules():
            own = getattr(part, "dropout", None)
            if isinstance(own, (float, list)):
                part.dropout = 0.0 if isinstance(own, float) else [0.0] * len(own)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    mostly_long([*product(EVERY, THEOREM_1), *((kind, None) for kind in PARTICULAR)], every=4),
)
def test_backward_sgd_is_unbiased_for_every_convolution(kind, options):
    """Theorem 1, with the dropout masks of one step."""
    graph = graph_with("directed weighted")
    model = without_own_dropout(make(kind, **THEOREM_1.get(options, {})))
    wrapped = lmc.from_pyg(model)
    whole = graph.batch(range(graph.num_nodes))
    expected = own_gradient(model, bound(lmc.FullBatch(), wrapped, graph), whole)
    estimator = bound(lmc.BackwardSGD(), wrapped, graph)
    mean = {name: torch.zeros_like(g) for name, g in expected.items()}
    unequal = torch.tensor([0] * 18 + [1] * 10 + [2] * 7 + [3])
    with estimator.frozen():
        for batch in lmc.batches(graph, unequal):
            for name, g in own_gradient(model, estimator, batch).items():
                mean[name] += g / 4
    assert max(distance(mean, expected).values()) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_long(EVERY, every=4))
def test_error_of_the_mean_gradient(kind):
    """The table of docs/models.md; `pytest -rP -k error_of_the_mean` prints it."""
    graph, errors = graph_of("undirected"), {}
    for name, estimator in {"LMC": lmc.LMC(alpha=0), "LMC 0.4": lmc.LMC(), "GAS": lmc.GAS()}.items():
        model = lmc.from_pyg(make(kind, num_layers=3))
        _, full = full_gradient(model, graph)
        mean = settled(bound(estimator, model, graph), graph)
        flat = [torch.cat([g[n].flatten() for n in full]) for g in (mean, full)]
        errors[name] = float((flat[0] - flat[1]).norm() / flat[1].norm())
    print(kind, {name: f"{error:.1e}" for name, error in errors.items()})
    assert errors["LMC"] < (1e-8 if kind in LINEAR else errors["GAS"])


@pytest.mark.parametrize("kind", [*OTHER, "GAT of edges", "PNA of edges, towers", "SAGE project"])
def test_the_papers_formula_by_pyg_on_a_square_graph(kind):
    """Equations (7), (8), (11) at alpha = 0, by autograd through PyG's own calls on batch and halo."""
    graph, model = graph_with("directed"), make(kind)
    wrapped = lmc.from_pyg(model)
    estimator = bound(lmc.LMC(alpha=0), wrapped, graph)
    for start in (0, 12, 24):
        estimator.backward(graph.batch(range(start, start + 12)))
    batch = graph.batch(range(4, 16), scale=3.0)
    z1, z2 = (estimator.embeddings[layer].values.clone() for layer in (1, 2))
    found = own_gradient(model, estimator, batch)

    members, inside = batch.members, batch.num_nodes
    place = torch.empty(graph.num_nodes, dtype=torch.long).scatter_(0, members, torch.arange(len(members)))
    whole = graph.to_pyg()
    reach = torch.isin(whole.edge_index, members).all(0)
    index, attr = place[whole.edge_index[:, reach]], whole.edge_attr[reach]

    def conv(layer, x, targets_inside, live):
        to = index[1] < inside if targets_inside else index[1] >= inside
        module = model.convs[layer]
        parameters = {n: p if live else p.detach() for n, p in module.named_parameters()}
        given = {"edge_attr": attr[to]} if getattr(module, "edge_dim", None) is not None else {}
        out = torch.func.functional_call(module, parameters, (x, index[:, to]), given)
        return out[:inside] if targets_inside else out[inside:]

    count = int(graph.train_mask.sum())
    labelled, y = graph.train_mask[members], graph.y[members]
    x = graph.x[members]
    first = conv(0, x, True, live=True)
    boundary = first.detach().requires_grad_()
    h = torch.cat([boundary, z1[batch.halo]]).relu()
    second = conv(1, h, True, live=True)
    own = cross_entropy(second[labelled[:inside]], y[:inside][labelled[:inside]], reduction="sum")
    last = z2[batch.halo].requires_grad_()
    others = labelled[inside:]
    halo_losses = cross_entropy(last[others], y[inside:][others], reduction="sum")
    (v2,) = torch.autograd.grad(halo_losses, last)
    carried = own + (v2 * conv(1, h, False, live=False)).sum()
    own.backward(retain_graph=True)  # eq. (7) of the last layer
    boundary.grad = None
    (v,) = torch.autograd.grad(carried, boundary)  # eq. (11)
    first.backward(v)  # eq. (7) of the first
    expected = {n: 3.0 / count * p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert max(distance(found, expected).values()) < 1e-9


# -- the same parameters ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
def test_training_trains_the_model_that_was_given(kind, tmp_path):
    graph = graph_with("undirected")
    model = make(kind, norm="BatchNorm", dropout=0.3)
    before = copy.deepcopy(model.state_dict())
    wrapped = lmc.from_pyg(model)
    assert {id(p) for p in wrapped.parameters()} == {id(p) for p in model.parameters()}
    options = {"parts": 4, "parts_per_batch": 2, "epochs": 2, "partition": "random"}
    lmc.fit(graph, wrapped, lmc.LMC(), out=tmp_path / "run", **options)
    after = model.state_dict()
    assert list(after) == list(before)
    assert not any(torch.equal(after[n], before[n]) for n in after if n.endswith(("weight", "running_mean")))
    torch.save(after, tmp_path / "weights.pt")
    again = make(kind, norm="BatchNorm", dropout=0.3, seed=5)
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    with torch.no_grad():
        expected = by_pyg(again.eval(), graph)
        assert torch.allclose(by_pyg(model.eval(), graph), expected)
    assert torch.allclose(lmc.predict(graph, wrapped), expected, rtol=1e-9, atol=1e-12)

    same = make(kind, norm="BatchNorm", dropout=0.3)
    lmc.fit(graph, lmc.from_pyg(same), lmc.LMC(), background=False, **options)
    assert all(torch.equal(value, after[name]) for name, value in same.state_dict().items())


def test_modes_and_types_are_shared():
    model = make("GCN", norm="BatchNorm", dropout=0.5)
    wrapped = lmc.from_pyg(model)
    graph = graph_of("undirected")
    everything = graph.batch(range(36))
    estimator = bound(lmc.FullBatch(), wrapped, graph)
    model.eval()
    evaluated = own_gradient(model, estimator, everything)
    expected = pyg_gradient(model, graph)
    assert max(distance(evaluated, expected).values()) < 1e-9
    wrapped.train()
    assert model.training
    assert model.convs[0].training
    assert max(distance(own_gradient(model, estimator, everything), expected).values()) > 1e-3
    wrapped.float()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert model.norms[0].module.running_mean.dtype == torch.float32


def test_halo_rows_leave_a_norm_inside_a_convolution_alone():
    graph, model = graph_of("undirected"), make("EdgeCNN", norm="BatchNorm")
    norm = model.convs[1].nn.norms[0].module
    estimator = bound(lmc.LMC(alpha=0.5), lmc.from_pyg(model), graph)
    estimator.backward(graph.batch(range(12)))
    assert int(norm.num_batches_tracked) == 1


@pytest.mark.parametrize(
    ("kind", "estimator"),
    mostly_long([*product(EVERY, [lmc.LMC, lmc.GAS, lmc.GraphFM, lmc.ClusterGCN])], every=3),
)
def test_batches_without_a_message_have_finite_gradients(kind, estimator):
    """Two isolated nodes, one of them, and one node with all its neighbours outside."""
    graph, model = graph_of("undirected"), make(kind, norm="BatchNorm")
    bound_to = bound(estimator(), lmc.from_pyg(model), graph)
    for nodes in ([34, 35], [35], [0]):
        assert all(g.isfinite().all() for g in own_gradient(model, bound_to, graph.batch(nodes)).values())


# -- real data --------------------------------------------------------------------------------------


REST = [kind for kind in EVERY if kind != "GCN"]
SLOWER = {"lr": 3e-3, "epochs": 70, "weight_decay": 5e-4}
SETTINGS = {"GIN": SLOWER, "PNA": SLOWER, "EdgeCNN": {"lr": 5e-3, "epochs": 50, "weight_decay": 5e-3}}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GCN", *(pytest.param(k, marks=pytest.mark.long) for k in REST)])
def test_cora_by_small_batches_is_as_accurate_as_by_full_ones(kind, real, narrow):
    graph = narrow(real("cora"))

    def accuracy(estimator, share=1.0, **options):
        settings = {"lr": 1e-2, "epochs": 40, "weight_decay": 5e-4} | SETTINGS.get(kind, {})
        settings["epochs"] = int(share * settings["epochs"])
        right = []
        for seed in (0, 1):
            model = make(kind, 32, 32, 7, dropout=0.5, seed=seed).float()
            wrapped = lmc.from_pyg(model)
            lmc.fit(graph, wrapped, estimator, seed=seed, **settings, **options)
            right.append((lmc.predict(graph, wrapped).argmax(1) == graph.y)[graph.test_mask])
        return float(torch.cat(right).double().mean())

    full = accuracy(lmc.FullBatch())
    small = accuracy(lmc.LMC(), 0.5, parts=20, parts_per_batch=5)
    print(f"{kind}: full batch {full:.3f}, LMC {small:.3f}")
    assert small > full - 0.02


@pytest.mark.parametrize("edges", [[[], []], [[0], [1]], [[0, 1], [1, 0]]])
def test_a_norm_over_nodes_does_not_count_edges(edges):
    """GINConv with a maximum has its norm over rows; that there are few edges does not matter to it."""
    torch.manual_seed(0)
    model = models.GIN(5, 6, 2, 3, aggr="max", norm="BatchNorm").double()
    graph = lmc.Graph(torch.tensor(edges).long(), torch.randn(4, 5).double(), [0, 1, 2, 0], [True] * 4)
    expected = pyg_gradient(copy.deepcopy(model), graph)
    found = own_gradient(model, bound(lmc.FullBatch(), lmc.from_pyg(model), graph), graph.batch(range(4)))
    assert max(distance(found, expected).values()) < 1e-9
