import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

import lmc
from strategies import graphs

NODES = 4


def build(**changed):
    """A valid graph of four nodes, with some arguments changed."""
    arguments = {
        "edge_index": [[0, 1, 1, 2], [1, 0, 2, 1]],
        "x": torch.arange(8.0).reshape(NODES, 2),
        "y": [0, 1, 2, 0],
        "train_mask": [True, False, False, False],
        "val_mask": [False, True, False, False],
        "test_mask": [False, False, True, False],
    }
    return lmc.Graph(**(arguments | changed))


@given(graphs())
def test_adjacency_is_the_sum_of_the_edges(example):
    assert np.array_equal(example.graph.adjacency.to_dense().double().numpy(), example.dense)
    assert example.graph.num_edges == len(example.edges)
    assert example.graph.adjacency.is_ordered()
    assert example.graph.edge_weight is None or example.weights is not None


@given(graphs())
def test_direction_and_neighbours_equal_those_of_the_dense_graph(example):
    graph = example.graph
    assert graph.is_undirected == example.is_symmetric
    assert np.array_equal(graph.neighbours.to_dense().numpy(), example.neighbours)
    assert graph.neighbours.is_canonical()
    assert (graph.neighbours.values is None) == (example.neighbours.max() <= 1)
    assert np.array_equal(graph.transposed.to_dense().double().numpy(), example.dense.T)


@given(graphs())
def test_a_graph_comes_back_from_pyg_as_it_was(example):
    graph = example.graph
    again = lmc.Graph.from_pyg(graph.to_pyg())
    assert again.adjacency.equal(graph.adjacency)
    assert again.task == graph.task
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(again, name), getattr(graph, name))


def test_indices_are_int32_where_they_fit():
    assert build().adjacency.indices.dtype == torch.int32
    assert build().adjacency.indptr.dtype == torch.int32


def test_repeated_edges_are_messages_and_self_loops_are_no_neighbours():
    graph = build(edge_index=[[0, 0, 1, 2], [1, 1, 0, 2]])
    assert graph.adjacency.indices.tolist() == [1, 0, 0, 2]
    assert graph.edge_weight is None
    assert graph.neighbours.to_dense()[1, 0] == 2
    assert graph.adjacency.to_dense()[2, 2] == 1
    assert graph.neighbours.to_dense()[2].sum() == 0


def test_a_graph_may_have_no_edges():
    graph = build(edge_index=[[], []])
    assert graph.num_edges == 0
    assert graph.is_undirected
    assert graph.num_nodes == NODES


def test_features_keep_double_and_become_float_otherwise():
    assert build(x=torch.ones(NODES, 1, dtype=torch.float64)).x.dtype == torch.float64
    assert build(x=np.ones((NODES, 1), dtype=np.float16)).x.dtype == torch.float32
    assert build(x=np.ones((NODES, 1), dtype=np.int64)).x.dtype == torch.float32
    assert build(x=None).num_features == 0


# -- labels ----------------------------------------------------------------------------------------


def test_the_kind_of_labels_follows_type_and_shape():
    assert (build().task, build().num_classes) == ("multiclass", 3)
    several = build(y=torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]))
    assert (several.task, several.num_classes) == ("multilabel", 2)
    real = build(y=torch.tensor([0.5, 1.0, 2.0, -1.0]))
    assert (real.task, real.num_classes) == ("regression", 1)
    assert build(y=torch.rand(NODES, 3)).task == "regression"
    column = build(y=torch.tensor([[0], [1], [1], [0]]))
    assert (column.task, column.y.shape) == ("multiclass", (NODES,))
    assert build(y=torch.zeros(NODES, 2), task="regression").task == "regression"
    assert build(num_classes=9).num_classes == 9


