"""Data as people have it: layouts, splits; and what is said of data that makes no sense."""

import warnings

import networkx
import numpy as np
import pytest
import torch
import torch_geometric
from hypothesis import given
from scipy import sparse
from torch_geometric.data import Data
from torch_geometric.transforms import ToSparseTensor

import lmc
from commands import called, complaints
from lmc import hashed_random
from strategies import graphs

NAN = float("nan")
EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def data_of(**changed):
    given = {"x": torch.eye(4), "edge_index": EDGES, "y": torch.tensor([0, 1, 1, 0])}
    return Data(**{name: value for name, value in (given | changed).items() if value is not None})


# -- layouts -----------------------------------------------------------------------------------------


class SparseTensor:
    """What `torch_sparse.SparseTensor` shows of itself, as far as it is read."""

    def __init__(self, row, col, value):
        self.parts = row, col, value

    def coo(self):
        return self.parts

    def sizes(self):
        return [int(self.parts[0].max()) + 1, int(self.parts[1].max()) + 1]

    def to_dense(self):
        row, column, value = self.parts
        return torch.zeros(self.sizes()).index_put_((row, column), value)


@given(graphs())
def test_adj_t_is_the_adjacency(example):
    """PyG keeps the transposed adjacency: row i has the sources of what node i receives."""
    graph = example.graph
    row, column = graph.adjacency.row_ids().long(), graph.adjacency.indices.long()
    values = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    shape = (graph.num_nodes, graph.num_nodes)
    coo = torch.sparse_coo_tensor(torch.stack([row, column]), values, shape)
    for adjacency in (
        coo,
        coo.to_sparse_csr(),
        coo.to_sparse_csc(),
        SparseTensor(row, column, graph.edge_weight),
    ):
        again = lmc.Graph.from_pyg(Data(x=graph.x, adj_t=adjacency))
        assert torch.equal(again.adjacency.to_dense().double(), graph.adjacency.to_dense().double())
        merged = isinstance(adjacency, torch.Tensor) and adjacency.layout != torch.sparse_coo  # by torch
        assert again.num_edges == (example.pattern.sum() if merged else graph.num_edges)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_adj_t_as_pyg_makes_it(layout):
    directed = data_of(
        edge_index=torch.tensor([[0, 0, 3], [1, 2, 0]]), edge_weight=torch.tensor([0.5, 2.0, 3.0])
    )
    wanted = lmc.Graph.from_pyg(directed)
    made = ToSparseTensor(attr="edge_weight", layout=layout)(directed.clone())
    assert "edge_index" not in made
    found = lmc.Graph.from_pyg(made)
    assert found.adjacency.equal(wanted.adjacency)
    plain = ToSparseTensor(layout=layout)(data_of())
    assert lmc.Graph.from_pyg(plain).edge_weight is None
    with pytest.raises(lmc.GraphError, match="adj_t: Tensor is not a sparse tensor"):
        lmc.Graph.from_pyg(Data(x=torch.eye(4), adj_t=torch.eye(4)))


def test_sparse_features_become_dense(monkeypatch):
    x = torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    forms = [x.to_sparse(), x.to_sparse_csr(), sparse.csr_array(x.numpy()), sparse.coo_matrix(x.numpy())]
    forms.append(SparseTensor(*forms[0].indices(), forms[0].values()))
    for form in forms:
        assert torch.equal(lmc.Graph(EDGES, form).x, x)
    assert torch.equal(lmc.Graph.from_pyg(data_of(x=forms[1])).x, x)
    monkeypatch.setattr("lmc.memory_use.free", lambda: 10)
    for form in forms:
        with pytest.raises(lmc.GraphError, match=r"x has shape \(4, 2\): 3.2e-08 GB, 1e-08 GB are free"):
            lmc.Graph(EDGES, form)


# -- splits ------------------------------------------------------------------------------------------


