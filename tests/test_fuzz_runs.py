"""Whole runs of every estimator beside dense ones: losses, gradients of every step, and what is trained."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GATConv, GINConv, SAGEConv

import lmc
from dense_models import Between, Convolution, DenseGraph, DenseModel
from dense_steps import Histories, estimate
from estimating import perturbed
from fuzz_graphs import CLASSES, FEATURES, examples, numbers
from lmc.nn.model import LinearLayer

pytestmark = pytest.mark.fuzz

MOSTLY = st.sampled_from([True, True, True, False])
DEPTH = st.sampled_from([3, 2, 3, 1])
DROPOUT = st.sampled_from([0.0, 0.0, 0.3, 0.5])
NORM = st.sampled_from(["none", "batch", "layer"])


def dense_graph(numbers):
    n = len(numbers.x)
    edges, weights = torch.zeros(n, n, dtype=torch.bool), torch.zeros(n, n).double()
    source, target = numbers.ends
    edges[target, source] = True
    weights[target, source] = 1.0 if numbers.weight is None else numbers.weight
    return DenseGraph(edges, weights, numbers.x, numbers.y, numbers.labelled, numbers.task)


def dense_model(model, *parts, **options):
    """The parameters and running statistics of a model, copied."""
    p = {name: value.detach().clone() for name, value in model.named_parameters()}
    p |= {name: value.detach().clone() for name, value in model.named_buffers() if name.endswith("eps")}
    for name, value in model.named_parameters():
        p[name].requires_grad_(value.requires_grad)
    running = {
        name: [module.running_mean.clone(), module.running_var.clone()]
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm1d)
    }
    return DenseModel(p, running, *parts, **options)


# -- models, ours and dense --------------------------------------------------------------------------


@st.composite
def gcns(draw, norms):
    """lmc.GCN, and a function from the model to its dense form."""
    depth, hidden = draw(DEPTH), draw(st.integers(3, 6))
    norm, dropout, input_dropout = draw(norms), draw(DROPOUT), draw(DROPOUT)
    residual, linear_in, linear_out = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    options = {"dropout": dropout, "norm": norm, "input_dropout": input_dropout, "residual": residual}
    options |= {"linear_in": linear_in, "linear_out": linear_out}
    model = lmc.GCN(FEATURES, hidden, CLASSES, layers=depth, **options)

    def between(name, **rest):
        known = {"norm": f"{name}.norm", "kind": norm} if norm != "none" else {}
        return Between(act="relu", dropout=dropout, **known, **rest)

    def dense(seed):
        convolutions = [Convolution("gcn", f"layers.{i}.linear", residual) for i in range(depth)]
        encoder, first = Between(), Between(dropout=input_dropout)
        if linear_in:
            encoder = Between("encoder.parts.1", dropout=input_dropout, place=(0,))
            first = Between(act="relu", dropout=dropout)
        before = [[first], *([between(f"layers.{i}.message")] for i in range(1, depth))]
        head = [between("head.parts.0", linear="head.parts.1", place=(0,))] if linear_out else []
        return dense_model(model, convolutions, before, encoder, head, seed)

    return model, dense


@st.composite
def gcniis(draw, norms):
    depth, hidden = draw(DEPTH), draw(st.integers(3, 6))
    norm, dropout, input_dropout = draw(norms), draw(DROPOUT), draw(DROPOUT)
    residual, shared = draw(st.booleans()), draw(st.booleans())
    alpha, theta = draw(st.sampled_from([0.0, 0.1, 1.0])), draw(st.sampled_from([0.0, 0.5, 2.0]))
    options = {"dropout": dropout, "norm": norm, "input_dropout": input_dropout, "residual": residual}
    options |= {"alpha": alpha, "theta": theta, "shared_weights": shared}
    model = lmc.GCNII(FEATURES, hidden, CLASSES, layers=depth, **options)

    def between(name, **rest):
        known = {"norm": f"{name}.norm", "kind": norm} if norm != "none" else {}
        return Between(act="relu", dropout=dropout, **known, **rest)

    def dense(seed):
        strengths = [math.log(theta / place + 1) for place in range(1, depth + 1)]
        convolutions = [
            Convolution("gcnii", f"layers.{i}", residual, alpha, strength)
            for i, strength in enumerate(strengths)
        ]
        encoder = Between("encoder.parts.1", dropout=input_dropout, place=(0,))
        first = Between(act="relu", dropout=dropout)
        before = [[first], *([between(f"layers.{i}.message")] for i in range(1, depth))]
        head = [between("head.parts.0", linear="head.parts.1", place=(0,))]
        return dense_model(model, convolutions, before, encoder, head, seed, reads_initial=True)

    return model, dense


@st.composite
def stacks(draw, norms):
    """lmc.GNN of PyG's convolutions, of several kinds in one model."""
    kinds = draw(st.lists(st.sampled_from(["sage mean", "sage sum", "gin", "gat"]), min_size=1, max_size=3))
    width = 6
    dropout, act = draw(DROPOUT), draw(st.sampled_from(["relu", "elu"]))
    layers, before, convolutions = [], [], []
    encoder = nn.Linear(FEATURES, width) if draw(st.booleans()) else None
    wide, pending = FEATURES if encoder is None else width, None  # the network of the GINConv before
    for i, kind in enumerate(kinds):
        name, modules, parts = f"layers.{i}", [], []
        norm = draw(norms)
        if pending is not None:
            parts.append(Between(pending))
        if i > 0:
            # A ReLU takes norm and dropout with it; anything else is a part of its own.
            place = len(parts)
            fused = act == "relu" and norm != "layer"
            last = place + (0 if fused or norm == "none" else 1) + (0 if act == "relu" else 1)
            alone = last == 0
            title = f"{name}.message" if alone else f"{name}.message.parts.{place}"
            inner = ".norm" if fused else ".module"
            known = {"norm": title + inner, "kind": norm} if norm != "none" else {}
            made = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
            modules += [made[norm](wide)] if norm != "none" else []
            modules += [nn.ReLU() if act == "relu" else nn.ELU(), nn.Dropout(dropout)]
            parts.append(Between(act=act, dropout=dropout, **known, place=() if alone else (last,)))
        if kind.startswith("sage"):
            conv = SAGEConv(wide, width, aggr=kind.split()[1])
        elif kind == "gin":
            conv = GINConv(nn.Linear(wide, width), eps=0.3, train_eps=draw(st.booleans()))
        else:
            conv = GATConv(wide, width // 2, heads=2)
        pending = f"{name}.conv.nn" if kind == "gin" else None
        convolutions.append(Convolution(kind, f"{name}.conv", heads=2))
        layers.append(nn.Sequential(*modules, conv))
        before.append(parts)
        wide = width
    head = [Between("head.module")] if pending is None else [Between(pending), Between("head.parts.1.module")]
    model = lmc.GNN(layers, encoder, nn.Linear(width, CLASSES))

    def dense(seed):
        first = Between() if encoder is None else Between("encoder.module")
        return dense_model(model, convolutions, before, first, head, seed)

    return model, dense


# -- estimators, ours and dense ----------------------------------------------------------------------


@st.composite
def methods(draw):
    """The estimator, the name of its dense form, and the options of its histories."""
    method = draw(st.sampled_from(["gd", "sgd", "cluster", "gas", "mvs", "fm", "lmc", "lmc", "lmc", "top"]))
    if method == "fm":
        momentum = draw(st.sampled_from([0.0, 0.3, 1.0]))
        return lmc.GraphFM(momentum), method, {"momentum": momentum}
    if method == "lmc":
        alpha = draw(st.sampled_from([0.4, 1.0, 0.7, 0.0]))
        score = draw(st.sampled_from(["x^2", "2x-x^2", "x", "1", "sin"]))
        forward, backward = draw(MOSTLY), draw(MOSTLY)
        given = {"compensate_forward": forward, "compensate_backward": backward}
        known = {"alpha": alpha, "score": score, "forward": forward, "backward": backward}
        return lmc.LMC(alpha, score, **given), method, known
    if method == "top":
        return lmc.TOP(draw(st.sampled_from([64, 2, 5]))), method, {}
    kinds = {"gd": lmc.FullBatch, "sgd": lmc.BackwardSGD, "cluster": lmc.ClusterGCN}
    kinds |= {"gas": lmc.GAS, "mvs": lmc.MVSGNN}
    return kinds[method](), method, {}


# Before a batch norm a bias has no gradient but rounding, which a small eps of Adam would blow up.
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, eps=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-3, weight_decay=0.1),
}