def test_unlabelled_nodes_leave_their_mask():
    masks = {"train_mask": [True, True, False, False], "val_mask": [False, False, True, True]}
    graph = build(y=[0, -1, 1, -1], test_mask=None, **masks)
    assert graph.train_mask.tolist() == [True, False, False, False]
    assert graph.val_mask.tolist() == [False, False, True, False]
    rows = torch.tensor([[0.0, 1.0], [-1.0, -1.0], [1.0, 0.0], [1.0, 1.0]])
    assert build(y=rows, test_mask=None, **masks).train_mask.tolist() == [True, False, False, False]


def test_targets_outside_every_mask_may_be_missing():
    graph = build(y=torch.tensor([0.5, 1.0, 2.0, torch.nan]))
    assert graph.task == "regression"


# -- the door --------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")

WRONG = {
    "edge_index[1, 2] = 4: node ids must be in 0..3": {"edge_index": [[0, 1, 1], [1, 0, 4]]},
    "edge_index[0, 1] = -1: node ids must be in 0..3": {"edge_index": [[0, -1], [1, 0]]},
    "edge_index has shape (3, 1): must be (2, edges)": {"edge_index": [[0], [1], [2]]},
    "edge_index has type torch.float32: node ids must be integers": {"edge_index": [[0.0], [1.0]]},
    "edge_weight[3] = nan: edge weights must be finite": {"edge_weight": [1, 1, 1, NAN]},
    "edge_weight[0] = inf: edge weights must be finite": {"edge_weight": [INF, 1, 1, 1]},
    "edge_weight has shape (2,): must be (4,)": {"edge_weight": [1.0, 2.0]},
    "x[2, 1] = nan: features must be finite": {"x": [[0, 0], [0, 0], [0, NAN], [0, 0]]},
    "x[0, 0] = -inf: features must be finite": {"x": [[-INF, 0], [0, 0], [0, INF], [0, 0]]},
    "x has shape (4,): must be (nodes, features)": {"x": [0.0, 1.0, 2.0, 3.0]},
    "x has shape (0, 2): must be (nodes, features)": {"x": torch.empty(0, 2)},
    "x: str is not an array": {"x": "features"},
    "x has type torch.complex64: must be real": {"x": torch.ones(4, 1) * 1j},
    "y has layout torch.sparse_coo: must be dense": {"y": torch.eye(4).to_sparse()},
    "edge_weight has type torch.complex64: must be real": {"edge_weight": torch.ones(4) * 1j},
    "edge_type[1] = -1: types must be in 0..32767": {"edge_type": [0, -1, 1, 0]},
    "edge_type has shape (2,): must be (4,), one per edge": {"edge_type": [0, 1]},
    "edge_type has type torch.float32: types must be integers": {"edge_type": [0.0, 1.0, 0.0, 2.0]},
    "y has shape (): must be": {"y": torch.tensor(1), "x": None},
    "y[3] = 7: classes must be in 0..2": {"y": [0, 1, 2, 7], "num_classes": 3},
    "y[1] = -2: classes must be in": {"y": [0, -2, 1, 1]},
    "y has shape (3,): must be (4,)": {"y": [0, 1, 1]},
    "y[0, 1] = 0.5: multi-label entries must be 0 or 1": {
        "y": [[0, 0.5], [1, 1], [1, 0], [0, 0]],
        "task": "multilabel",
    },
    "y[0] = inf: targets in a mask must be finite": {"y": [INF, 1.0, 2.0, 3.0]},
    "y[1] = 1.5: classes must be whole numbers": {"y": [0.0, 1.5, 1, 0], "task": "multiclass"},
    "train_mask has shape (3,): must be (4,)": {"train_mask": [True, False, False]},
    "val_mask has type torch.int64: masks must be bool": {"val_mask": [0, 1, 0, 0]},
    "test_mask[1] = True: the node is in val_mask": {"test_mask": [False, True, False, False]},
    "val_mask[0] = True: the node is in train_mask": {"val_mask": [True, False, False, False]},
}