def test_one_of_several_splits(tmp_path):
    train = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=torch.bool)
    val = train.roll(1, dims=0)
    test = torch.tensor([False, False, False, False])  # as in WikiCS, one for all
    data = data_of(train_mask=train, val_mask=val, test_mask=test)
    for split in range(3):
        graph = lmc.Graph.from_pyg(data, split=split)
        assert torch.equal(graph.train_mask, train[:, split])
        assert torch.equal(graph.val_mask, val[:, split])
    with pytest.warns(
        UserWarning, match="train_mask holds 3 splits: the first is taken; split= chooses another"
    ):
        assert torch.equal(lmc.Graph.from_pyg(data).train_mask, train[:, 0])
    with pytest.raises(lmc.ArgumentError, match="split=3: train_mask has 3 splits, from 0"):
        lmc.Graph.from_pyg(data, split=3)
    with pytest.raises(lmc.ArgumentError, match="split=1: the masks are of one split"):
        lmc.Graph.from_pyg(data_of(), split=1)
    rows = lmc.Graph.from_pyg(data, split=0).adjacency
    np.savez(
        tmp_path / "g.npz", indptr=rows.indptr, indices=rows.indices, y=data.y, train_mask=train, val_mask=val
    )
    assert torch.equal(lmc.load(tmp_path / "g.npz", split=2).train_mask, train[:, 2])
    with pytest.raises(lmc.ArgumentError, match="split=1: the graph has one split, 0"):
        lmc.load("synthetic", split=1)


def test_splits_by_numbers(tmp_path):
    indices = {"train": torch.tensor([2, 0]), "valid": np.array([3]), "test": [1]}
    by_argument = lmc.Graph.from_pyg(data_of(), split_idx=indices)
    by_attribute = lmc.Graph.from_pyg(data_of(train_idx=indices["train"], val_idx=[3], test_idx=[1]))
    rows = by_argument.adjacency
    split = {"train_idx": [0, 2], "val_idx": [3], "test_idx": [1]}
    np.savez(tmp_path / "g.npz", indptr=rows.indptr, indices=rows.indices, y=data_of().y, **split)
    for graph in (by_argument, by_attribute, lmc.load(tmp_path / "g.npz")):
        assert graph.train_mask.tolist() == [True, False, True, False]
        assert graph.val_mask.tolist() == [False, False, False, True]
        assert graph.test_mask.tolist() == [False, True, False, False]
    for wrong, message in (
        ({"train": [4]}, r"split_idx\['train'\]\[0\] = 4: node ids must be in 0\.\.3"),
        ({"tset": [0]}, r"split_idx\['tset'\]: must be one of train, val, test"),
        ([[0], [1]], "split_idx: list is not a mapping"),
        ({"train": [0], "test": [0]}, r"test_mask\[0\] = True: the node is in train_mask"),
    ):
        with pytest.raises(lmc.GraphError, match=message):
            lmc.Graph.from_pyg(data_of(), split_idx=wrong)


# -- labels ------------------------------------------------------------------------------------------


def test_labels_that_are_no_number_are_unlabelled():
    everyone = torch.ones(4, dtype=torch.bool)
    classes = torch.tensor([[0.0], [NAN], [2.0], [NAN]])  # as OGB has them
    graph = lmc.Graph(EDGES, torch.eye(4), classes, everyone, task="multiclass")
    assert (graph.y.tolist(), graph.num_classes) == ([0, -1, 2, -1], 3)
    real = lmc.Graph(EDGES, torch.eye(4), torch.tensor([0.5, NAN, 2.0, NAN]), everyone)
    rows = torch.tensor([[0.0, 1.0], [NAN, NAN], [1.0, 1.0], [-1.0, -1.0]])
    several = lmc.Graph(EDGES, torch.eye(4), rows, everyone)
    assert (real.task, several.task) == ("regression", "multilabel")
    for each in (graph, real, several):
        assert each.train_mask.tolist() == [True, False, True, False]
    with pytest.raises(lmc.GraphError, match=r"y\[0, 1\] = nan: targets in a mask must be finite"):
        lmc.Graph(EDGES, torch.eye(4), [[0.5, NAN], [1.0, 2.0], [NAN, NAN], [0.0, 1.0]], everyone)
    model = lmc.GCN(4, 4, 1)
    assert np.isfinite(lmc.fit(real, model, lmc.FullBatch(), epochs=2).history[-1].loss)


@pytest.mark.parametrize("y", [[0.0, 1.0, 2.0, 2.0], [[0.0], [1.0], [2.0], [NAN]], [-1.0, 1.0, 1.0, NAN]])
def test_classes_of_the_wrong_type_are_named(y):
    with pytest.warns(
        UserWarning, match="are taken as targets of a regression; task='multiclass', or integers"
    ):
        assert lmc.Graph(EDGES, torch.eye(4), y).task == "regression"
    assert lmc.Graph(EDGES, torch.eye(4), y, task="regression").task == "regression"
    assert lmc.Graph(EDGES, torch.eye(4), y, task="multiclass").task == "multiclass"


RING = torch.stack([torch.arange(20), torch.arange(20).roll(1)])