@st.composite
def batches(draw, graph):
    """A few epochs of groups of clusters, or any sets of nodes with any scale and weights."""
    n = graph.num_nodes
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    if draw(st.booleans()):
        clusters = torch.randint(0, draw(st.integers(1, 5)), (n,), generator=random)
        _, clusters = clusters.unique(return_inverse=True)
        at_once, epochs = draw(st.integers(1, int(clusters.max()) + 1)), draw(st.integers(1, 3))
        every = [lmc.batches(graph, clusters, at_once, epoch=epoch) for epoch in range(epochs)]
        return [batch for epoch in every for batch in epoch]
    found = []
    for _ in range(draw(st.integers(1, 5))):
        size = int(torch.randint(1, n + 1, (), generator=random))
        nodes = torch.randperm(n, generator=random)[:size]
        weights = torch.rand(size, generator=random).double() + 0.1 if draw(st.booleans()) else None
        found.append(graph.batch(nodes, 1.7, weights))
    return found


def run_beside_the_dense_one(data, models):
    """Steps of both, each with its own parameters, histories and optimizer."""
    task = data.draw(st.sampled_from(["multiclass", "multilabel", "regression"]))
    known = data.draw(numbers(task=task))
    graph, dense = known.graph(), dense_graph(known)
    estimator, method, options = data.draw(methods())
    # Theorem 1 is without batch norms: their statistics are those of the batch.
    norms = NORM.filter(lambda norm: norm != "batch") if method == "sgd" else NORM
    torch.manual_seed(data.draw(st.integers(0, 99)))
    model, densely = data.draw(models(norms))
    perturbed(model.double())
    frozen = data.draw(st.sampled_from([0, 0, 1, 2]))
    for parameter in list(model.parameters())[:frozen]:
        parameter.requires_grad_(False)
    seed, init = data.draw(st.integers(0, 9)), data.draw(st.sampled_from(["zero", "exact"]))
    reference, histories = densely(seed), Histories(method, dense, **options)
    if method == "top" and not all(isinstance(layer, LinearLayer) for layer in model.layers):
        return
    estimator.bind(model, graph, init=init, seed=seed)
    if method == "top":
        histories.bases = estimator.bases
    if method == "mvs" or (init == "exact" and method in ("gas", "fm", "lmc")):
        histories.fill(reference)

    names = [name for name, p in model.named_parameters() if p.requires_grad]
    if not names:
        return
    ours, theirs = [model.get_parameter(name) for name in names], [reference.p[name] for name in names]
    optimizer = data.draw(st.sampled_from(list(OPTIMIZERS)))
    both = OPTIMIZERS[optimizer](ours), OPTIMIZERS[optimizer](theirs)
    for step, batch in enumerate(data.draw(batches(graph))):
        given = (batch.nodes.tolist(), step, batch.scale, batch.weights, histories)
        expected_loss, expected = estimate(method, reference, dense, *given)
        for each in both:
            each.zero_grad()
        loss = estimator.backward(batch)
        assert loss == pytest.approx(float(expected_loss), rel=1e-9, abs=1e-9)
        for name, p, q in zip(names, ours, theirs, strict=True):
            found = torch.zeros_like(p) if p.grad is None else p.grad
            close(found, expected[name], f"step {step}: gradient of {name}")
            q.grad = None if p.grad is None else expected[name]
        for each in both:
            each.step()
    for name, p, q in zip(names, ours, theirs, strict=True):
        close(p, q, name)
    for name, (mean, variance) in reference.running.items():
        norm = model.get_submodule(name)
        close(norm.running_mean, mean, name)
        close(norm.running_var, variance, name)


def close(found, expected, what):
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8, msg=lambda text: f"{what}: {text}")


@examples(10)
@given(st.data())
def test_a_run_of_gcn_is_that_of_dense_algebra(data):
    run_beside_the_dense_one(data, gcns)


@examples(10)
@given(st.data())
def test_a_run_of_gcnii_is_that_of_dense_algebra(data):
    run_beside_the_dense_one(data, gcniis)


@examples(10)
@given(st.data())
def test_a_run_of_other_convolutions_is_that_of_dense_algebra(data):
    run_beside_the_dense_one(data, stacks)