@pytest.mark.parametrize("message", WRONG)
def test_the_door_names_array_place_value_and_rule(message):
    with pytest.raises(lmc.GraphError) as caught:
        build(**WRONG[message])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "ranking"}, "task='ranking': must be one of multiclass"),
        ({"num_classes": 0}, "num_classes=0: must be 1 or more"),
        ({"num_classes": 2.5}, "num_classes=2.5: must be an integer"),
        ({"num_classes": "3"}, "num_classes='3': must be an integer"),
    ],
)
def test_wrong_options_are_named(arguments, message):
    with pytest.raises(lmc.ArgumentError) as caught:
        build(**arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint32, np.uint64])
def test_ids_may_have_any_integer_type(dtype):
    n = 300
    arguments = (torch.ones(n, 1), torch.zeros(n, dtype=torch.long), torch.ones(n, dtype=torch.bool))
    ends = np.array([[0, 100], [1, 7]], dtype=dtype)
    assert lmc.Graph(ends, *arguments).adjacency.to_dense()[7, 100] == 1
    two = lmc.Graph.from_pyg_list(
        [Data(a, torch.from_numpy(ends), y=b) for a, b in [arguments[:2]] * 2], ["train"] * 2
    )
    assert two.adjacency.to_dense()[307, 400] == 1
    wrong = np.array([0, 3, 1, 4, 4], dtype=dtype)
    with pytest.raises(lmc.GraphError, match=r"indptr\[2\] = 1: offsets must not fall"):
        lmc.Graph.from_csr(wrong, np.array([0, 1, 2, 3], dtype), torch.ones(4, 1), [0] * 4, [True] * 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.float64])
def test_weights_may_have_any_type(dtype):
    graph = build(edge_weight=torch.tensor([1, 2, 1, 2], dtype=dtype))
    assert graph.edge_weight.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert graph.adjacency.to_dense()[0].tolist() == [0, 2, 0, 0]


def test_a_table_of_pandas_is_an_array():
    assert build(x=pd.DataFrame({"a": [1.0, 2, 3, 4], "b": 0.0})).num_features == 2


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([1, 1, 2, 3, 4], [0, 1, 2, 3], "indptr[0] = 1: offsets must start at 0"),
        ([0, 2, 1, 3, 4], [0, 1, 2, 3], "indptr[2] = 1: offsets must not fall"),
        ([0, 1, 2, 3, 5], [0, 1, 2, 3], "indptr[4] = 5: offsets must end at the number of indices, 4"),
        ([0, 1, 2], [0, 1], "indptr has shape (3,): must be (5,)"),
        ([0, 1, 2, 3, 4], [0, 1, 9, 3], "indices[2] = 9: node ids must be in 0..3"),
        ([0, 0, 0, 0, 1], [[0]], "indices has shape (1, 1): must be (edges,)"),
    ],
)
def test_the_door_names_what_is_wrong_with_csr(indptr, indices, message):
    with pytest.raises(lmc.GraphError) as caught:
        lmc.Graph.from_csr(indptr, indices, torch.ones(4, 1), [0, 1, 1, 0], [True] * 4)
    assert str(caught.value).startswith(message)


@given(graphs(), st.randoms())
def test_csr_rows_may_come_in_any_order(example, random):
    """Columns of a row may come in any order; the graph is the same."""
    adjacency = example.graph.adjacency
    indices, weights, indptr = [], [], [0]
    for i in range(example.graph.num_nodes):
        row = slice(adjacency.indptr[i], adjacency.indptr[i + 1])
        columns = adjacency.indices[row].tolist()
        values = [1.0] * len(columns) if adjacency.values is None else adjacency.values[row].tolist()
        entries = list(zip(columns, values, strict=True))
        random.shuffle(entries)
        indices += [j for j, _ in entries]
        weights += [w for _, w in entries]
        indptr.append(len(indices))
    g = example.graph
    again = lmc.Graph.from_csr(indptr, indices, g.x, g.y, g.train_mask, edge_weight=np.array(weights))
    assert np.array_equal(again.adjacency.to_dense().numpy(), example.dense)
    assert again.num_edges == g.num_edges