def test_classes_written_as_ones_among_zeros_are_named():
    classes = torch.arange(20) % 3
    rows = torch.nn.functional.one_hot(classes)
    with pytest.warns(UserWarning, match=r"y: has a single 1 in every row.*y.argmax\(1\) makes them classes"):
        assert lmc.Graph(RING, torch.eye(20), rows).task == "multilabel"
    assert lmc.Graph(RING, torch.eye(20), rows, task="multilabel").task == "multilabel"
    rows[3] = 1
    assert lmc.Graph(RING, torch.eye(20), rows).task == "multilabel"


def test_classes_that_are_counted_from_one_are_named():
    y = torch.arange(20) % 3 + 1
    line = "y: no node has class 0.*; y - 1 leaves it out, num_classes=4 keeps it"
    with pytest.warns(UserWarning, match=line):
        assert lmc.Graph(RING, torch.eye(20), y).num_classes == 4
    assert lmc.Graph(RING, torch.eye(20), y, num_classes=4).num_classes == 4
    y[0] = 0
    assert lmc.Graph(RING, torch.eye(20), y).num_classes == 4


@pytest.mark.parametrize(("scale", "shift", "says"), [(1, 100, True), (30, 0, True), (1, 1, False)])
def test_targets_far_from_what_a_model_begins_with_are_named(scale, shift, says):
    graph = lmc.synthetic(nodes=200)
    y = scale * graph.x[:, 0] / graph.x[:, 0].std() + shift
    model = lmc.GCN(graph.num_features, 4, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lmc.fit(graph.replace(y=y, task="regression"), model, lmc.LMC(), parts=4, epochs=1)
    told = [each for each in caught if "targets have mean" in str(each.message)]
    assert len(told) == says
    assert all("(y - mean) / deviation is learned faster" in str(each.message) for each in told)


def test_masks_of_pyg_may_have_the_names_that_parts_of_a_split_have():
    data = lmc.synthetic(nodes=100).to_pyg()
    wanted = data.val_mask
    data.valid_mask = data.val_mask
    del data.val_mask
    assert torch.equal(lmc.Graph.from_pyg(data).val_mask, wanted)


@pytest.mark.parametrize("name", ["weight", "edge_weights"])
def test_weights_of_pyg_under_another_name_are_named(name):
    data = lmc.synthetic(nodes=100).to_pyg()
    data[name] = torch.rand(data.num_edges)
    with pytest.warns(UserWarning, match=f"{name} is not read; weights of edges are edge_weight"):
        assert lmc.Graph.from_pyg(data).edge_weight is None


@pytest.mark.parametrize(
    "y", [[0.5, 1.0, 2.0, 3.0], [0.0, 5.0, 2000.0, 7.0], [-5.0, 1.0, 2.0, 3.0], [NAN] * 4]
)
def test_real_targets_are_not(y):
    assert lmc.Graph(EDGES, torch.eye(4), y).task == "regression"


# -- numbers of the wrong type -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "weights"), [(torch.float64, torch.float32), (torch.float32, torch.float64)]
)
def test_features_take_the_type_of_the_weights(features, weights):
    graph = lmc.synthetic(nodes=120, features=4, classes=3)
    other, same = graph.to(features), graph.to(weights)
    models = []
    for each in (other, same):
        torch.manual_seed(0)
        models.append(lmc.GCN(4, 8, 3).to(weights))
        lmc.fit(each, models[-1], lmc.LMC(), parts=4, epochs=2)
    for mine, wanted in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(mine, wanted)
    assert torch.equal(lmc.predict(other, models[0]), lmc.predict(same, models[1]))
    assert torch.equal(lmc.predict(other, models[0], nodes=[3]), lmc.predict(same, models[1], nodes=[3]))
    fix = f"(its weights are of {weights}; graph.to({weights}) makes them agree)"
    for model in (models[0], lmc.from_pyg(torch_geometric.nn.GIN(4, 8, 2, 3).to(weights))):
        with pytest.raises(lmc.ArgumentError) as caught:
            lmc.LMC().bind(model, other)
        assert str(caught.value) == f"model: does not take the graph's 4 features of {features} {fix}"
    assert other.to(weights).transposed is other.transposed  # edges are not looked at again


def test_features_too_large_for_the_type_are_named():
    graph = lmc.Graph(EDGES, torch.tensor([[1.0], [1e300], [0.0]], dtype=torch.float64))
    with pytest.raises(lmc.GraphError, match=r"x\[1, 0\] = inf: features must be finite"):
        graph.to(torch.float32)
    with pytest.raises(lmc.ArgumentError, match=r"dtype=torch\.float16"):
        graph.to(torch.float16)


# -- no features -------------------------------------------------------------------------------------


