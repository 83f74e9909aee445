"""Graphs without labels, original ids, and predictions of some nodes."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric import nn as pyg_nn
from torch_geometric.data import Data
from torch_geometric.transforms import RandomNodeSplit

import lmc
from commands import called, fails
from estimating import EVERY, KINDS, MODELS, graph_of
from lmc.data.ids import nodes_with
from lmc.data.subgraph import subgraph
from lmc.runs.predictions import nodes_in_file, write_predictions
from strategies import graphs

EDGES = [[0, 1, 1, 2], [1, 0, 2, 1]]


def bare(**changed):
    return lmc.Graph(EDGES, torch.eye(4), **changed)


def test_nothing_is_known_of_labels_that_are_not_there(tmp_path):
    """The same through every door that a graph can go through."""
    graph = bare(id=["d", "c", "b", "a"])
    graph.save(tmp_path / "g")
    arrays = {
        "indptr": graph.adjacency.indptr,
        "indices": graph.adjacency.indices,
        "x": graph.x,
        "id": graph.id,
    }
    np.savez(tmp_path / "g.npz", **arrays)
    ways = [graph, lmc.load(tmp_path / "g"), lmc.load(tmp_path / "g.npz"), lmc.Graph.from_pyg(graph.to_pyg())]
    for again in ways:
        assert (again.num_classes, again.y.tolist(), again.id.tolist()) == (0, [-1] * 4, ["d", "c", "b", "a"])
        assert not any(bool(mask.any()) for mask in (again.train_mask, again.val_mask, again.test_mask))
        assert repr(again) == "Graph(4 nodes, 4 edges, 4 features, no labels, undirected)"
    assert graph.to_pyg().y is None


def test_edges_alone_are_a_graph():
    assert repr(lmc.Graph(EDGES)) == "Graph(3 nodes, 4 edges, 0 features, no labels, undirected)"
    assert lmc.Graph.from_csr([0, 1, 2, 2], [1, 0]).num_nodes == 3
    assert lmc.Graph.from_pyg(Data(edge_index=torch.tensor(EDGES), num_nodes=7)).num_nodes == 7
    with pytest.raises(lmc.ArgumentError, match="task='regression': y is None"):
        lmc.Graph(EDGES, task="regression")


@pytest.mark.parametrize(
    "changed", [{"y": [0, 1, 0, 1]}, {"y": [-1, 1, 0, 0], "train_mask": [True] + [False] * 3}]
)
def test_training_needs_a_labelled_node(changed, tmp_path):
    graph, model = bare(**changed), lmc.GCN(4, 2, 2)
    rule = "train_mask has no labelled node among 4: training needs one or more"
    with pytest.raises(lmc.GraphError, match=rule):
        lmc.LMC().bind(model, graph)
    with pytest.raises(lmc.GraphError, match=rule):
        lmc.fit(graph, model, lmc.FullBatch(), epochs=1)
    graph.save(tmp_path / "g")
    line = fails(2, "train", "--data", tmp_path / "g", "--out", tmp_path / "r", through=called)
    assert line.startswith(
        f"lmc: {tmp_path / 'g'}: {rule}; where y has labels, lmc.Graph.from_pyg(RandomNodeSplit("
    )
    assert called("inspect", tmp_path / "g").returncode == 0


@pytest.mark.parametrize("changed", [{}, {"y": [-1] * 4}, {"y": [-1] * 4, "train_mask": [True] * 4}])
def test_training_needs_labels_and_says_that_there_are_none(changed, tmp_path):
    graph = bare(**changed)
    rule = (
        "the graph has no labels: y has none for 4 nodes, and training needs some; predicting works without"
    )
    with pytest.raises(lmc.GraphError, match=rule):
        lmc.fit(graph, lmc.GCN(4, 2, 2), lmc.FullBatch(), epochs=1)
    graph.save(tmp_path / "g")
    line = fails(2, "train", "--data", tmp_path / "g", "--out", tmp_path / "r", through=called)
    assert line == f"lmc: {tmp_path / 'g'}: {rule}"
    assert called("inspect", tmp_path / "g").returncode == 0


def test_the_split_that_the_error_tells_how_to_make():
    whole = lmc.synthetic(nodes=200).to_pyg()
    graph = lmc.Graph(whole.edge_index, whole.x, whole.y)
    with pytest.raises(lmc.GraphError) as error:
        lmc.fit(graph, lmc.GCN(graph.num_features, 4, graph.num_classes), lmc.GAS(), parts=4, epochs=1)
    call = str(error.value).split("where y has labels, ")[1].split(" makes a split")[0]
    assert call == "lmc.Graph.from_pyg(RandomNodeSplit(num_val=0.2, num_test=0.2)(graph.to_pyg()))"
    split = lmc.Graph.from_pyg(RandomNodeSplit(num_val=0.2, num_test=0.2)(graph.to_pyg()))
    assert [int(mask.sum()) for mask in (split.train_mask, split.val_mask, split.test_mask)] == [120, 40, 40]


# -- original ids ------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9, unique=True), st.randoms())
def test_integers_find_their_nodes(ids, random):
    graph = lmc.Graph([[], []], id=ids)
    asked = random.choices(ids, k=5)
    assert nodes_with(graph, asked).tolist() == [ids.index(each) for each in asked]


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)


@given(st.lists(TEXT, min_size=1, max_size=9, unique=True), st.randoms())
def test_strings_find_their_nodes_and_keep_through_a_folder(tmp_path_factory, ids, random):
    graph = lmc.Graph([[], []], id=ids)
    asked = random.choices(ids, k=5)
    assert nodes_with(graph, asked).tolist() == [ids.index(each) for each in asked]
    folder = tmp_path_factory.mktemp("graphs") / "g"
    graph.save(folder)
    assert lmc.Graph.open(folder).id.tolist() == ids


@pytest.mark.parametrize(
    ("own", "asked", "message"),
    [
        (["a", "b"], ["a", "c"], "ids[1] = c: no node has this id"),
        (["a", "a"], ["a"], "ids[0] = a: several nodes have this id"),
        ([5, 7], ["7", "x"], "ids[1] = 'x': the ids of this graph are integers"),
        (None, [0, 2], "ids[1] = 2: no node has this id"),
    ],
)
def test_ids_that_are_of_no_node_or_of_several(own, asked, message):
    graph = lmc.Graph([[0], [1]], torch.ones(2, 1), id=own)
    with pytest.raises(lmc.GraphError) as caught:
        nodes_with(graph, asked)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0.5, 1.0], "id has type float64: ids must be integers or strings"),
        (["a", None], "id has type object: ids must be integers or strings"),
        (["a"], "id has shape (1,): must be (2,), one per node"),
        ([["a"], ["b"]], "id has shape (2, 1): must be (nodes,)"),
        (np.array([0xD800, 1], np.uint32).view("<U1"), "id: holds characters that do not exist"),
    ],
)
def test_ids_that_are_none(ids, message):
    with pytest.raises(lmc.GraphError) as caught:
        lmc.Graph([[0], [1]], torch.ones(2, 1), id=ids)
    assert str(caught.value) == message


# -- some nodes --------------------------------------------------------------------------------------


@given(graphs(), st.randoms())
def test_a_subgraph_is_a_part_of_the_matrix(example, random):
    graph = example.graph
    nodes = random.sample(range(graph.num_nodes), random.randint(1, graph.num_nodes))
    assert graph.neighbours is graph.neighbours  # what is kept of the whole is not of the part
    part = subgraph(graph, nodes)
    assert np.array_equal(part.adjacency.to_dense().double().numpy(), example.dense[np.ix_(nodes, nodes)])
    assert part.num_edges == example.count[np.ix_(nodes, nodes)].sum()
    assert np.array_equal(part.neighbours.to_dense().numpy(), example.neighbours[np.ix_(nodes, nodes)])
    for name in ("x", "y", "train_mask", "test_mask"):
        assert torch.equal(getattr(part, name), getattr(graph, name)[nodes])


def path_of(kind):
    """Long and thin, so that a few nodes hear of a small part only; with features of edges."""
    nodes, generator = 60, torch.Generator().manual_seed(0)
    ends = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    weight = 0.5 + torch.rand(nodes - 1, generator=generator, dtype=torch.float64)
    if kind.startswith("undirected"):
        ends, weight = torch.cat([ends, ends.flip(0)], 1), torch.cat([weight, weight])
    weight = weight if "weighted" in kind else None
    x = torch.randn(nodes, 5, generator=generator, dtype=torch.float64)
    attr = torch.randn(ends.shape[1], 2, generator=generator, dtype=torch.float64)
    return lmc.Graph(ends, x, edge_weight=weight, edge_attr=attr)


def attention():
    torch.manual_seed(0)
    return lmc.from_pyg(pyg_nn.GAT(5, 6, 2, 3, heads=2, edge_dim=2)).double()


@pytest.mark.parametrize("kind", ["undirected", "directed", "undirected weighted"])
@pytest.mark.parametrize("model", [*(make for make in MODELS.values()), attention])
def test_some_nodes_are_predicted_as_among_all(kind, model, monkeypatch):
    """In any order, also twice; and no more than what reaches them is computed."""
    graph = path_of(kind)
    model = model(2) if model is not attention else model()
    whole = lmc.predict(graph, model)
    seen = []
    widths = type(model).widths
    monkeypatch.setattr(
        type(model), "widths", lambda self, graph: seen.append(graph.num_nodes) or widths(self, graph)
    )
    nodes = [31, 2, 31, 30]
    some = lmc.predict(graph, model, nodes=nodes)
    assert torch.allclose(some, whole[nodes], rtol=0, atol=1e-13)
    assert seen[0] < 20
    assert torch.allclose(lmc.predict(graph, model, nodes=range(60)), whole, rtol=0, atol=1e-13)
    assert seen[1] == 60


@pytest.mark.parametrize("kind", KINDS)
def test_some_nodes_of_a_dense_graph(kind):
    graph, model = graph_of(kind), MODELS["gcnii"](3)
    assert torch.allclose(lmc.predict(graph, model, nodes=[7]), lmc.predict(graph, model)[[7]], atol=1e-13)


def test_some_nodes_where_weights_are_negative():
    """The row of a node far away, cut off, would sum to less than nothing."""
    nodes = 40
    ends = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    ends = torch.cat([ends, torch.tensor([[32], [30]])], 1)
    weight = torch.ones(ends.shape[1])
    weight[29], weight[-1] = 3.0, -2.0  # what node 30 receives from 29, and from 32
    graph = lmc.Graph(ends, torch.eye(nodes), edge_weight=weight)
    model = lmc.GCN(nodes, 4, 2, layers=1)
    assert torch.allclose(lmc.predict(graph, model, nodes=[32]), lmc.predict(graph, model)[[32]])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([4], r"nodes\[0\] = 4: node ids must be in 0\.\.3"),
        ([], r"nodes has shape \(0,\)"),
        ([0.5], "must be integers"),
    ],
)
def test_nodes_that_are_none(nodes, message):
    with pytest.raises(lmc.GraphError, match=message):
        lmc.predict(bare(), lmc.GCN(4, 2, 2), nodes=nodes)


# -- files -------------------------------------------------------------------------------------------


def test_a_table_of_some_nodes_with_their_ids(tmp_path):
    names = ["a,b", 'say "no"', "plain", "two\nlines"]
    graph = bare(id=names, y=[0, 1, 1, 0], train_mask=[True, False, False, False], class_names=["x", "y, z"])
    prediction, nodes = torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 1.0]]), [3, 0, 1]
    for suffix in (".csv", ".parquet", ".npz"):
        write_predictions(tmp_path / f"p{suffix}", graph, prediction, nodes=nodes)
    for table in (pd.read_csv(tmp_path / "p.csv"), pd.read_parquet(tmp_path / "p.parquet")):
        assert list(table) == ["node", "id", "split", "class", "class_name", "p_x", "p_y, z"]
        assert table["node"].tolist() == nodes
        assert table["id"].tolist() == [names[node] for node in nodes]
        assert table["split"].tolist() == ["none", "train", "none"]
        assert table["class_name"].tolist() == ["y, z", "x", "y, z"]
        wanted = lmc.probabilities(prediction)
        assert np.allclose(table[["p_x", "p_y, z"]].to_numpy(), wanted.numpy())
    with np.load(tmp_path / "p.npz", allow_pickle=False) as arrays:
        assert arrays["id"].tolist() == [names[node] for node in nodes]


def test_probabilities_are_of_classes_or_labels():
    logits = torch.randn(5, 3)
    assert torch.allclose(lmc.probabilities(logits).sum(dim=1), torch.ones(5))
    assert torch.equal(lmc.probabilities(logits, "multilabel"), torch.sigmoid(logits))
    with pytest.raises(lmc.ArgumentError, match="values have no probabilities"):
        lmc.probabilities(logits, "regression")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no ids"),
        ("0\n9\n", "ids[1] = 9: no node has this id"),
        ("one\n", "ids[0] = 'one': the ids of"),
    ],
)
def test_a_file_of_ids_that_are_none(tmp_path, text, message):
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(lmc.DatasetError) as caught:
        nodes_in_file(tmp_path / "ids.txt", bare())
    assert str(caught.value).startswith(f"{tmp_path / 'ids.txt'}: {message}")


def test_every_method_leaves_unlabelled_neighbours_alone():
    """A graph with few labels trains by every method as one whose other labels were never given."""
    graph = graph_of("undirected")
    known = graph.train_mask
    edges = graph.adjacency.indptr, graph.adjacency.indices
    labels = torch.where(known, graph.y, -1)
    hidden = lmc.Graph.from_csr(*edges, graph.x, labels, known, edge_weight=graph.edge_weight)
    for make in EVERY.values():
        estimates = []
        for each in (graph, hidden):
            estimator = make()
            estimator.bind(MODELS["gcn"](2), each)
            estimates.append(estimator.backward(each.batch(range(12), scale=3.0)))
        assert estimates[0] == estimates[1]


def test_nodes_are_chosen_by_name():
    """Every way to choose nodes takes names, where ids are text; one that no node has is said."""
    graph = graph_of("undirected")
    names = [f"user-{number:02}" for number in range(graph.num_nodes)][::-1]
    named = lmc.Graph.from_csr(graph.adjacency.indptr, graph.adjacency.indices, graph.x, graph.y, id=names)
    model, wanted = lmc.GCN(graph.num_features, 4, graph.num_classes).double(), [names[3], names[1]]
    for nodes in (wanted, tuple(wanted), np.array(wanted)):
        assert torch.equal(lmc.predict(named, model, nodes=nodes), lmc.predict(named, model, nodes=[3, 1]))
        assert named.batch(nodes).nodes.tolist() == named.batch([3, 1]).nodes.tolist()
    assert named.batch(names[2]).nodes.tolist() == [2]
    with pytest.raises(lmc.GraphError, match=r"ids\[1\] = nobody: no node has this id"):
        lmc.predict(named, model, nodes=[names[0], "nobody"])


def test_names_of_columns_go_to_pyg_and_back():
    graph = bare(y=[0, 1, 0, 1], class_names=["red", "blue"], feature_names=["a", "b", "c", "d"])
    again = lmc.Graph.from_pyg(RandomNodeSplit(num_val=1, num_test=1)(graph.to_pyg()))
    assert again.feature_names == graph.feature_names
    assert again.class_names == graph.class_names


def test_numbers_are_rows_and_text_is_ids():
    graph = lmc.Graph([[0, 1, 2], [1, 2, 3]], torch.rand(4, 2), id=[3, 2, 1, 0])
    model = lmc.GCN(2, 4, 2)
    rows = lmc.predict(graph, model)
    assert torch.equal(lmc.predict(graph, model, nodes=["3", "2"]), rows[:2])
    for mask in (graph.id == 3, torch.tensor([True, False, False, False])):
        assert torch.equal(lmc.predict(graph, model, nodes=mask), rows[:1])
    assert torch.equal(lmc.predict(graph, model, nodes=torch.tensor([3])), rows[3:])
    for ids in ([3], graph.id[:1]):
        with pytest.warns(UserWarning, match=r"numbers are rows .* not its ids; .* nodes=\['3'\]") as said:
            assert torch.equal(lmc.predict(graph, model, nodes=ids), rows[3:])
        assert said[0].filename == __file__
    far = lmc.Graph([[0, 1, 2], [1, 2, 3]], torch.rand(4, 2), id=[7, 8, 9, 10])
    with pytest.raises(
        lmc.GraphError, match=r"= 8: node ids must be in 0..3, .* text, such as nodes=\['7'\]"
    ):
        lmc.predict(far, model, nodes=[8])
    assert lmc.predict(far, model, nodes=[1]).shape == (1, 2)
