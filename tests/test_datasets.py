import contextlib
import os

import numpy as np
import pytest
import torch

import lmc

REAL = {
    # nodes, messages, features, classes, (train, val, test), as the files' README says
    "arxiv": (169_343, 2 * 1_157_799, 128, 40, (90_941, 29_799, 48_603)),
    "flickr-graph": (89_250, 2 * 449_878, 0, 7, (44_625, 22_312, 22_313)),
    "cora": (2_708, 2 * 5_278, 1_433, 7, (140, 500, 1_000)),
    "citeseer": (3_327, 2 * 4_552, 3_703, 6, (120, 500, 1_000)),
    "pubmed": (19_717, 2 * 44_324, 500, 3, (60, 500, 1_000)),
    "amazon_photo": (7_650, 2 * 119_081, 745, 8, (4_590, 1_530, 1_530)),
}


@pytest.mark.parametrize("name", REAL)
def test_real_graphs_are_as_published(real, name):
    graph = real(name)
    split = tuple(int(m.sum()) for m in (graph.train_mask, graph.val_mask, graph.test_mask))
    found = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes, split)
    assert found == REAL[name]
    assert graph.is_undirected
    assert graph.x.dtype == torch.float32


def neutral(**changed):
    arrays = {
        "indptr": np.array([0, 1, 3, 4]),
        "indices": np.array([1, 0, 2, 1]),
        "y": np.array([0, 1, 1]),
        "x": np.eye(3, dtype=np.float16),
        "train_mask": np.array([True, False, False]),
        "val_mask": np.array([False, True, False]),
        "test_mask": np.array([False, False, True]),
    }
    return {name: array for name, array in (arrays | changed).items() if array is not None}


def test_files_are_found_by_path_by_root_by_variable_and_in_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b", "data"):
        (tmp_path / folder).mkdir()
    np.savez(tmp_path / "a" / "tiny.npz", **neutral())
    assert lmc.load(tmp_path / "a" / "tiny.npz").num_nodes == 3
    assert lmc.load("a/tiny.npz").num_nodes == 3
    assert lmc.load("tiny", root="a").num_nodes == 3
    monkeypatch.setenv("LMC_DATA", "a")
    assert lmc.load("tiny").num_nodes == 3
    monkeypatch.delenv("LMC_DATA")
    with pytest.raises(lmc.DatasetError, match=r"^\./tiny: no such file, or not a graph"):
        lmc.load("./tiny")
    with pytest.raises(lmc.DatasetError, match=r"data set 'tiny' is missing: looked for data/tiny\.npz"):
        lmc.load("tiny")
    np.savez(tmp_path / "data" / "tiny.npz", **neutral())
    assert lmc.load("tiny").num_nodes == 3


def test_saved_folders_are_found_by_name_and_path(tmp_path, monkeypatch):
    lmc.synthetic(nodes=20, degree=2).save(tmp_path / "saved")
    assert lmc.load(tmp_path / "saved").num_nodes == 20
    assert lmc.load("saved", root=tmp_path).num_nodes == 20
    monkeypatch.chdir(tmp_path)
    assert lmc.load("saved").num_nodes == 20


def test_sparse_features_weights_and_a_missing_split_are_read(tmp_path):
    sparse = {
        "x": None,
        "x_indptr": np.array([0, 1, 1, 3]),
        "x_indices": np.array([3, 0, 1]),
        "x_data": np.array([1.0, 2.0, 3.0], np.float32),
        "x_shape": np.array([3, 4]),
    }
    weighted = {"edge_weight": np.array([0.5, 0.5, 2.0, 2.0])}
    nothing = {"train_mask": None, "val_mask": None, "test_mask": None}
    np.savez(tmp_path / "g.npz", **neutral(**sparse, **weighted, **nothing))
    graph = lmc.load(tmp_path / "g.npz")
    assert graph.x.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [2, 3, 0, 0]]
    assert graph.adjacency.to_dense().tolist() == [[0, 0.5, 0], [0.5, 0, 2], [0, 2, 0]]
    masks = torch.stack([graph.train_mask, graph.val_mask, graph.test_mask])
    assert masks.sum(0).tolist() == [1, 1, 1]
    assert torch.equal(lmc.load(tmp_path / "g.npz").train_mask, graph.train_mask)


def test_near_names_are_suggested(tmp_path):
    with pytest.raises(lmc.DatasetError, match=r"did you mean citeseer\?"):
        lmc.load("citseer", root=tmp_path)
    with pytest.raises(lmc.DatasetError, match=r"nowhere/g\.npz: no such file"):
        lmc.load("nowhere/g.npz")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indices": None}, "array 'indices' is missing"),
        ({"indices": np.array([1, 0, 5, 1])}, "indices[2] = 5: node ids must be in 0..2"),
        ({"x": np.array([["a"], ["b"], ["c"]])}, "x holds text, such as 'a': must be numbers"),
        (
            {"edge_type": np.array(["likes", "cites", "likes", "cites"])},
            "edge_type holds text, such as 'likes': must be numbers; numpy.unique(names, return_",
        ),
        ({"x": np.array([{}, {}, {}])}, "not a readable .npz of plain arrays"),
        ({"x_indptr": np.array([0, 1, 1, 9])}, "not a graph ("),
    ],
)
def test_wrong_files_are_one_line(tmp_path, changed, message):
    file = tmp_path / "g.npz"
    np.savez(file, **neutral(**changed))
    with pytest.raises(lmc.LMCError) as caught:
        lmc.load(file)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_byte_of_a_file_can_raise_anything_else(tmp_path):
    np.savez_compressed(tmp_path / "g.npz", **neutral())
    whole = (tmp_path / "g.npz").read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 300):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(0, 8)
        (tmp_path / "d.npz").write_bytes(damaged)
        with contextlib.suppress(lmc.LMCError):
            assert lmc.load(tmp_path / "d.npz").num_nodes == 3


def test_one_node_without_a_split_trains(tmp_path):
    np.savez(tmp_path / "g.npz", indptr=[0, 0], indices=np.empty(0, int), y=[0])
    assert lmc.load(tmp_path / "g.npz").train_mask.tolist() == [True]


def test_a_cut_off_file_is_one_line(tmp_path):
    file = tmp_path / "g.npz"
    np.savez(file, **neutral())
    for size in (500, 10, 0):
        os.truncate(file, size)
        with pytest.raises(lmc.DatasetError, match=r"not a readable \.npz"):
            lmc.load(file)


def test_a_graph_in_the_working_folder_comes_before_a_published_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lmc.synthetic(nodes=100).save("cora")
    graph = lmc.load("cora")
    assert graph.num_nodes == 100
    monkeypatch.chdir("/")
    assert lmc.load(graph.source["name"]).num_nodes == 100  # from anywhere


def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lmc.DatasetError, match=r"^nope\.npz: no such file"):
        lmc.load("nope.npz")


def test_features_that_are_left_aside_are_said(tmp_path):
    lmc.synthetic(nodes=50, features=6).save(tmp_path / "g")
    with pytest.warns(UserWarning, match="its 6 features are left aside for those made of its edges"):
        assert lmc.load(tmp_path / "g", features="degree").num_features != 6