def test_structure_is_a_random_projection_over_hops():
    """Against dense matrices: columns of a random matrix, averaged over neighbours, rows of length one."""
    graph = lmc.synthetic(nodes=80, degree=4)
    a = graph.neighbours.to_dense().double()
    mean = a / a.sum(1, keepdim=True).clamp(min=1)
    z = torch.from_numpy(hashed_random.roughly_normal(np.arange(80)[:, None], np.arange(128))).double()
    wanted = torch.zeros(80, 128, dtype=torch.float64)
    for _ in range(4):
        z = mean @ z
        wanted += z / z.norm(dim=1, keepdim=True).clamp(min=1e-12)
    found = graph.with_features("structure").x
    assert torch.allclose(found.double(), wanted * 128**0.5 / 4, atol=1e-5)
    lonely = lmc.Graph([[0], [1]], y=[0, 1, 1]).with_features("structure").x
    assert lonely[2].tolist() == [0.0] * 128


def test_degree_counts_neighbours():
    star = lmc.Graph([[0, 0, 0], [1, 2, 3]], y=[0, 1, 1, 1, 0]).with_features("degree")
    assert torch.allclose(star.x[:, 0], torch.tensor([4.0, 2, 2, 2, 1]).log())
    assert star.x[:, 1:].argmax(1).tolist() == [2, 1, 1, 1, 0]


def test_features_made_of_edges_are_learned_from():
    """Communities that features were the only way to tell are found by structure, and said to be missing."""
    graph = networkx.planted_partition_graph(4, 30, 0.3, 0.01, seed=0)
    for node, about in graph.nodes(data=True):
        about.update(y=about["block"], train_mask=node % 3 == 0, test_mask=node % 3 == 1)
    made = lmc.Graph.from_networkx(graph, features=None)
    accuracy = {}
    for kind in ("structure", "degree"):
        torch.manual_seed(0)
        each = made.with_features(kind)
        result = lmc.fit(each, lmc.GCN(each.num_features, 16, 4), lmc.FullBatch(), epochs=30)
        accuracy[kind] = result.history[-1].test
    assert accuracy["structure"] > 0.95 > 0.6 > accuracy["degree"]
    with pytest.warns(
        UserWarning, match=r"no features: .* graph\.with_features\('structure'\), or --features"
    ):
        lmc.LMC().bind(lmc.GCN(0, 4, 4), made)
    with pytest.raises(lmc.ArgumentError, match="features='structur': must be one of degree, structure"):
        made.with_features("structur")


def test_the_command_line_makes_features_and_keeps_the_choice(tmp_path):
    graph = lmc.synthetic(nodes=150, classes=3).with_features(torch.empty(150, 0))
    graph.save(tmp_path / "g")
    sizes = ["--parts", 4, "--hidden", 4, "--quiet"]
    made = called(
        "train",
        "--data",
        tmp_path / "g",
        *sizes,
        "--epochs",
        2,
        "--features",
        "structure",
        "--out",
        tmp_path / "r",
    )
    assert (made.returncode, complaints(made)) == (0, [])
    assert 'features = "structure"' in (tmp_path / "r" / "config.toml").read_text()
    more = called("train", "--resume", tmp_path / "r", "--epochs", 3, "--quiet")
    assert (more.returncode, complaints(more)) == (0, [])
    done = called("predict", tmp_path / "r", "--out", tmp_path / "p.csv")
    assert (done.returncode, complaints(done)) == (0, [])
    other = called("predict", tmp_path / "r", "--data", tmp_path / "g", "--out", tmp_path / "q.csv")
    assert other.returncode == 0
    assert "says where a node is in the graph of the run" in other.stderr
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()
    bare = called("train", "--data", tmp_path / "g", *sizes, "--epochs", 1, "--out", tmp_path / "b")
    assert complaints(bare)[0].startswith("lmc: warning: the graph has no features")
    wrong = called("train", "--data", tmp_path / "g", "--features", "struct")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "lmc: data.features='struct': must be one of degree, structure\n",
    )


# -- clusters ----------------------------------------------------------------------------------------


def test_clusters_of_one_or_two_nodes_are_worth_a_word():
    graph = lmc.synthetic(nodes=90, features=4, classes=2)
    with pytest.warns(UserWarning, match="parts=60: clusters of a graph of 90 nodes have fewer than 3 each"):
        lmc.fit(graph, lmc.GCN(4, 4, 2), lmc.GAS(), parts=60, parts_per_batch=20, epochs=1)
    lmc.fit(graph, lmc.GCN(4, 4, 2), lmc.GAS(), parts=30, parts_per_batch=10, epochs=1)
