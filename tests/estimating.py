"""Graphs, models and estimators for the tests of the estimators."""

import numpy as np
import pytest
import torch
from scipy import sparse

import lmc

KINDS = ("undirected", "directed", "weighted", "directed weighted")


def mostly_long(cases, every):
    """Cases of which one in so many is run by `make test`, and the others by `make test-long`."""
    return [
        case
        if number % every == 0
        else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.long)
        for number, case in enumerate(cases)
    ]


def graph_of(kind, seed=0, nodes=36, features=5, classes=3, task="multiclass", dtype=torch.float64):
    """A sparse random graph whose last two nodes are isolated; two thirds of the nodes are labelled."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, nodes - 2, (2, 3 * nodes))
    weight = rng.uniform(0.2, 2.0, ends.shape[1])
    if "directed" not in kind.replace("undirected", ""):
        first = np.unique(np.sort(ends, axis=0), axis=1)
        weight = weight[: first.shape[1]]
        ends, weight = np.concatenate([first, first[::-1]], 1), np.concatenate([weight, weight])
    ends, weight = merged(ends, weight if "weighted" in kind else np.ones(ends.shape[1], np.float32))
    labels = {
        "multiclass": rng.integers(0, classes, nodes),
        "multilabel": rng.integers(0, 2, (nodes, classes)).astype(float),
        "regression": rng.normal(size=(nodes, classes)),
    }[task]
    role = rng.integers(0, 3, nodes)
    role[0] = 0
    return lmc.Graph(
        ends,
        torch.as_tensor(rng.normal(size=(nodes, features)), dtype=dtype),
        labels,
        role < 2,
        role == 2,
        edge_weight=weight if "weighted" in kind or (weight > 1).any() else None,
        task=task,
        num_classes=classes,
    )


def merged(ends, weight):
    """Every edge once, the weights of its repetitions added up."""
    one = sparse.coo_array((weight, ends[::-1]), shape=2 * [int(ends.max()) + 1]).tocsr().tocoo()
    return np.stack(one.coords[::-1]), one.data


def gcn(depth, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    return perturbed(lmc.GCN(5, options.pop("hidden", 6), 3, layers=depth, **options).to(dtype))


def gcnii(depth, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    return perturbed(lmc.GCNII(5, 6, 3, layers=depth, **options).to(dtype))


def sign(hops, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    return perturbed(lmc.SIGN(graph_of("undirected"), hops, 6, **options).to(dtype))


def perturbed(model):
    """Biases and norm scales away from zero and one, so that an error in them shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


MODELS = {
    "gcn": lambda depth: gcn(depth),
    "gcn widths": lambda depth: gcn(depth, hidden=[4 + i for i in range(depth - 1)]),
    "gcn linear": lambda depth: gcn(depth, linear_in=True, linear_out=True, residual=True),
    "gcn layer norm": lambda depth: gcn(depth, norm="layer", linear_out=True),
    "gcnii": lambda depth: gcnii(depth),
    "gcnii separate": lambda depth: gcnii(depth, shared_weights=False, norm="layer", residual=True),
}


def clusters_of(graph, parts=4, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, parts, graph.num_nodes))


def bound(estimator, model, graph, **options):
    estimator.bind(model, graph, **options)
    return estimator


def gradient(estimator, batch):
    """The estimate by name, through the public way: `.grad` after `backward`."""
    estimator.model.zero_grad()
    loss = estimator.backward(batch)
    named = estimator.model.named_parameters()
    return loss, {name: p.grad.clone() for name, p in named if p.requires_grad}


def full_gradient(model, graph, **options):
    return gradient(bound(lmc.FullBatch(), model, graph, **options), graph.batch(range(graph.num_nodes)))


def mean_gradient(estimator, batches):
    estimates = [gradient(estimator, batch)[1] for batch in batches]
    return {name: sum(e[name] for e in estimates) / len(estimates) for name in estimates[0]}


def distance(one, other):
    """Relative, by parameter; the norm of all parameters where one's own is tiny."""
    total = max(float(torch.stack([g.norm() for g in other.values()]).norm()), 1e-12)
    norms = {name: max(float(g.norm()), 1e-3 * total) for name, g in other.items()}
    return {name: float((one[name] - g).norm()) / norms[name] for name, g in other.items()}


def settled(estimator, graph, parts=4):
    """The mean estimate over a partition, once histories no longer change."""
    batches = list(lmc.batches(graph, clusters_of(graph, parts)))
    for _ in range(2 * len(estimator.model.layers)):
        mean_gradient(estimator, batches)
    return mean_gradient(estimator, batches)


EVERY = {
    "BackwardSGD": lmc.BackwardSGD,
    "ClusterGCN": lmc.ClusterGCN,
    "GAS": lmc.GAS,
    "GraphFM": lambda: lmc.GraphFM(momentum=0.3),
    "LMC": lambda: lmc.LMC(alpha=0.4),
    "LMC alpha 0": lambda: lmc.LMC(alpha=0),
    "LMC alpha 1": lambda: lmc.LMC(alpha=1, score="1"),
    "LMC forward": lambda: lmc.LMC(alpha=0.4, compensate_backward=False),
    "LMC backward": lambda: lmc.LMC(alpha=0.4, compensate_forward=False),
    "LMC found": lmc.LMC,
    "LMC found forward": lambda: lmc.LMC(compensate_backward=False),
    "LMC sums": lambda: lmc.LMC(alpha=0, mix="sums"),
    "MVSGNN": lambda: lmc.MVSGNN(batch_size=12),
    "TOP": lambda: lmc.TOP(rank=4),
    "TOP history": lambda: lmc.TOP(rank=4, basis="history"),
}
