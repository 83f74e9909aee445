"""PyG's convolutions that have no bipartite form of their own, and models of them."""

import contextlib

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric import nn as pyg

import lmc
from estimating import bound, perturbed

WIDTH = 6


def eg(w, *aggregators, **options):
    return pyg.EGConv(w, w, list(aggregators), num_heads=2, num_bases=3, **options)


def both_ways(w, kind, alpha=0.3, root_weight=True, **options):
    return pyg.DirGNNConv(kind(w, w, **options), alpha, root_weight)


# Sums of messages that depend on their two ends alone: settled LMC is exact.
EXACT = {
    "ClusterGCNConv": lambda w: pyg.ClusterGCNConv(w, w, diag_lambda=0.7),
    "DirGNNConv of GCNConv": lambda w: both_ways(w, pyg.GCNConv),
    "DirGNNConv of SAGEConv, mean": lambda w: both_ways(w, pyg.SAGEConv),
    "EGConv": lambda w: eg(w, "symnorm"),
    "FAConv": lambda w: pyg.FAConv(w, eps=0.3),
    "GCNConv, mean": lambda w: pyg.GCNConv(w, w, aggr="mean"),
    "PDNConv": lambda w: pyg.PDNConv(w, w, edge_dim=2, hidden_channels=4),
}
OTHER = {
    "AGNNConv": lambda w: pyg.AGNNConv(),
    "DirGNNConv of GATConv": lambda w: both_ways(w, pyg.GATConv),
    "EGConv, max and std": lambda w: eg(w, "symnorm", "max", "std"),
    "GCNConv, max": lambda w: pyg.GCNConv(w, w, aggr="max"),
    "SuperGATConv": lambda w: pyg.SuperGATConv(w, w // 2, heads=2),
}
EXACT_BY_OPTION = {
    "ClusterGCNConv, mean": lambda w: pyg.ClusterGCNConv(w, w, aggr="mean", bias=False),
    "DirGNNConv of SAGEConv, sum": lambda w: both_ways(w, pyg.SAGEConv, root_weight=False, aggr="sum"),
    "EGConv, without loops": lambda w: eg(w, "symnorm", "sum", add_self_loops=False, bias=False),
    "FAConv, without loops": lambda w: pyg.FAConv(w, eps=0.0, add_self_loops=False),
    "FAConv, weights as they are": lambda w: pyg.FAConv(w, eps=0.3, normalize=False),
    "GCN2Conv, mean": lambda w: pyg.GCN2Conv(w, 0.2, 0.5, 1, aggr="mean"),
    "GCNConv, mean, without loops": lambda w: pyg.GCNConv(w, w, aggr="mean", add_self_loops=False),
    "PDNConv, without loops": lambda w: pyg.PDNConv(w, w, 2, 4, add_self_loops=False, bias=False),
    "PDNConv, as it is": lambda w: pyg.PDNConv(w, w, 2, 4, normalize=False),
}
BY_OPTION = {
    "AGNNConv, without loops": lambda w: pyg.AGNNConv(requires_grad=False, add_self_loops=False),
    "DirGNNConv of SAGEConv, max": lambda w: both_ways(w, pyg.SAGEConv, aggr="max", project=True),
    "DirGNNConv of EGConv": lambda w: both_ways(w, pyg.EGConv, num_heads=2, num_bases=3, aggregators=["max"]),
    "DirGNNConv of GCNConv, max": lambda w: both_ways(w, pyg.GCNConv, aggr="max"),
    "EGConv, without symnorm": lambda w: eg(w, "mean", "min", "var", add_self_loops=False),
    "GCNConv, max, as it is": lambda w: pyg.GCNConv(w, w, aggr="max", normalize=False, bias=False),
    "SuperGATConv, SD": lambda w: pyg.SuperGATConv(
        w, w, heads=2, concat=False, attention_type="SD", add_self_loops=False, bias=False
    ),
}
EVERY = EXACT | OTHER
OPTIONS = EXACT_BY_OPTION | BY_OPTION


def parts_of(kind, depth=2, seed=0, features=5, width=WIDTH, classes=3):
    """Encoder, convolutions and head."""
    torch.manual_seed(seed)
    convs = [(EVERY | OPTIONS)[kind](width) for _ in range(depth)]
    return nn.Linear(features, width), convs, nn.Linear(width, classes)


def wrapped(encoder, convs, head, dropout=0.0):
    """The model of these parts, a tanh between any two."""
    first, *others = convs
    layers = [first, *(nn.Sequential(nn.Tanh(), nn.Dropout(dropout), conv) for conv in others)]
    return lmc.GNN(layers, encoder, nn.Sequential(nn.Tanh(), nn.Dropout(dropout), head))


def make(kind, depth=2):
    """A model in float64 and the parts that it is made of."""
    parts = parts_of(kind, depth)
    return perturbed(wrapped(*parts).double()), parts


def by_pyg(parts, graph):
    """(nodes, classes) by the convolutions' own forward on the whole graph."""
    encoder, convs, head = parts
    data = graph.to_pyg()
    weight = data.get("edge_weight")
    z = first = encoder(data.x)
    with degrees_in_double():
        for place, conv in enumerate(convs):
            given = {}
            if isinstance(conv, pyg.GCNConv | pyg.GCN2Conv):
                given["edge_weight"] = None if weight is None else weight.double()
            if isinstance(conv, pyg.FAConv) and not conv.normalize:
                given["edge_weight"] = torch.ones(data.num_edges) if weight is None else weight.double()
            if isinstance(conv, pyg.PDNConv):
                given["edge_attr"] = data.edge_attr
            if isinstance(conv, pyg.FAConv | pyg.GCN2Conv):
                given["x_0"] = first
            z = conv(z.tanh() if place else z, edge_index=data.edge_index, **given)
    return head(z.tanh())


@contextlib.contextmanager
def degrees_in_double():
    """ClusterGCNConv counts degrees in torch's default type, whatever the type of its input."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def gradient_by_pyg(model, parts, graph):
    model.zero_grad()
    labelled = graph.train_mask
    cross_entropy(by_pyg(parts, graph)[labelled], graph.y[labelled]).backward()
    return gradients(model)


def gradient(model, estimator, batch):
    model.zero_grad()
    estimator.backward(batch)
    return gradients(model)


def gradients(model):
    """By name; a DirGNNConv has parameters that nothing reads."""
    found = {
        n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()
    }
    model.zero_grad()
    return found


def settled(model, estimator, graph, batches):
    """The mean estimate over the batches, once histories no longer change."""
    bound(estimator, model, graph)
    for _ in range(2 * len(model.layers) - 1):
        for batch in batches:
            estimator.backward(batch)
    estimates = [gradient(model, estimator, batch) for batch in batches]
    return {name: sum(each[name] for each in estimates) / len(estimates) for name in estimates[0]}
