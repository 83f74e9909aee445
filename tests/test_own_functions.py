"""Losses, metrics and callbacks of one's own: what is wrong with them is said in one line."""

import re

import pytest
import torch
from torch_geometric.nn import GraphConv

import lmc


@pytest.fixture(scope="module")
def graph():
    return lmc.synthetic(nodes=600, seed=3)


def gcn(graph):
    torch.manual_seed(0)
    return lmc.GCN(graph.num_features, 16, graph.num_classes)


class Misnamed(lmc.Callback):
    def on_epoch_ends(self, training, record):
        raise AssertionError("nobody calls it")


def test_a_misnamed_hook_is_named_with_the_nearest(graph):
    line = "Misnamed.on_epoch_ends is never called; did you mean on_epoch?"
    with pytest.warns(UserWarning, match=re.escape(line)) as caught:
        lmc.fit(graph, gcn(graph), lmc.LMC(), 6, 2, epochs=1, callbacks=[Misnamed()])
    assert caught[0].filename == __file__


def raising(prediction, y):
    raise KeyError("hm")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (raising, r"loss=raising: raised KeyError: 'hm' \(.*test_own_functions.py:\d+, in raising\)"),
        (lambda prediction, y: None, "loss=<lambda>: gives None; must be one number per row, in a tensor"),
        (
            lambda prediction, y: prediction,
            r"gives shape \(\d+, \d+\) for predictions \(\d.*as of lambda p, y: loss\(p, y\).mean\(1\)",
        ),
        (lambda prediction, y: prediction.detach().sum(1), "loss=<lambda>: what it gives has no derivative"),
    ],
)
@pytest.mark.parametrize("method", [lmc.LMC, lmc.NeighborSampling])
def test_a_loss_that_is_none_is_named(graph, method, loss, message):
    with pytest.raises(lmc.ArgumentError, match=message):
        lmc.fit(graph, gcn(graph), method(), 6, 2, epochs=1, loss=loss)


def test_a_metric_that_raises_is_named(graph):
    with pytest.raises(lmc.ArgumentError, match=r"metrics\['own'\]: raised KeyError: 'hm'"):
        lmc.fit(graph, gcn(graph), lmc.LMC(), 6, 2, epochs=1, metrics={"own": raising})


@pytest.fixture(scope="module")
def measured():
    graph = lmc.synthetic(nodes=600, seed=3)
    return graph.replace(y=graph.x[:, 0].clone())


RIGHT = [
    lambda prediction, y: (prediction[:, 0] - y).abs(),
    lambda prediction, y: (prediction.squeeze(-1) - y).abs(),
    lambda prediction, y: (prediction - y.view_as(prediction)).abs().mean(-1),
]


def each_against_all(prediction, y):
    return (prediction - y).abs().mean(-1)


@pytest.mark.parametrize("loss", RIGHT)
def test_predictions_are_a_column_and_labels_a_row(measured, loss):
    metrics = {
        "own": lambda prediction, y: loss(prediction, y).mean(),
        "mae": lambda p, y: (p[:, 0] - y).abs().mean(),
    }
    result = lmc.fit(measured, gcn(measured), lmc.LMC(), 6, 2, epochs=2, loss=loss, metrics=metrics)
    assert result.history[-1].metrics["own"] == result.history[-1].metrics["mae"]


@pytest.mark.filterwarnings("default")
def test_torchs_losses_are_silent_where_they_are_right(measured, recwarn):
    def huber(prediction, y):
        return torch.nn.functional.huber_loss(prediction[:, 0], y, reduction="none")

    metrics = {"huber": lambda prediction, y: huber(prediction, y).mean()}
    lmc.fit(measured, gcn(measured), lmc.LMC(), 6, 2, epochs=1, loss=huber, metrics=metrics)
    assert not [str(warning.message) for warning in recwarn if "target size" in str(warning.message)]


def test_what_sets_each_prediction_against_all_labels_is_named(measured):
    shapes = r"sets every prediction against every label, of predictions \(\d+, 1\) and labels \(\d+,\)"
    with pytest.raises(lmc.ArgumentError, match=rf"loss=each_against_all: {shapes}"):
        lmc.fit(measured, gcn(measured), lmc.LMC(), 6, 2, epochs=1, loss=each_against_all)
    wrong = {"own": lambda prediction, y: (prediction - y).abs().mean()}
    with pytest.raises(lmc.ArgumentError, match=rf"metrics\['own'\]: {shapes}"):
        lmc.fit(measured, gcn(measured), lmc.LMC(), 6, 2, epochs=1, metrics=wrong)
    all_rows = (
        r"gives shape \((\d+), \1\) for predictions \(\1, 1\) and labels \(\1,\); "
        r"must be one number per row, as of lambda p, y: loss\(p\[:, 0\], y\)"
    )
    with pytest.raises(lmc.ArgumentError, match=all_rows):
        lmc.fit(measured, gcn(measured), lmc.LMC(), 6, 2, epochs=1, loss=lambda p, y: (p - y).abs())


def test_a_head_that_drops_the_column_is_named(measured):
    head = torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    model = lmc.GNN([GraphConv(measured.num_features, 8)], head=head)
    with pytest.raises(
        lmc.ArgumentError, match=r"^model: gives shape \(1,\) for a node; must be \(nodes, out\)"
    ):
        lmc.fit(measured, model, lmc.LMC(), 6, 2, epochs=1)
