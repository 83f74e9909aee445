"""Cora, CiteSeer and PubMed from files in Planetoid's own layout."""

import warnings

import numpy as np
import pytest
import torch
from scipy import sparse

import lmc
from damage import Payload
from planetoid_files import LABELS, TEST, python2_pickle, small_planetoid, write_planetoid

MASKS = ("train_mask", "val_mask", "test_mask")


def equal(one, other):
    assert one.adjacency.equal(other.adjacency)
    assert one.num_classes == other.num_classes
    for name in ("x", "y", *MASKS):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_a_small_graph_is_as_written_by_hand(tmp_path):
    x = small_planetoid(tmp_path / "citeseer" / "raw")
    graph = lmc.load("citeseer", root=tmp_path)
    edges = {tuple(edge) for edge in graph.to_pyg().edge_index.T.tolist()}
    wanted = {(0, 1), (0, 2), (2, 8), (4, 9), (5, 6)}
    assert edges == wanted | {(j, i) for i, j in wanted}
    assert graph.edge_weight is None
    assert graph.x.tolist() == x.tolist()
    assert graph.y.tolist() == LABELS.tolist()
    nodes = [getattr(graph, name).nonzero().flatten().tolist() for name in MASKS]
    assert nodes == [[0, 1], [2, 3, 4], sorted(TEST)]
    assert not (tmp_path / "citeseer" / "processed").exists()


@pytest.mark.parametrize("folder", ["citeseer/raw", "CiteSeer/raw", "."])
def test_files_are_found_where_pyg_and_the_authors_have_them(tmp_path, folder):
    small_planetoid(tmp_path / "data" / folder)
    assert lmc.load("CiteSeer", root=tmp_path / "data").num_nodes == 10
    kept = tmp_path / "data" / "citeseer" / "graph"
    equal(lmc.load(kept), lmc.load("citeseer", root=tmp_path / "data"))


def as_planetoid(folder, name, graph, rng):
    """The raw files of a graph whose split is Planetoid's; the order of the test nodes is anyone's."""
    test = rng.permutation(graph.test_mask.nonzero().flatten().numpy()).tolist()
    rows = np.split(graph.adjacency.indices.numpy(), graph.adjacency.indptr.numpy()[1:-1])
    neighbours = {node: row.tolist() for node, row in enumerate(rows)}
    one_hot = np.eye(graph.num_classes, dtype=np.int32)[graph.y.numpy()]
    features = sparse.csr_matrix(graph.x.numpy())
    write_planetoid(folder, name, neighbours, features, one_hot, int(graph.train_mask.sum()), test)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_a_real_graph_comes_back(real, tmp_path, name):
    """And PyG's reader, which unpickles, finds the same in these files: the layout is the real one."""
    graph = real(name)
    raw = tmp_path / name / "raw"
    as_planetoid(raw, name, graph, np.random.default_rng(1))
    equal(lmc.load(name, root=tmp_path), graph)

    from torch_geometric.io import read_planetoid_data

    with warnings.catch_warnings():  # the old names of modules
        warnings.simplefilter("ignore")
        equal(lmc.Graph.from_pyg(read_planetoid_data(str(raw), name)), graph)


def test_a_hostile_file_among_them_is_one_line_and_does_nothing(tmp_path):
    raw = tmp_path / "cora" / "raw"
    small_planetoid(raw, "cora")
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"):
        file = raw / f"ind.cora.{part}"
        whole = file.read_bytes()
        for value in (Payload(tmp_path / "mark"), np.array([[Payload(tmp_path / "mark")]])):
            file.write_bytes(python2_pickle(value))
            with pytest.raises(lmc.DatasetError) as raised:
                lmc.load("cora", root=tmp_path)
            assert str(raised.value).startswith(f"cora: {file}: not a pickle of plain arrays (")
            assert "\n" not in str(raised.value)
        file.write_bytes(whole)
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "cora" / "graph").exists()
    assert lmc.load("cora", root=tmp_path).num_nodes == 10


SHARED = [1] * 3000
WRONG = {
    "a list for a matrix": ("x", [[1]], "holds a list: must be a matrix"),
    "one column for a matrix": ("allx", np.ones(5), "holds a ndarray: must be a matrix"),
    "too few rows": ("ally", np.eye(3)[:2], "ally: has 2 rows: must have 5, as ind.cora.allx has"),
    "more to train than there is": ("y", np.ones((9, 3)), "allx: has 5 rows: ind.cora.y has 9"),
    "too many columns": ("tx", np.ones((4, 7)), "tx: has 7 columns: must have 6, as ind.cora.allx has"),
    "a list for a graph": ("graph", [[1]], "graph: holds a list: must be a dict"),
    "numbers for lists": ("graph", {0: 1}, "graph: must have a list for every node"),
    "text for nodes": ("graph", {0: ["1"]}, "graph: must name nodes in 0..9"),
    "a node too far": ("graph", {0: [10]}, "graph: must name nodes in 0..9"),
    "a node before the first": ("graph", {-1: [1]}, "graph: must name nodes in 0..9"),
    "lists within lists": ("graph", {0: [[1]]}, "graph: must name nodes in 0..9"),
    "one list for all": ("graph", dict.fromkeys(range(3000), SHARED), "graph: has more than 4,000,000 edges"),
    "a wide matrix": ("allx", sparse.csr_matrix((5, 2**40)), "columns: must have 1099511627776"),
    "words for the test nodes": ("test.index", b"one\n", "test.index: not a list of nodes"),
    "too few test nodes": ("test.index", b"8\n6\n", "test.index: has 2 nodes: must have 4"),
    "a test node twice": ("test.index", b"8\n6\n9\n9\n", "must name nodes from 5 on, each once"),
    "a test node that trains": ("test.index", b"8\n6\n9\n1\n", "must name nodes from 5 on, each once"),
    "a test node far away": ("test.index", b"8\n6\n9\n99999999999\n", "has a node from 10,000,000 on"),
    "a number of many digits": ("test.index", b"9" * 30, "test.index: not a list of nodes"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_files_that_do_not_fit_together_are_one_line(tmp_path, kind):
    raw = tmp_path / "cora" / "raw"
    small_planetoid(raw, "cora")
    part, value, message = WRONG[kind]
    content = value if isinstance(value, bytes) else python2_pickle(value)
    (raw / f"ind.cora.{part}").write_bytes(content)
    with pytest.raises(lmc.DatasetError) as raised:
        lmc.load("cora", root=tmp_path)
    assert str(raised.value).startswith(f"cora: {raw}")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_features_that_do_not_fit_into_memory(tmp_path):
    raw = tmp_path / "cora" / "raw"
    small_planetoid(raw, "cora")
    for part, rows in {"x": 2, "tx": 4, "allx": 5}.items():
        (raw / f"ind.cora.{part}").write_bytes(python2_pickle(sparse.csr_matrix((rows, 2**40))))
    with pytest.raises(lmc.DatasetError, match=r"allx: a matrix of 10 x 1099511627776 takes .* GB are free"):
        lmc.load("cora", root=tmp_path)
