"""The real loaders of PyG and OGB, on small files in their real layouts."""

import json
import urllib.request

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import lmc

PATH = sparse.csr_matrix(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], float))
FEATURES = np.arange(8.0).reshape(4, 2)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def flickr(root):
    raw = root / "flickr" / "raw"
    raw.mkdir(parents=True)
    arrays = {name: getattr(PATH, name) for name in ("data", "indices", "indptr")}
    np.savez(raw / "adj_full.npz", shape=PATH.shape, **arrays)
    np.save(raw / "feats.npy", FEATURES)
    (raw / "class_map.json").write_text(json.dumps({str(i): i % 2 for i in range(4)}))
    (raw / "role.json").write_text(json.dumps({"tr": [0, 3], "va": [1], "te": [2]}))


def reddit(root):
    raw = root / "reddit" / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "reddit_data.npz", feature=FEATURES, label=[0, 1, 0, 1], node_types=[1, 2, 3, 1])
    sparse.save_npz(raw / "reddit_graph.npz", PATH.tocoo())


def ppi(root):
    raw = root / "ppi" / "raw"
    raw.mkdir(parents=True)
    for part, sizes in {"train": [2, 3], "valid": [2], "test": [2]}.items():
        n = sum(sizes)
        ids = np.repeat(np.arange(len(sizes)), sizes) + 1
        links = [{"source": i, "target": i + 1} for i in range(n - 1) if ids[i] == ids[i + 1]]
        nodes = [{"id": i} for i in range(n)]
        body = {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
        (raw / f"{part}_graph.json").write_text(json.dumps(body))
        np.save(raw / f"{part}_feats.npy", np.full((n, 3), float(n)))
        np.save(raw / f"{part}_labels.npy", np.eye(n, 4, dtype=int))
        np.save(raw / f"{part}_graph_id.npy", ids)


def ogbn(name, split):
    def write(root):
        folder = root / name.replace("-", "_")

        def table(path, rows):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(rows).to_csv(folder / path, header=False, index=False, compression="gzip")

        table("raw/edge.csv.gz", [[0, 1], [2, 1], [2, 3]])
        table("raw/num-node-list.csv.gz", [[4]])
        table("raw/num-edge-list.csv.gz", [[3]])
        table("raw/node-feat.csv.gz", FEATURES)
        table("raw/node-label.csv.gz", [[0], [1], [0], [1]])
        for part, nodes in {"train": [0, 3], "valid": [1], "test": [2]}.items():
            table(f"split/{split}/{part}.csv.gz", [[i] for i in nodes])

    return write


WRITERS = {
    "flickr": flickr,
    "reddit": reddit,
    "ogbn-arxiv": ogbn("ogbn-arxiv", "time"),
    "ogbn-products": ogbn("ogbn-products", "sales_ranking"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_single_graphs_are_read_in_their_real_layouts(tmp_path, name):
    WRITERS[name](tmp_path)
    graph = lmc.load(name, root=tmp_path)
    assert graph.adjacency.to_dense().tolist() == PATH.toarray().tolist()
    assert graph.edge_weight is None
    assert graph.x.tolist() == FEATURES.tolist()
    assert graph.y.tolist() == [0, 1, 0, 1]
    assert graph.train_mask.tolist() == [True, False, False, True]
    assert graph.val_mask.tolist() == [False, True, False, False]
    assert graph.test_mask.tolist() == [False, False, True, False]
    expected = {"ogbn-arxiv": 40, "ogbn-products": 47}.get(name, 2)
    assert graph.num_classes == expected


def test_ppi_keeps_the_role_of_each_graph(tmp_path):
    ppi(tmp_path)
    graph = lmc.load("ppi", root=tmp_path)
    assert graph.task == "multilabel"
    assert graph.num_nodes == 9
    edges = graph.to_pyg().edge_index
    assert sorted(map(tuple, edges[:, edges[0] < edges[1]].T.tolist())) == [
        (0, 1),
        (2, 3),
        (3, 4),
        (5, 6),
        (7, 8),
    ]
    assert graph.is_undirected
    assert graph.train_mask.tolist() == [True] * 5 + [False] * 4
    assert graph.val_mask.tolist() == [False] * 5 + [True] * 2 + [False] * 2


def test_parsed_once_then_opened_and_never_pickled(tmp_path):
    flickr(tmp_path)
    first = lmc.load("flickr", root=tmp_path)
    assert not list(tmp_path.rglob("*.pt"))
    for file in (tmp_path / "flickr" / "raw").iterdir():
        file.unlink()
    assert torch.equal(lmc.load("flickr", root=tmp_path).x, first.x)


def test_a_pickle_in_the_way_is_not_opened(tmp_path):
    flickr(tmp_path)
    processed = tmp_path / "flickr" / "processed"
    processed.mkdir()
    for name in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        (processed / name).write_bytes(f"cos\nsystem\n(S'touch {tmp_path}/executed'\ntR.".encode())
    assert lmc.load("flickr", root=tmp_path).num_nodes == 4
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("flickr", "flickr/raw/adj_full.npz"),
        ("reddit", "reddit/raw/reddit_data.npz"),
        ("ppi", "ppi/raw/train_feats.npy"),
        ("ogbn-arxiv", "ogbn_arxiv/raw/edge.csv.gz"),
        ("ogbn-products", "ogbn_products/raw/edge.csv.gz"),
    ],
)
def test_without_a_network_one_line_says_which_file_goes_where(tmp_path, name, file):
    with pytest.raises(lmc.DatasetError) as caught:
        lmc.load(name, root=tmp_path)
    message = str(caught.value)
    assert f"{tmp_path / file} is missing and cannot be downloaded" in message
    assert list(tmp_path.iterdir()) == []
    assert "\n" not in message


def test_files_are_found_in_the_second_folder(tmp_path, monkeypatch):
    flickr(tmp_path / "second")
    monkeypatch.setenv("LMC_DATA", str(tmp_path / "second"))
    assert lmc.load("flickr", root=tmp_path / "first").num_nodes == 4


def test_files_that_do_not_parse_are_one_line(tmp_path):
    flickr(tmp_path)
    (tmp_path / "flickr" / "raw" / "role.json").write_text("{")
    with pytest.raises(lmc.DatasetError, match=r"flickr: the files in .*flickr cannot be read \(JSON"):
        lmc.load("flickr", root=tmp_path)
