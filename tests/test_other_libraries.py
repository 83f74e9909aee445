"""Graphs of NetworkX and DGL, and what is said of those that have too little."""

import warnings

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import lmc

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


@pytest.mark.parametrize("kind", [networkx.Graph, networkx.DiGraph, networkx.MultiDiGraph])
def test_networkx(kind):
    made = kind()
    made.add_node("eve", x=[1.0, 2.0], size=5, team="red")
    made.add_node("ann", x=[3.0, 4.0], size=6)
    made.add_node("bob", x=[5.0, 6.0], size=7, team="blue", train_mask=True)
    made.add_weighted_edges_from([("eve", "ann", 2.0), ("ann", "bob", 0.5), ("bob", "bob", 3.0)])
    made.add_edge("bob", "eve")
    graph = lmc.Graph.from_networkx(made, features=["x", "size"], label="team")
    wanted = networkx.to_numpy_array(made, nodelist=["eve", "ann", "bob"]).T  # [target, source]
    assert np.array_equal(graph.adjacency.to_dense().numpy(), wanted)
    assert graph.x.tolist() == [[1, 2, 5], [3, 4, 6], [5, 6, 7]]
    assert (graph.y.tolist(), graph.class_names) == ([1, -1, 0], ("blue", "red"))
    assert (graph.id.tolist(), graph.train_mask.tolist()) == (["eve", "ann", "bob"], [False, False, True])
    with pytest.raises(
        lmc.ArgumentError, match=r"^task='regression': wants numbers; .* text, are for classes"
    ):
        lmc.Graph.from_networkx(made, label="team", task="regression")


@pytest.mark.filterwarnings("ignore:graph. no node has")
def test_networkx_without_anything_and_with_too_little():
    path = networkx.path_graph(4)
    path.add_node(4)
    bare = lmc.Graph.from_networkx(path, features=None, label=None)
    assert bare.num_nodes == 5
    assert (bare.num_features, bare.num_classes, bare.id, bare.edge_weight) == (0, 0, None, None)
    real = networkx.path_graph(3)
    real.nodes[1]["y"] = 0.5
    assert lmc.Graph.from_networkx(real, features=()).y.nan_to_num(9).tolist() == [9, 0.5, 9]
    lacking = networkx.path_graph(2)
    lacking.nodes[0]["x"] = [1.0]
    for graph, message in (
        (lacking, "node 1 has no attribute 'x', and others have"),
        (_with("x", "red"), "the features of node 0 have type <U3: must be numbers"),
        (_with("y", [0.5, [1.0]]), "the labels are not numbers of one shape"),
        (networkx.Graph(), "has no nodes"),
        ({}, "dict is not a graph of NetworkX"),
    ):
        with pytest.raises(lmc.GraphError, match=message):
            lmc.Graph.from_networkx(graph)


def test_attributes_of_networkx_that_no_node_has_are_named():
    graph = networkx.path_graph(3)
    line = "graph: no node has 'x' or 'y', so there are no features and no labels; features= and label= may "
    assert warned_of(lambda: lmc.Graph.from_networkx(graph)) == [line + "name others, or be None"]
    for node in graph:
        graph.nodes[node].update(size=node, team="red", train_mask=True)
    line += "name others (of 'size', 'team'), or be None"
    assert warned_of(lambda: lmc.Graph.from_networkx(graph)) == [line]
    of_both = {"features": ["age", "height"], "label": "team"}
    others = "may name others (of 'size', 'team'), or be None"
    line = f"graph: no node has 'age' or 'height', so there are no features; features= {others}"
    assert warned_of(lambda: lmc.Graph.from_networkx(graph, **of_both)) == [line]
    line = f"graph: no node has 'y', so there are no labels; label= {others}"
    assert warned_of(lambda: lmc.Graph.from_networkx(graph, features="size")) == [line]
    assert warned_of(lambda: lmc.Graph.from_networkx(graph, features="size", label="team")) == []


def warned_of(call):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    assert all(each.filename == __file__ for each in said)
    return [str(each.message) for each in said]


def _with(attribute, value):
    graph = networkx.Graph()
    graph.add_node(0, **{attribute: value})
    return graph


class DGLGraph:
    """What a graph of DGL shows of itself, as far as it is read; DGL has no build for most machines."""

    is_homogeneous = True

    def __init__(self, ends, nodes, ndata, edata):
        self.ends, self.nodes, self.ndata, self.edata = ends, nodes, ndata, edata

    def edges(self):
        return self.ends[0], self.ends[1]

    def num_nodes(self):
        return self.nodes


def test_dgl():
    mask = torch.tensor([1, 0, 1, 0], dtype=torch.uint8)
    ndata = {
        "feat": torch.eye(4),
        "label": torch.tensor([0, 1, 1, 0]),
        "train_mask": mask,
        "_ID": torch.tensor([9, 8, 7, 6]),
    }
    weight = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    graph = lmc.Graph.from_dgl(DGLGraph(EDGES, 4, ndata, {"weight": weight}))
    wanted = lmc.Graph(EDGES, torch.eye(4), ndata["label"], mask.bool(), edge_weight=weight[:, 0])
    assert graph.adjacency.equal(wanted.adjacency)
    assert (graph.y.tolist(), graph.train_mask.tolist()) == (wanted.y.tolist(), wanted.train_mask.tolist())
    assert graph.id.tolist() == [9, 8, 7, 6]
    homogeneous = DGLGraph(EDGES, 4, ndata, {"_TYPE": torch.tensor([2, 0, 1, 1])})
    types = lmc.Graph(EDGES, edge_type=[2, 0, 1, 1]).edge_type
    assert torch.equal(lmc.Graph.from_dgl(homogeneous).edge_type, types)
    assert lmc.Graph.from_dgl(DGLGraph(EDGES, 4, {"feat": torch.eye(4)}, {})).num_classes == 0
    unread = DGLGraph(EDGES, 4, {"h": torch.eye(4), "label": ndata["label"]}, {})
    line = "graph: ndata has none of feat, feature, x, so there are no features; 'h' is not read; "
    line += "graph.ndata['feat'] = ... gives some"
    assert warned_of(lambda: lmc.Graph.from_dgl(unread)) == [line]
    several = DGLGraph(EDGES, 4, {}, {})
    several.is_homogeneous = False
    with pytest.raises(lmc.GraphError, match="nodes or edges of several types"):
        lmc.Graph.from_dgl(several)
    with pytest.raises(lmc.GraphError, match="Data is not a graph of DGL"):
        lmc.Graph.from_dgl(Data())


def test_dgl_without_features_and_labels_says_how_to_give_some():
    graphs = []
    bare = DGLGraph(EDGES, 9, {}, {})
    features, labels = warned_of(lambda: graphs.append(lmc.Graph.from_dgl(bare)))
    assert graphs[0].num_nodes == 9
    assert features.endswith("so there are no features; graph.ndata['feat'] = ... gives some")
    assert labels.endswith("so there are no labels; graph.ndata['label'] = ... gives some")


def test_a_weight_that_no_edge_has_is_named():
    costs = networkx.Graph()
    costs.add_edge(0, 1, cost=5.0)
    with pytest.warns(
        UserWarning, match="no edge has 'cots', so there are no weights; weight= may name others"
    ):
        graph = lmc.Graph.from_networkx(costs, features=None, label=None, weight="cots")
    assert graph.edge_weight is None
    graph = lmc.Graph.from_networkx(costs, features=None, label=None, weight="cost")
    assert graph.edge_weight.tolist() == [5, 5]