@pytest.mark.slow
def test_three_million_edges_pass_the_door():
    """Nothing is lost on the way; `make bench` says how long it takes."""
    n, edges = 200_000, 3_000_000
    rng = np.random.default_rng(0)
    ends, x = rng.integers(0, n, (2, edges)), np.ones((n, 8), np.float32)
    graph = lmc.Graph(ends, x, np.zeros(n, np.int64), np.ones(n, bool))
    assert graph.num_edges == edges
    order = np.lexsort(ends)
    assert np.array_equal(graph.adjacency.indices.numpy(), ends[0][order])
    assert np.array_equal(graph.adjacency.row_ids().numpy(), ends[1][order])


# -- several graphs as one -------------------------------------------------------------------------


ENDS = torch.tensor([[0], [1]])


def piece(n, weight=None):
    path = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    data = Data(torch.full((n, 2), float(n)), path, y=torch.arange(n) % 2)
    if weight is not None:
        data.edge_weight = torch.full((n - 1,), weight)
    return data


def test_union_keeps_graphs_apart_and_roles():
    union = lmc.Graph.from_pyg_list([piece(2, 0.5), piece(3, 2.0)], roles=["train", "val"])
    expected = torch.block_diag(*(g.adjacency.to_dense() for g in map(alone, [(2, 0.5), (3, 2.0)])))
    assert torch.equal(union.adjacency.to_dense(), expected)
    assert union.train_mask.tolist() == [True, True, False, False, False]
    assert union.val_mask.tolist() == [False, False, True, True, True]
    assert union.x[:, 0].tolist() == [2, 2, 3, 3, 3]


def alone(arguments):
    return lmc.Graph.from_pyg_list([piece(*arguments)], roles=["train"])


def test_union_keeps_masks():
    first, second = piece(2), piece(3)
    first.train_mask = torch.tensor([True, False])
    second.test_mask = torch.tensor([False, False, True])
    union = lmc.Graph.from_pyg_list([first, second])
    assert union.train_mask.nonzero().flatten().tolist() == [0]
    assert union.test_mask.nonzero().flatten().tolist() == [4]


def test_union_of_isolated_graphs_without_edges():
    lonely = Data(torch.ones(2, 2), torch.empty(2, 0, dtype=torch.long), y=torch.tensor([0, 1]))
    union = lmc.Graph.from_pyg_list([lonely, piece(2)], roles=["test", "train"])
    assert union.num_edges == 1


@pytest.mark.parametrize(
    ("graphs_", "roles", "message"),
    [
        ([], None, "graphs has length 0"),
        ([piece(2)], ["train", "val"], "roles has length 2: must be 1"),
        (
            [piece(2), Data(torch.ones(2, 2), piece(2).edge_index, y=torch.ones(3))],
            ["train"] * 2,
            "graphs[1].y has",
        ),
        (
            [piece(2), Data(torch.ones(2, 3), piece(2).edge_index, y=torch.ones(2))],
            ["val"] * 2,
            "graphs[1].x has",
        ),
        ([piece(2)], ["dev"], "roles[0] = 'dev': must be one of train, val, test"),
        ([piece(2), piece(2, 1.0)], ["train"] * 2, "graphs[0].edge_weight is missing: other graphs"),
        (
            [piece(2), Data(torch.ones(1, 2))],
            ["train"] * 2,
            "graphs[1].edge_index is missing: a graph needs it",
        ),
    ],
)
def test_a_wrong_union_is_named(graphs_, roles, message):
    with pytest.raises(lmc.GraphError) as caught:
        lmc.Graph.from_pyg_list(graphs_, roles)
    assert str(caught.value).startswith(message)


def test_an_edge_of_one_graph_cannot_reach_into_the_next():
    wrong = piece(2)
    wrong.edge_index = torch.tensor([[0], [2]])
    with pytest.raises(
        lmc.GraphError, match=r"graphs\[0\]\.edge_index\[1, 0\] = 2: node ids must be in 0\.\.1"
    ):
        lmc.Graph.from_pyg_list([wrong, piece(3)], roles=["train", "train"])


