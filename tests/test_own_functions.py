"""Losses, metrics and callbacks of one's own: what is wrong with them is said in one line."""

import re

import pytest
import torch

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
        (lambda prediction, y: prediction, r"loss=<lambda>: gives shape \(\d+, \d+\) for \d+ rows; must be"),
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
