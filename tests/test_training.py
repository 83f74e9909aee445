"""The loop, against what it promises."""

import math
import mmap
import sys
import time
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch_geometric
from numba.core import event

import lmc
from estimating import EVERY, graph_of
from lmc.runs.comparison import compare
from lmc.training.loop import prepare_training
from lmc.training.metrics import evaluate, micro_f1
from lmc.training.options import TrainingOptions


@pytest.fixture(scope="module")
def graph():
    return lmc.synthetic(nodes=600, seed=3)


def gcn(graph, **options):
    torch.manual_seed(0)
    return lmc.GCN(graph.num_features, 16, graph.num_classes, **options)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_fit_is_the_loop_by_hand(graph):
    model, by_hand = gcn(graph, dropout=0.3, norm="batch"), gcn(graph, dropout=0.3, norm="batch")
    result = lmc.fit(graph, model, lmc.LMC(), parts=6, parts_per_batch=4, epochs=3, lr=0.01, seed=5)

    estimator = lmc.LMC()
    estimator.bind(by_hand, graph, seed=5)
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01)
    clusters = lmc.partition(graph, 6, seed=5)
    for epoch in range(3):
        by_hand.train()
        total = 0.0
        for batch in lmc.batches(graph, clusters, 4, seed=5, epoch=epoch):
            optimizer.zero_grad()
            total += estimator.backward(batch) / batch.scale
            optimizer.step()
        assert result.history[epoch].loss == pytest.approx(total, rel=1e-12)
        by_hand.eval()
        with torch.no_grad():
            metrics = evaluate(graph, by_hand(graph))
        assert result.history[epoch].val == pytest.approx(metrics["val"], abs=0.01)


@pytest.mark.parametrize("name", [*EVERY, "FullBatch"])
def test_every_estimator_learns(graph, name):
    estimator = lmc.FullBatch() if name == "FullBatch" else EVERY[name]()
    model = gcn(graph)
    result = lmc.fit(graph, model, estimator, parts=6, parts_per_batch=3, epochs=15, lr=0.02)
    assert result.history[-1].loss < 0.8 * result.history[0].loss
    assert [record.epoch for record in result.history] == list(range(1, 16))


def test_best_weights_are_restored(graph):
    model = gcn(graph)
    result = lmc.fit(graph, model, lmc.GAS(), parts=6, parts_per_batch=2, epochs=12, lr=0.1)
    best = max(result.history, key=lambda record: record.val)
    assert result.best.epoch == best.epoch
    assert evaluate(graph, lmc.predict(graph, model))["val"] == best.val
    assert any(record.val < best.val for record in result.history[best.epoch :]) or best.epoch == 12


def test_patience_counts_evaluations_not_epochs(graph):
    result = lmc.fit(graph, gcn(graph), lmc.LMC(), 6, 3, epochs=50, lr=0.0, patience=2, evaluate_every=3)
    assert result.stopped == "early"
    assert [record.epoch for record in result.history if record.val is not None] == [3, 6, 9]
    assert len(result.history) == 9


def test_the_last_epoch_is_always_evaluated(graph):
    result = lmc.fit(graph, gcn(graph), lmc.FullBatch(), epochs=4, evaluate_every=3)
    assert [record.val is not None for record in result.history] == [False, False, True, True]


def test_full_batch_takes_one_step_an_epoch(graph):
    steps = []

    class Count(lmc.Callback):
        def on_step(self, training, loss):
            steps.append(training.epoch)

    lmc.fit(graph, gcn(graph), lmc.FullBatch(), parts=6, parts_per_batch=2, epochs=3, callbacks=[Count()])
    assert steps == [0, 1, 2]


def test_clipping_to_nothing_is_refused():
    with pytest.raises(lmc.ArgumentError, match="clip=0: must be above 0"):
        TrainingOptions(clip=0)


def test_clipping_bounds_the_step(graph):
    def moved(clip):
        model = gcn(graph)
        before = weights(model)
        lmc.fit(graph, model, lmc.FullBatch(), epochs=1, lr=1.0, optimizer="sgd", clip=clip)
        return math.sqrt(sum(float((model.state_dict()[n] - v).square().sum()) for n, v in before.items()))

    assert moved(1e-3) == pytest.approx(1e-3, rel=1e-3)
    assert moved(None) > 2e-3


def test_a_graph_without_validation_nodes_keeps_the_last_weights():
    graph = lmc.Graph([[0, 1], [1, 0]], torch.eye(2), [0, 1], [True, True])
    model = gcn(graph)
    result = lmc.fit(graph, model, lmc.FullBatch(), epochs=3)
    assert result.best.epoch == 3
    assert result.best.val is None


def test_patience_needs_validation_nodes():
    graph = lmc.Graph([[0, 1], [1, 0]], torch.eye(2), [0, 1], [True, True])
    with pytest.raises(lmc.ArgumentError, match="patience=3: the graph has no validation nodes"):
        lmc.fit(graph, gcn(graph), lmc.FullBatch(), epochs=3, patience=3)


