"""Optimizers, their groups of parameters, and schedulers."""

import functools
import math

import pytest
import torch

import lmc
from estimating import graph_of
from lmc.training.optimizers import parameter_groups
from test_training import gcn, graph, weights

__all__ = ["graph"]


def test_an_optimizer_that_is_made_already_is_refused(graph):
    model = lmc.GCN(graph.num_features, 8, graph.num_classes)
    made = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(lmc.ArgumentError, match="give its class"):
        lmc.fit(graph, model, lmc.LMC(), epochs=1, optimizer=made)


def test_layers_and_head_have_a_weight_decay_each(graph):
    model = lmc.GCNII(graph.num_features, 8, graph.num_classes, layers=3)
    groups = parameter_groups(model, 0.1, 0.2)
    assert {id(p) for p in groups[0]["params"]} == {id(p) for p in model.layers.parameters()}
    assert {id(p) for p in groups[1]["params"]} == {
        id(p) for part in (model.encoder, model.head) for p in part.parameters()
    }
    assert [group["weight_decay"] for group in groups] == [0.1, 0.2]
    plain = lmc.GCN(graph.num_features, 8, graph.num_classes, layers=3)
    last = parameter_groups(plain, 0.1, 0.2)[1]["params"]
    assert {id(p) for p in last} == {id(p) for p in plain.layers[-1].parameters()}


def test_an_optimizer_has_the_weight_decay_that_it_was_given(graph):
    made = []

    def decayed(groups, lr):
        made.append(torch.optim.AdamW(groups, lr=lr, weight_decay=0.3))
        return made[-1]

    def decays(**options):
        model = lmc.GCNII(graph.num_features, 8, graph.num_classes, layers=2)
        lmc.fit(graph, model, lmc.FullBatch(), epochs=1, optimizer=decayed, **options)
        return [group["weight_decay"] for group in made[-1].param_groups]

    assert decays() == [0.3, 0.3]
    assert decays(weight_decay=0.0) == [0.0, 0.3]
    assert decays(weight_decay=0.1, head_weight_decay=0.2) == [0.1, 0.2]


@pytest.mark.parametrize(("task", "right"), [("multiclass", "max"), ("regression", "min")])
def test_a_plateau_of_ones_own_follows_the_metric(task, right):
    graph = lmc.synthetic(nodes=200)
    graph = graph if task == "multiclass" else graph.replace(y=graph.x[:, 0].clone())

    def trained(mode):
        plateau = functools.partial(torch.optim.lr_scheduler.ReduceLROnPlateau, mode=mode)
        model = lmc.GCN(graph.num_features, 8, graph.num_classes)
        return lmc.fit(graph, model, lmc.FullBatch(), epochs=1, scheduler=plateau)

    assert len(trained(right).history) == 1
    wrong = {"max": "min", "min": "max"}[right]
    with pytest.raises(lmc.ArgumentError, match=rf"has mode='{wrong}'; .* is better: mode='{right}'"):
        trained(wrong)


@pytest.mark.parametrize("kind", ["plateau", torch.optim.lr_scheduler.ReduceLROnPlateau])
def test_a_plateau_wants_validation_nodes(kind):
    graph = lmc.synthetic(nodes=200)
    graph = graph.replace(val_mask=torch.zeros(200, dtype=torch.bool))
    scheduler = kind if kind == "plateau" else functools.partial(kind, mode="max")
    model = lmc.GCN(graph.num_features, 8, graph.num_classes)
    with pytest.raises(lmc.ArgumentError, match="scheduler: the graph has no validation nodes"):
        lmc.fit(graph, model, lmc.FullBatch(), epochs=1, scheduler=scheduler)


def test_weight_decay_shrinks_only_its_group():
    graph = lmc.synthetic(nodes=200)
    model = lmc.GCNII(graph.num_features, 8, graph.num_classes, layers=2)
    before = weights(model)
    lmc.fit(
        graph,
        model,
        lmc.FullBatch(),
        epochs=1,
        lr=1e-3,
        optimizer="sgd",
        weight_decay=500.0,
        evaluate_every=9,
    )
    after = model.state_dict()
    assert after["layers.0.linear.weight"].norm() < 0.6 * before["layers.0.linear.weight"].norm()
    assert after["head.parts.1.weight"].norm() > 0.9 * before["head.parts.1.weight"].norm()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", torch.optim.RMSprop])
def test_any_optimizer_trains(graph, optimizer):
    result = lmc.fit(graph, gcn(graph), lmc.LMC(), 6, 3, epochs=2, lr=0.01, optimizer=optimizer)
    assert math.isfinite(result.history[-1].loss)


def test_schedulers_set_the_rate_of_every_epoch(graph):
    rates = [
        [
            record.lr
            for record in lmc.fit(graph, gcn(graph), lmc.FullBatch(), epochs=4, lr=0.1, scheduler=s).history
        ]
        for s in ("cosine", lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5))
    ]
    assert rates[0] == pytest.approx([0.1 * (1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)])
    assert rates[1] == pytest.approx([0.1, 0.05, 0.025, 0.0125])


@pytest.mark.parametrize("task", ["multiclass", "regression"])
@pytest.mark.parametrize("progress", [True, False])
def test_the_plateau_scheduler_halves_the_rate_where_the_metric_gets_no_better(task, progress, monkeypatch):
    graph = graph_of("undirected", task=task, classes=3, features=64, dtype=torch.float32)
    rises = progress == (task == "multiclass")  # accuracy is better when it rises, an error when it falls
    values = iter(range(1, 14) if rises else range(13, 0, -1))
    monkeypatch.setattr("lmc.training.loop.evaluate", lambda *given: {"val": float(next(values))})
    result = lmc.fit(graph, lmc.GCN(64, 4, 3), lmc.FullBatch(), epochs=13, lr=0.1, scheduler="plateau")
    rates = [record.lr for record in result.history]
    assert rates[:12] == [0.1] * 12  # the first value, and ten without progress
    assert rates[12] == (0.1 if progress else 0.05)
