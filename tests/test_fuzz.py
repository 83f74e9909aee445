"""Whole journeys on strange graphs: each works, or is one line of an error of ours."""

import math
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from fuzzing import estimators, estimators_exact_on_everything, models, strange_graphs, trainings
from lmc.nn.model import LinearLayer

pytestmark = [
    pytest.mark.fuzz,
    # Strange graphs get advice.
    pytest.mark.filterwarnings(
        "ignore:parts=", "ignore:parts_per_batch=", "ignore:y. whole numbers", "ignore:y. targets"
    ),
]


def one_line(error):
    text = str(error)
    assert len(text.splitlines()) == 1, text
    assert len(text) < 500, text
    return text


@given(strange_graphs(), st.data())
def test_a_strange_graph_is_kept_cut_and_batched(strange, data):
    graph = strange.graph()
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "graph")
        again = lmc.load(Path(folder) / "graph")
        assert torch.equal(again.x, graph.x)
        assert torch.equal(again.adjacency.indices, graph.adjacency.indices)
    parts = data.draw(st.integers(1, 40))
    method = data.draw(st.sampled_from(["metis", "stream", "bfs", "random"]))
    for clusters in (strange.clusters, lmc.partition(graph, parts, method, cache=False)):
        count = len(torch.unique(clusters))
        per_batch = data.draw(st.integers(1, count))
        seen = torch.cat([batch.nodes for batch in lmc.batches(graph, clusters, per_batch)])
        assert sorted(seen.tolist()) == list(range(graph.num_nodes))


@given(strange_graphs(), trainings, st.data())
def test_a_strange_graph_is_trained_on(strange, options, data):
    graph = strange.graph()
    model = data.draw(models(graph))
    estimator = data.draw(estimators())
    per_batch = data.draw(st.integers(1, options["parts"]))
    try:
        result = lmc.fit(graph, model, estimator, parts_per_batch=per_batch, epochs=2, **options)
    except lmc.LMCError as error:
        text = one_line(error)
        allowed = ["is not finite", "the loss is", "needs sums of messages", "the graph has no edges to draw"]
        allowed += ["needs layers without anything to train", "scheduler: the graph has no validation nodes"]
        assert any(reason in text for reason in allowed), text
        return
    assert all(math.isfinite(record.loss) for record in result.history)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = lmc.predict(graph, result.model)
    assert predicted.shape == (graph.num_nodes, graph.num_classes)
    messages = strange.arrays.get("edge_weight", np.ones(1))
    tame = float(graph.x.abs().max()) < 1e10 and not ((messages > 0) & (messages < 1e-10)).any()
    if options["lr"] <= 1e-2 and tame:  # else rows of no label may overflow
        assert bool(predicted.isfinite().all())


@given(strange_graphs(max_nodes=12), st.data())
def test_one_batch_of_everything_has_the_gradient(strange, data):
    strange.arrays["x"] = strange.arrays["x"].astype("float64")
    if abs(strange.arrays["x"]).max() > 1e7:
        return
    graph = strange.graph()
    model = data.draw(models(graph)).double()
    estimator = data.draw(estimators_exact_on_everything())
    found = []
    for each in (estimator, lmc.FullBatch()):
        adds_up = all(isinstance(layer, LinearLayer) for layer in model.layers)
        if isinstance(each, (lmc.VRGCN, lmc.TOP)) and not adds_up:
            with pytest.raises(lmc.ArgumentError, match="needs sums of messages"):
                each.bind(model, graph)
            return
        if isinstance(each, lmc.Precomputed) and not isinstance(model, lmc.SIGN):
            with pytest.raises(lmc.ArgumentError, match="needs layers without anything to train"):
                each.bind(model, graph)
            return
        each.bind(model, graph)
        found.append(each.estimate(graph.batch(range(graph.num_nodes))))
    (loss, gradients), (full_loss, full) = found
    assert loss == pytest.approx(full_loss, rel=1e-9)
    for parameter, gradient in full.items():
        torch.testing.assert_close(gradients[parameter], gradient, rtol=1e-7, atol=1e-9)


WRONG = {
    "a feature is not finite": lambda a: a["x"].__setitem__((0, 0), math.nan),
    "a feature is infinite": lambda a: a["x"].__setitem__((0, 0), math.inf),
    "a node that is not there": lambda a: a.update(edge_index=[[0], [len(a["x"])]]),
    "a negative node": lambda a: a.update(edge_index=[[-1], [0]]),
    "a mask is too short": lambda a: a.update(train_mask=a["train_mask"][:-1]),
    "masks overlap": lambda a: a.update(val_mask=a["val_mask"] | True),
    "labels of text": lambda a: a.update(y=["a"] * len(a["x"])),
    "a label beyond all": lambda a: a.update(y=[10**12] * len(a["x"])),
    "three axes": lambda a: a.update(x=a["x"][None]),
    "no nodes": lambda a: a.update(x=a["x"][:0], y=a["y"][:0]),
    "weights for other edges": lambda a: a.update(edge_weight=[1.0] * (1 + len(a["edge_index"][0]))),
    "objects": lambda a: a.update(x=[[object()]]),
}


@pytest.mark.parametrize("wrong", WRONG)
@given(strange_graphs(max_nodes=6))
def test_a_wrong_graph_is_an_error(wrong, strange):
    WRONG[wrong](strange.arrays)
    if wrong == "masks overlap" and not (strange.arrays["train_mask"] | strange.arrays["test_mask"]).any():
        return
    with pytest.raises(lmc.LMCError) as raised:
        strange.graph()
    one_line(raised.value)
