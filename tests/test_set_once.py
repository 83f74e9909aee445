"""Arrays of a graph are set once: others make another graph, and what is changed all the same is noticed."""

import copy

import numpy as np
import pytest
import torch

import lmc


def changed_before(graph, **changes):
    """The arrays of a graph, made with changes from the start."""
    arrays = {"x": graph.x, "y": graph.y, "train_mask": graph.train_mask} | changes
    return lmc.Graph(graph.to_pyg().edge_index, **arrays)


def test_a_graph_with_other_arrays_is_one_that_was_made_with_them():
    graph = lmc.synthetic(nodes=200, features=4, classes=3)
    torch.manual_seed(0)
    model = lmc.GCN(4, 8, 3, layers=2)
    lmc.FullBatch().bind(model, graph)  # A X is known now
    before = lmc.predict(graph, model)
    half = graph.replace(x=graph.x / 2)
    assert torch.equal(lmc.predict(half, model), lmc.predict(changed_before(graph, x=graph.x / 2), model))
    assert torch.equal(lmc.predict(graph, model), before)
    named = graph.replace(y=graph.y * 2, num_classes=7)
    assert (named.num_classes, named.y.tolist()) == (7, (graph.y * 2).tolist())
    unlabelled = lmc.Graph([[0], [1]], torch.ones(2, 1)).replace(x=torch.zeros(2, 3))
    assert (unlabelled.num_features, unlabelled.num_classes) == (3, 0)


def test_features_that_are_changed_in_place_are_others():
    graph = lmc.synthetic(nodes=200, features=4, classes=3)
    model = lmc.GCN(4, 8, 3, layers=2)
    lmc.FullBatch().bind(model, graph)
    graph.x[:] *= 2
    assert torch.equal(lmc.predict(graph, model), lmc.predict(changed_before(graph), model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda g: setattr(g, "x", g.x * 2),
            r"graph\.x: cannot be assigned; graph\.replace\(x=\.\.\.\) makes",
        ),
        (lambda g: setattr(g, "edge_type", None), r"graph\.edge_type: cannot be assigned; lmc\.Graph"),
        (
            lambda g: setattr(g, "edge_index", g.edge_index),
            r"graph\.edge_index: cannot be assigned; lmc\.Graph",
        ),
        (lambda g: setattr(g, "edge_weight", None), r"graph\.edge_weight: cannot be assigned; lmc\.Graph"),
        (
            lambda g: g.replace(edge_weight=None),
            r"feature_names; lmc\.Graph\(\.\.\.\) makes a graph with other edges",
        ),
        (lambda g: g.replace(x=g.x[:2]), r"x has shape \(2, 4\)"),
        (lambda g: g.replace(y=g.y[:5]), r"y has shape \(5,\)"),
        (lambda g: g.replace(train_mask=g.val_mask), "the node is in train_mask; masks must not overlap"),
        (lambda g: g.replace(mask=g.val_mask), r"replace\(mask=\.\.\.\): must be one of x, y, "),
    ],
)
def test_arrays_are_set_once_and_checked(change, message):
    graph = lmc.synthetic(nodes=20, features=4, classes=3)
    with pytest.raises(lmc.LMCError, match=message) as caught:
        change(graph)
    assert "\n" not in str(caught.value)


def made_of_weights():
    ends = [[0, 1, 1, 2], [1, 0, 2, 1]]
    return lmc.Graph(ends, torch.eye(3), [0, 1, 0], [True, True, False], edge_weight=torch.ones(4))


@pytest.mark.parametrize(
    ("array", "place", "value", "message"),
    [
        ("edge_weight", 0, 2.0, "graph.edge_weight: changed in place since the graph was made; lmc.Graph("),
        ("x", (1, 2), torch.nan, "x[1, 2] = nan"),
        ("y", 1, 7, "y[1] = 7: classes must be in 0..1"),
    ],
)
def test_what_is_changed_in_place_is_checked_before_it_is_used(array, place, value, message):
    graph = made_of_weights()
    model = lmc.GCN(3, 4, 2)
    lmc.predict(graph, model)
    other = graph.replace(num_classes=2)
    getattr(graph, array)[place] = value
    for each in (graph, other):
        for use in (lambda g: lmc.predict(g, model), lambda g: lmc.LMC().bind(model, g), lmc.normalize):
            with pytest.raises(lmc.GraphError) as caught:
                use(each)
            assert str(caught.value).startswith(message)


def test_a_label_that_is_taken_away_in_place_is_not_learned_from():
    graph = made_of_weights()
    graph.y[1] = -1
    lmc.FullBatch().bind(lmc.GCN(3, 4, 2), graph)
    assert graph.train_mask.tolist() == [True, False, False]


def test_copies_of_a_graph_whose_weights_were_made_in_place_are_graphs():
    weight = torch.ones(4)
    weight[1:3] = 2
    graph = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), edge_weight=weight)
    model = lmc.GCN(3, 4, 2)
    for copied in (copy.copy(graph), copy.deepcopy(graph)):
        assert torch.equal(lmc.predict(copied, model), lmc.predict(graph, model))


def test_a_graph_made_in_inference_mode_is_one_to_train_on():
    with torch.inference_mode():
        graph = lmc.Graph([[0, 1], [1, 0]], torch.eye(2), [0, 1], [True, True], edge_weight=torch.ones(2))
    estimator = lmc.LMC()
    estimator.bind(lmc.GCN(2, 4, 2), graph)
    assert estimator.backward(graph.batch([0])) > 0


def test_the_ends_of_edges_make_the_same_graph():
    graph = lmc.synthetic(nodes=30)
    assert torch.equal(lmc.Graph(graph.edge_index).adjacency.indices, graph.adjacency.indices)
    assert torch.equal(graph.edge_index, graph.to_pyg().edge_index)


def test_changes_of_an_array_that_was_given_change_no_graph():
    """What is made of features, sums of them for one, would not follow, and no rule would be checked."""
    rng = np.random.default_rng(0)
    x, y, ends = (
        rng.normal(size=(9, 2)).astype(np.float32),
        rng.integers(0, 3, 9),
        rng.integers(0, 9, (2, 30)),
    )
    graph = lmc.Graph(ends, x, y, edge_attr=(attributes := rng.normal(size=(30, 1)).astype(np.float32)))
    before = [each.clone() for each in (graph.x, graph.y, graph.edge_index, graph.edge_attr)]
    for array in (x, y, ends, attributes):
        array[:] = 7
    now = graph.x, graph.y, graph.edge_index, graph.edge_attr
    assert all(map(torch.equal, now, before))
    tensor = torch.ones(9, 2)
    assert lmc.Graph(ends * 0, tensor).x.data_ptr() == tensor.data_ptr()