def test_gradient_error_is_recorded(graph):
    result = lmc.fit(graph, gcn(graph), lmc.GAS(), 6, 3, epochs=4, gradient_error_every=2)
    recorded = [record.gradient_error for record in result.history]
    assert [error is not None for error in recorded] == [False, True, False, True]
    assert recorded[1]["total"] > 0


def test_background_building_changes_nothing(graph):
    models = [gcn(graph, dropout=0.5), gcn(graph, dropout=0.5)]
    for model, background in zip(models, (True, False), strict=True):
        lmc.fit(graph, model, lmc.LMC(), 6, 2, epochs=3, background=background)
    assert same(*map(weights, models))


def test_callbacks_can_stop(graph):
    class Stop(lmc.Callback):
        def on_step(self, training, loss):
            if training.epoch == 1:
                training.stop("enough")

    result = lmc.fit(graph, gcn(graph), lmc.LMC(), 6, 2, epochs=9, callbacks=[Stop()])
    assert result.stopped == "enough"
    assert len(result.history) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 4, "parts_per_batch": 5}, "parts_per_batch=5: must be at most parts=4"),
        ({"batch_share": 0}, "batch_share=0: must be above 0 and at most 1"),
        ({"batch_share": "half"}, "batch_share='half': must be a number"),
        ({"batch_share": 0.5, "parts_per_batch": 2}, "batch_share=0.5: parts_per_batch=2 also says"),
        ({"parts": 4, "epochs": -1}, "epochs=-1: must be 1 or more"),
        ({"parts": 4, "lr": float("nan")}, "lr=nan: must be a number"),
        ({"parts": 4, "lr": -1.0}, "lr=-1.0: must be 0 or more"),
        ({"parts": 4, "optimizer": "adan"}, "did you mean 'adam'"),
        ({"parts": 4, "scheduler": "cosin"}, "did you mean 'cosine'"),
        ({"parts": 4, "patience": 0}, "patience=0: must be 1 or more"),
    ],
)
def test_impossible_options_are_named(graph, options, message):
    with pytest.raises(lmc.ArgumentError, match=message):
        lmc.fit(graph, gcn(graph), lmc.LMC(), **options)


def test_a_loss_that_is_no_number_stops_the_run(graph):
    with pytest.raises(lmc.RunError, match=r"epoch \d+, step \d+: .*learning rate.*lr=1e\+30"):
        lmc.fit(graph, gcn(graph), lmc.LMC(), 6, 3, epochs=9, lr=1e30)
    huge = lmc.Graph([[0, 1], [1, 0]], torch.full((2, 2), 1e38), [0, 1], [True, True])
    with pytest.raises(lmc.RunError, match="features are as large as"):
        lmc.fit(huge, gcn(huge), lmc.FullBatch(), epochs=9, lr=1e30)


def test_multilabel_and_regression_have_their_own_metrics():
    torch.manual_seed(0)
    edges, x = torch.randint(40, (2, 160)), torch.randn(40, 5)
    mask = torch.arange(40) < 20
    labels = (torch.rand(40, 3) > 0.5).float()
    multi = lmc.Graph(edges, x, labels, mask, ~mask, task="multilabel")
    result = lmc.fit(multi, gcn(multi), lmc.GAS(), parts=4, parts_per_batch=2, epochs=3)
    assert result.metric.name == "micro-F1"
    real = lmc.Graph(edges, x, torch.randn(40), mask, ~mask)
    result = lmc.fit(real, gcn(real), lmc.GAS(), parts=4, parts_per_batch=2, epochs=6, lr=0.05)
    assert result.metric.name == "RMSE"
    assert result.best.val == min(record.val for record in result.history)


def test_micro_f1_against_counting():
    torch.manual_seed(1)
    logits, y = torch.randn(30, 4), (torch.rand(30, 4) > 0.5).float()
    pairs = [(bool(p > 0), bool(t > 0)) for p, t in zip(logits.flatten(), y.flatten(), strict=True)]
    hits = sum(p and t for p, t in pairs)
    precision, recall = hits / sum(p for p, _ in pairs), hits / sum(t for _, t in pairs)
    assert micro_f1(logits, y) == pytest.approx(2 * precision * recall / (precision + recall))


