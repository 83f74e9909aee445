"""Arrays of a graph that are changed all the same."""

import copy

import pytest
import torch

import lmc


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
