"""How far drawn messages are from the gradient, and how much memory they take."""

import numpy as np
import pytest
import torch

import lmc
from estimating import gcn, graph_of
from lmc.batching.samplers import BatchOptions
from test_samplers import exact


def error_by_hand(model, graph, estimator, batches, weights_of=lambda batch: batch.weights):
    """Error, bias and variance of all parameters together, with exact gradients by autograd."""
    _, full = exact(model, graph, graph.batch(range(graph.num_nodes)))
    rows = []
    for batch in batches:
        with estimator.frozen():
            _, found = estimator.estimate(batch)
        same = graph.batch(batch.nodes, batch.scale, weights_of(batch))
        _, own = exact(model, graph, same)
        e, g, f = (
            torch.cat([each[key].flatten() for key in keys])
            for each, keys in (
                (found, list(model.parameters())),
                (own, dict(model.named_parameters())),
                (full, dict(model.named_parameters())),
            )
        )
        rows.append([float((e - f).norm()), float((e - g).norm()), float((g - f).norm()) ** 2])
    error, bias, variance = np.mean(rows, axis=0)
    norm = float(f.norm())
    return error / norm, bias / norm, variance**0.5 / norm


SAMPLED = {
    "sage": lambda: lmc.NeighborSampling([2, 1], batch_size=7),
    "vrgcn": lambda: lmc.VRGCN([1], batch_size=7),
    "fastgcn": lambda: lmc.FastGCN([20], batch_size=7),
    "ladies": lambda: lmc.LADIES([6], batch_size=7),
    "saint": lambda: lmc.GraphSAINT("node", batch_size=12, coverage=5),
    "mvs": lambda: lmc.MVSGNN(batch_size=7),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_gradient_error_by_hand(name):
    graph, model, estimator = graph_of("directed"), gcn(2, dropout=0.5), SAMPLED[name]()
    batches = list(estimator.make_sampler(graph, BatchOptions()).epoch(0))
    estimator.bind(model, graph)
    errors = lmc.gradient_error(graph, model, estimator, batches)
    again = lmc.gradient_error(graph, model, estimator, batches)
    assert (errors, errors.bias) == (again, again.bias)  # and so nothing was changed
    by_hand = error_by_hand(model.eval(), graph, estimator, batches, estimator.loss_weights)
    assert (errors["total"], errors.bias["total"], errors.variance["total"]) == pytest.approx(
        by_hand, rel=1e-9
    )
    assert errors.bias["total"] > 1e-3


def test_all_neighbours_have_no_bias_and_many_have_less():
    graph, model, bias = graph_of("undirected"), gcn(2), []
    for fanouts in ([1], [3], [-1]):
        estimator = lmc.NeighborSampling(fanouts, batch_size=5)
        batches = list(estimator.make_sampler(graph, BatchOptions()).epoch(0))
        estimator.bind(model, graph)
        errors = lmc.gradient_error(graph, model, estimator, batches)
        bias.append(errors.bias["total"])
        assert errors.variance["total"] > 0.1  # that of the targets, whatever they hear
    assert bias[0] > bias[1] > 1e-3
    assert bias[2] < 1e-12


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda: lmc.NeighborSampling([2, 9], batch_size=10), [(10, 30, 30), (30, 36, 120)]),
        (lambda: lmc.NeighborSampling([-1], batch_size=1), [(1, 4, 4), (4, 16, 16)]),
        (lambda: lmc.NeighborSampling([1]), [(19, 36, 38), (36, 36, 72)]),
        (lambda: lmc.LADIES([7], batch_size=10), [(10, 17, 40), (17, 24, 68)]),
        (lambda: lmc.FastGCN(batch_size=10), [(10, 36, 40), (36, 36, 144)]),
        (lambda: lmc.GraphSAINT("walk", batch_size=4), [(12, 12, 48), (12, 12, 48)]),
    ],
)
def test_sizes_of_a_step(make, sizes):
    graph = graph_of("directed")
    assert (graph.sources.num_entries, int(graph.train_mask.sum())) == (98, 19)  # 2.7 neighbours of 36 nodes
    assert make().expected_sizes(graph, gcn(2)) == sizes


def test_memory_is_that_of_what_is_drawn(monkeypatch):
    """Where a step over the whole graph would not fit."""
    graph = lmc.synthetic(nodes=2000)
    model = lmc.GCN(graph.num_features, 64, graph.num_classes, layers=2)
    monkeypatch.setattr("lmc.memory_use.free", lambda: 2_500_000)
    with pytest.raises(lmc.ArgumentError, match="FullBatch: training needs"):
        lmc.fit(graph, model, lmc.FullBatch(), epochs=1)
    with pytest.raises(lmc.ArgumentError, match=r"NeighborSampling: training needs .* smaller batch_size"):
        lmc.fit(graph, model, lmc.NeighborSampling(), epochs=1)
    lmc.fit(graph, model, lmc.NeighborSampling([2, 2], batch_size=64), epochs=1)
    monkeypatch.setattr("lmc.memory_use.free", lambda: 500_000)
    with pytest.raises(lmc.ArgumentError, match="VRGCN: training needs"):  # for its histories
        lmc.fit(graph, model, lmc.VRGCN(batch_size=10), epochs=1)
    lmc.fit(graph, model, lmc.NeighborSampling([2, 2], batch_size=10), epochs=1)


def test_a_batch_of_all_nodes_is_the_whole_graph_to_graph_saint():
    graph = lmc.synthetic(nodes=60, features=5, classes=3).to(torch.float64)
    torch.manual_seed(0)
    model = lmc.GCN(5, 4, 3, layers=2).double()
    saint, full = lmc.GraphSAINT("node", batch_size=20, coverage=3), lmc.FullBatch()
    everything = graph.batch(range(60))
    for estimator in (saint, full):
        estimator.bind(model, graph)
    loss, gradients = saint.estimate(everything)
    expected_loss, expected = full.estimate(everything)
    assert loss == pytest.approx(expected_loss, rel=1e-9)
    for parameter, wanted in expected.items():
        torch.testing.assert_close(gradients[parameter], wanted, rtol=1e-9, atol=1e-12)