def test_the_compilation_of_kernels_is_no_part_of_the_seconds(graph, monkeypatch):
    """By a clock that stands, but for a second of work in a step and compilations, one within another."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    a_loop = {"dispatcher": SimpleNamespace(py_func=graph_of)}
    backward = lmc.GAS.backward

    def slow(self, batch):
        nonlocal now
        now += 0.25
        with event.trigger_event("numba:compile", a_loop):
            now += 100
            with event.trigger_event("numba:compile", a_loop):
                now += 1000
        now += 0.75
        return backward(self, batch)

    monkeypatch.setattr(lmc.GAS, "backward", slow)
    result = lmc.fit(graph, gcn(graph), lmc.GAS(), parts=6, parts_per_batch=2, epochs=2)
    assert [record.seconds for record in result.history] == pytest.approx([3, 3])
    assert now == 2 * 3 * 1101


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere, a peak cannot begin anew")
@pytest.mark.parametrize("epochs", [1, 3])
def test_the_memory_of_a_step_is_without_what_a_process_takes_once(graph, monkeypatch, epochs):
    once, always, kept = 200_000_000, 20_000_000, []
    backward = lmc.GAS.backward

    def taking(estimator, batch):
        if not kept:
            torch.ones(once, dtype=torch.uint8)
            kept.append(torch.ones(once, dtype=torch.uint8))
        with mmap.mmap(-1, always) as fresh:  # not what malloc of a process with a long past has left
            fresh.write(b"1" * always)
        return backward(estimator, batch)

    monkeypatch.setattr(lmc.GAS, "backward", taking)
    options = {"parts": 6, "parts_per_batch": 3, "seed": 0}
    result = lmc.fit(graph, gcn(graph), lmc.GAS(), epochs=epochs, **options)
    alone, *later = [record.step_memory for record in result.history]
    assert alone > once
    assert len({*later}) == min(1, epochs - 1)
    assert all(always / 2 < memory < once for memory in later)
    row = compare({"gas": result})[1][0]
    assert row.step_memory == (later or [alone])[-1]
    assert row.memory > once


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere, a peak cannot begin anew")
def test_one_epoch_more_has_the_memory_of_a_step_that_was_measured_before(graph, tmp_path):
    options = {"parts": 6, "parts_per_batch": 3, "seed": 0, "out": tmp_path / "run"}
    before = lmc.fit(graph, gcn(graph), lmc.GAS(), epochs=3, **options)
    after = lmc.fit(graph, gcn(graph), lmc.GAS(), epochs=4, resume=True, **options)
    assert after.history[3].step_memory == before.history[2].step_memory


def test_the_clock_of_a_run_goes_on_where_another_process_goes_on(graph):
    def prepared():
        return prepare_training(graph, gcn(graph), lmc.FullBatch(), lmc.TrainingOptions(epochs=1))

    state = prepared().state() | {"wall_seconds": 1000.0}
    resumed = prepared()
    resumed.load_state(state)
    assert 1000 < resumed.run().wall_seconds < 2000
    of_an_older_version = prepared()
    of_an_older_version.load_state({key: value for key, value in state.items() if key != "wall_seconds"})
    assert of_an_older_version.wall_seconds < 1000
    with pytest.raises(ValueError, match="wall_seconds='long': must be a number"):
        prepared().load_state(state | {"wall_seconds": "long"})


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("name", "reads"), [("sage", False), ("gcn", True), ("gat", False), ("gin", False)])
def test_weights_that_no_layer_reads_are_said(name, reads, recwarn):
    ends = lmc.synthetic(nodes=60, features=4, classes=3).to_pyg()
    weights = torch.rand(ends.edge_index.shape[1])
    graph = lmc.Graph(ends.edge_index, ends.x, ends.y, ends.train_mask, edge_weight=weights)
    lmc.fit(graph, lmc.build_model(name, graph, hidden=4), lmc.GAS(), parts=2, epochs=1)
    assert any("edge weights of the graph are not read" in str(each.message) for each in recwarn) != reads


@pytest.mark.parametrize(("edge_dim", "said"), [(None, ["edge features of the graph are not read"]), (1, [])])
def test_edge_features_that_no_layer_reads_are_said(edge_dim, said):
    ends = lmc.synthetic(nodes=60, features=4, classes=3).to_pyg()
    features = torch.rand(ends.edge_index.shape[1], 1)
    graph = lmc.Graph(ends.edge_index, ends.x, ends.y, ends.train_mask, edge_attr=features)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lmc.GAS().bind(lmc.from_pyg(torch_geometric.nn.GAT(4, 8, 2, 3, edge_dim=edge_dim)), graph)
    assert [str(each.message).partition(":")[0] for each in caught] == said
    assert all(each.filename == __file__ for each in caught)


def test_inference_mode_changes_nothing(graph):
    def trained():
        torch.manual_seed(0)
        model = gcn(graph)
        yield model
        lmc.fit(graph, model, lmc.LMC(), 6, 2, epochs=2)
        estimator = lmc.LMC()
        estimator.bind(model, graph)
        estimator.backward(graph.batch(range(9)))
        yield lmc.predict(graph, model), [parameter.grad for parameter in model.parameters()]

    outside = list(trained())[1]
    steps = trained()
    next(steps)
    with torch.inference_mode():
        within = next(steps)
    assert torch.equal(outside[0], within[0])
    assert all(map(torch.equal, outside[1], within[1]))