# -- features of edges ------------------------------------------------------------------------------


def test_edge_attr_follows_its_edges(tmp_path):
    """Through every door: the features of an edge stay with its ends."""
    ends = torch.tensor([[2, 0, 1, 0], [1, 2, 0, 1]])
    attr = torch.tensor([[21.0, 0.5], [2.0, 0.5], [10.0, 0.5], [1.0, 0.5]])  # ten times source, plus target
    nodes = {"x": torch.eye(3), "y": [0, 1, 0], "train_mask": [True, True, False]}
    made = lmc.Graph(ends, **nodes, edge_attr=attr)
    made.save(tmp_path / "graph")
    data = made.to_pyg()
    flipped = lmc.Graph.from_csr([0, 1, 3, 4], [1, 2, 0, 0], **nodes, edge_attr=attr[[2, 0, 3, 1]])
    both = lmc.Graph.from_pyg_list([data, data])
    for graph in (made, lmc.Graph.open(tmp_path / "graph"), lmc.Graph.from_pyg(data), flipped, both):
        source, target = graph.to_pyg().edge_index % 3
        assert torch.equal(graph.edge_attr[:, 0], 10.0 * source + target)
        batch = graph.batch([1], scale=1.0)
        source, target = batch.members[batch.edges.ends[0]] % 3, batch.nodes[batch.edges.ends[1]] % 3
        assert torch.equal(batch.edges.attr[:, 0], 10.0 * source + target)
        halo_first = torch.cat([batch.halo, batch.nodes])
        source, target = halo_first[batch.halo_edges.ends[0]] % 3, batch.halo[batch.halo_edges.ends[1]] % 3
        assert torch.equal(batch.halo_edges.attr[:, 0], 10.0 * source + target)
    assert lmc.Graph(ends, **nodes, edge_attr=attr[:, 0]).edge_attr.shape == (4, 1)


@pytest.mark.parametrize(
    ("edge_attr", "message"),
    [
        (torch.ones(2, 1), "edge_attr has shape (2, 1): must be (3, columns), one row per edge"),
        (
            torch.tensor([[1.0], [float("nan")], [1.0]]),
            "edge_attr[1, 0] = nan: edge features must be finite; "
            "torch.as_tensor(edge_attr).nan_to_num(0, 0, 0) puts zeros there",
        ),
    ],
)
def test_wrong_edge_attr_is_named(edge_attr, message):
    with pytest.raises(lmc.GraphError) as error:
        lmc.Graph([[0, 1, 0], [1, 0, 1]], torch.eye(2), [0, 1], [True, True], edge_attr=edge_attr)
    assert str(error.value) == message


def test_what_pyg_is_given_can_be_changed():
    graph = lmc.Graph([[0, 1], [1, 0]], torch.eye(2), [0, 1], [True, True], edge_weight=[1.0, 2.0])
    data = graph.to_pyg()
    for name in ("x", "y", "train_mask", "edge_weight"):
        before = getattr(graph, name).clone()
        getattr(data, name).zero_()
        assert torch.equal(getattr(graph, name), before)


@pytest.mark.parametrize("y", [[True, False, True], [[True], [False], [True]]])
def test_booleans_are_two_classes(y):
    graph = lmc.Graph([[0], [1]], torch.ones(3, 1), y, [True, True, False])
    assert (graph.task, graph.num_classes, graph.y.dtype) == ("multiclass", 2, torch.int64)
    assert graph.y.tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", [int, float])
def test_a_single_unknown_label_of_several_is_no_regression(kind):
    labels = np.array([[0, 1], [-1, 1], [-1, -1]], dtype=kind)
    with pytest.raises(
        lmc.GraphError, match=r"y\[1, 0\] = -1.0: multi-label entries must be 0 or 1.*'regression'"
    ):
        lmc.Graph([[0], [1]], np.ones((3, 1)), labels, [True, True, False])
    graph = lmc.Graph([[0], [1]], np.ones((3, 1)), labels, [True, True, False], task="regression")
    assert graph.task == "regression"
