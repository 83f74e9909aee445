"""Theorems 1 to 3, in numbers: the mean of backward SGD, the bias of LMC, and where training goes."""

from __future__ import annotations

import math
import statistics

import torch
from torch import Tensor

import lmc
from lmc.paper.figures import epoch_chart
from lmc.paper.outcome import Outcome, ResultTable, Value
from lmc.paper.setup import Scale, with_progress
from lmc.report.charts import Chart

PARTS, PER_BATCH = 20, 5
RATES = (1e-1, 3e-2, 1e-2)
ALPHAS = (0.0, 0.4, 1.0)


def theory(scale: Scale) -> Outcome:
    """On a graph small enough for exact gradients, with a GCN without dropout and norm, by plain SGD."""
    graph = lmc.load(scale.data[0], scale.root) if scale.data else lmc.synthetic(nodes=3000, features=16)
    outcome = Outcome(
        {"graph": repr(graph), "clusters": PARTS, "clusters a batch": PER_BATCH, "model": "GCN 3 x 32"},
        ["The theorems speak of any graph; this is one, small enough for exact gradients."],
    )
    _unbiased(graph, scale, outcome)
    charts = [_bias(graph, scale, outcome), _stationary(graph, scale, outcome)]
    outcome.figures["bias-and-gradient"] = charts
    return outcome


def _model(graph: lmc.Graph) -> lmc.GCN:
    torch.manual_seed(0)
    return lmc.GCN(graph.num_features, 32, graph.num_classes, layers=3)


def _flat(gradients: dict[torch.nn.Parameter, Tensor]) -> Tensor:
    return torch.cat([gradient.flatten().double() for gradient in gradients.values()])


def _full(graph: lmc.Graph, model: lmc.GCN) -> Tensor:
    estimator = lmc.FullBatch()
    estimator.bind(model, graph)
    return _flat(estimator.estimate(estimator.whole)[1])


def _unbiased(graph: lmc.Graph, scale: Scale, outcome: Outcome) -> None:
    """Theorem 1: the mean of backward SGD over K random batches is the gradient, up to K^-1/2."""
    model = _model(graph)
    full = _full(graph, model)
    estimator = lmc.BackwardSGD()
    estimator.bind(model, graph)
    clusters = lmc.partition(graph, PARTS)
    estimates: list[Tensor] = []
    rows: list[list[Value]] = []
    for count in with_progress((10, 40) if scale.quick else (10, 100, 1000), "theorem 1"):
        while len(estimates) < count:
            # One random batch of every epoch: batches of one epoch are not independent.
            batch = next(lmc.batches(graph, clusters, PER_BATCH, epoch=len(estimates)))
            estimates.append(_flat(estimator.estimate(batch)[1]))
        found = torch.stack(estimates)
        deviation = float(found.var(0).sum().sqrt() / full.norm())
        error = float((found.mean(0) - full).norm() / full.norm())
        bound = 1.96 * deviation / math.sqrt(count)
        rows.append([count, error, deviation / math.sqrt(count), bound])
    heads = ["batches", "||mean - gradient||", "standard error", "95 % bound"]
    title = "Theorem 1: backward SGD is unbiased (relative to ||gradient||)"
    outcome.tables.append(ResultTable(title, heads, rows, digits=4))
    outcome.findings.append(
        f"Theorem 1: over {count} batches the mean is {error:.4f} from the gradient,"
        f" {'within' if error <= bound else 'outside'} its 95 % bound of {bound:.4f}."
    )


def _bias(graph: lmc.Graph, scale: Scale, outcome: Outcome) -> Chart:
    """Theorem 2: bias <= C (eta + rho^k) + beta: it falls with the steps to a level of the learning rate."""
    epochs = scale.epochs_of(30)
    rows: list[list[Value]] = []
    ends: dict[tuple[float, float], float] = {}
    curves: dict[str, list[float]] = {}
    for lr in with_progress(RATES, "theorem 2"):
        for alpha in ALPHAS:
            biases = _trained(graph, lmc.LMC(alpha), lr, epochs)[0]
            curves[f"lr {lr:g}, alpha {alpha:g}"] = biases
            ends[lr, alpha] = statistics.fmean(biases[-5:])
            rows.append([f"{lr:g}", f"{alpha:g}", biases[0], ends[lr, alpha]])
    heads = ["learning rate", "alpha", "bias after one epoch", "bias at the end"]
    outcome.tables.append(ResultTable("Theorem 2: the bias of LMC", heads, rows, digits=4))
    by_rate = ", ".join(f"{ends[lr, 0.0]:.4f} at lr {lr:g}" for lr in RATES)
    by_alpha = ", ".join(f"{ends[RATES[-1], alpha]:.4f} at alpha {alpha:g}" for alpha in ALPHAS)
    outcome.findings.append(
        f"Theorem 2: with alpha 0 the bias ends at {by_rate}; with lr {RATES[-1]:g} at {by_alpha}."
    )
    return epoch_chart(curves, "bias over ||gradient||", decades=True)


def _stationary(graph: lmc.Graph, scale: Scale, outcome: Outcome) -> Chart:
    """Theorem 3: the norm of the full gradient goes to zero."""
    epochs = scale.epochs_of(60)
    rows: list[list[Value]] = []
    curves: dict[str, list[float]] = {}
    methods = {"LMC": lmc.LMC(0.0), "GAS": lmc.GAS(), "CLUSTER": lmc.ClusterGCN(), "GD": lmc.FullBatch()}
    for name in with_progress(methods, "theorem 3"):
        norms = _trained(graph, methods[name], 1e-1, epochs)[1]
        curves[name] = norms
        rows.append([name, norms[0], statistics.fmean(norms[-5:])])
    heads = ["method", "after one epoch", "at the end"]
    outcome.tables.append(ResultTable("Theorem 3: ||gradient|| in training", heads, rows, digits=5))
    norms_at_end = ", ".join(f"{row[0]} {row[2]:.5f}" for row in rows)
    outcome.findings.append(f"Theorem 3: the gradient's norm ends at {norms_at_end}.")
    return epoch_chart(curves, "norm of the full gradient", decades=True)


def _trained(
    graph: lmc.Graph, estimator: lmc.Estimator, lr: float, epochs: int
) -> tuple[list[float], list[float]]:
    """The bias, and the norm of the full gradient, after every epoch of plain SGD on fixed batches."""
    model = _model(graph)
    estimator.bind(model, graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    clusters = lmc.partition(graph, PARTS)
    biases, norms = [], []
    for epoch in range(epochs):
        batches = list(lmc.batches(graph, clusters, PER_BATCH, epoch=epoch, fixed=True))
        for batch in batches:
            optimizer.zero_grad()
            estimator.backward(batch)
            optimizer.step()
        biases.append(lmc.gradient_error(graph, model, estimator, batches).bias["total"])
        norms.append(float(_full(graph, model).norm()))
    return biases, norms
