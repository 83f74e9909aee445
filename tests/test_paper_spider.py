"""The parts of `lmc paper spider`: trainings that are followed, rates, and what is said of runs."""

from itertools import islice
from types import SimpleNamespace

import pytest
import torch

import lmc
from lmc.batching.samplers import BatchOptions
from lmc.paper import followed, rates, spider
from lmc.paper.outcome import MeanOfRuns, Outcome
from lmc.paper.rates import Curve, Setting
from lmc.paper.setup import Scale

GRAPH = lmc.synthetic(nodes=240, features=6, classes=4)


def gcn(**options):
    torch.manual_seed(0)
    return lmc.GCN(6, 8, 4, layers=2, **options)


def exact(model):
    """The gradient of the mean loss by autograd, flat."""
    loss = torch.nn.functional.cross_entropy(model(GRAPH)[GRAPH.train_mask], GRAPH.y[GRAPH.train_mask])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def points_of(model, estimator, epochs=1, lr=0.5, per_batch=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    options = BatchOptions(12, per_batch, balance="none")
    return followed.followed(GRAPH, model, estimator, options, optimizer, epochs)


def test_points_are_of_the_parameters_that_the_step_has_seen(monkeypatch):
    monkeypatch.setattr(followed, "GAP", 1)
    model, by_hand = gcn(), gcn()
    for point in points_of(model, lmc.FullBatch(), epochs=3):
        gradient = exact(by_hand)
        assert point.norm == pytest.approx(float(gradient.norm()), rel=1e-4)
        assert point.error < 1e-5
        moved = torch.nn.utils.parameters_to_vector(by_hand.parameters()) - 0.5 * gradient
        torch.nn.utils.vector_to_parameters(moved, by_hand.parameters())
    assert point.visited == 2 * GRAPH.num_nodes


def test_errors_are_distances_from_the_gradient(monkeypatch):
    monkeypatch.setattr(followed, "GAP", 1)
    model = gcn()
    first = next(points_of(model, lmc.BackwardSGD()))
    estimator = lmc.BackwardSGD()
    estimator.bind(model, GRAPH)
    clusters = lmc.partition(GRAPH, 12)
    _, estimate = estimator.estimate(next(lmc.batches(GRAPH, clusters, 3)))
    found = torch.cat([estimate[p].flatten() for p in model.parameters()])
    assert first.visited == 0
    assert first.error == pytest.approx(float((found - exact(model)).norm()), rel=1e-4)


def test_every_few_steps_are_looked_at_and_statistics_left_alone():
    """Running statistics are those of the training alone."""
    model, alone = gcn(norm="batch"), gcn(norm="batch")
    points = list(points_of(model, lmc.GAS(), epochs=4))
    assert len(points) == 3  # of 16 steps: the first, the eighth and the fifteenth
    estimator, optimizer = lmc.GAS(), torch.optim.SGD(alone.parameters(), lr=0.5)
    estimator.bind(alone, GRAPH)
    for epoch in range(4):
        for batch in lmc.batches(GRAPH, lmc.partition(GRAPH, 12), 3, epoch=epoch):
            optimizer.zero_grad()
            estimator.backward(batch)
            optimizer.step()
    for name, value in alone.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_spider_is_exact_at_large_batches_and_off_by_less_between_them(monkeypatch):
    monkeypatch.setattr(followed, "GAP", 1)
    plain = list(islice(points_of(gcn(), lmc.BackwardSGD(), 5, lr=0.1), 10))
    spider = list(islice(points_of(gcn(), lmc.Spider(lmc.BackwardSGD(), 5, 12), 5, lr=0.1), 10))
    assert max(spider[0].error, spider[5].error) < 1e-5
    assert max(point.error for point in spider) < min(point.error for point in plain) / 2
    assert spider[1].visited == GRAPH.num_nodes


def powers(power, factor, rate):
    norms = [0.5**k for k in range(1, 8)]
    return {Setting(2, None, rate): Curve([factor * norm**-power for norm in norms], norms, norms)}


def test_the_power_is_that_of_the_fewest_nodes():
    """Of two trainings, one is better where norms are large, and one where they are small."""
    slow, fast = powers(6, 1.0, 0.3), powers(3, 8.0, 0.1)
    assert rates.slope(slow, 1.0) == pytest.approx(6, abs=0.4)
    assert rates.slope(fast, 1.0) == pytest.approx(3, abs=0.2)
    goals, nodes = rates.envelope(slow | fast, 1.0)
    assert nodes[0] == 2**6
    assert nodes[-1] == 8 * 2 ** (7 * 3)
    assert goals == sorted(goals, reverse=True)
    assert rates.slope({Setting(2, None, 0.3): Curve([0, 9], [1.0, 0.9], [1.0, 0.95])}, 1.0) is None


def test_a_norm_is_reached_by_the_mean_over_steps(monkeypatch):
    curve = rates._curve(GRAPH, lmc.FullBatch, Setting(40, None, 0.3), 30, range(1))
    assert curve.visited == [0, 7 * 240, 14 * 240, 21 * 240, 28 * 240]
    assert curve.reached[2] == pytest.approx(sum(curve.norms[:3]) / 3)
    assert curve.until(curve.reached[1]) == curve.visited[1]
    batches = Setting(2, 5, 0.1)
    one, other, both = (rates._curve(GRAPH, lmc.GAS, batches, 3, seeds) for seeds in ([0], [1], [0, 1]))
    assert both.norms[-1] == pytest.approx((one.norms[-1] + other.norms[-1]) / 2)
    assert one.norms[-1] != other.norms[-1]
    assert max(both.visited) < 3 * GRAPH.num_nodes


def run(vals, seconds):
    history = [SimpleNamespace(val=val, seconds=seconds) for val in vals]
    best = max(history, key=lambda record: record.val)
    return SimpleNamespace(history=history, seconds=seconds * len(vals), best=best)


def test_what_helps_by_epochs_may_not_help_by_seconds():
    found = {
        "LMC": [run([0.2, 0.5, 0.6], 1.0), run([0.2, 0.5, 0.61], 1.0)],
        "SPIDER over LMC": [run([0.4, 0.7, 0.8], 2.0), run([0.5, 0.7, 0.9], 2.0)],
    }
    soon = spider._in_the_time_of(found["LMC"], found["SPIDER over LMC"])
    assert soon == MeanOfRuns([40.0, 50.0])
    assert spider._in_the_time_of(found["LMC"], [run([0.9], 4.0)] * 2) is None
    spreads = {"LMC": 0.8, "SPIDER over LMC": 0.25}
    spread, by_epochs, by_seconds = spider._findings("here", "LMC", "SPIDER over LMC", spreads, found)
    assert spread == "here: the spread of SPIDER over LMC is 0.25, that of LMC 0.80."
    assert "SPIDER over LMC +24.50 (2 seeds, p = " in by_epochs
    assert by_epochs.endswith("in 2.0 times the seconds.")
    assert "SPIDER over LMC -15.50" in by_seconds
    assert by_seconds.endswith("it does not help.")


def test_the_page_says_what_was_measured(tmp_path):
    """One kind of model alone: `test_paper` has the whole page."""
    outcome, settings = Outcome({}, []), spider.SETTINGS | {"training": {"parts": 12, "parts_per_batch": 3}}
    spider._add_practice(outcome, "small", "plain", GRAPH, settings, Scale(epochs=2, runs=2))
    table = outcome.tables[0]
    assert [row[0] for row in table.rows] == ["LMC", "SPIDER over LMC", "TOP", "SPIDER over TOP"]
    spreads = [row[1] for row in table.rows]
    assert spreads[1] < spreads[0]
    assert spreads[3] < spreads[2]
    assert all(len(row[2].values) == 2 for row in table.rows)
