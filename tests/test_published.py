"""The real loaders of PyG and OGB, on small files in their real layouts."""

import io
import json
import re
import shutil
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from torch_geometric.datasets import Amazon, Planetoid

import lmc
from commands import called
from lmc.cli.bench import command as bench_command
from lmc.data.published import PUBLISHED, published_name
from lmc.data.pyg_sets import PyGSet
from lmc.paper import numbers
from lmc.paper.cost import GRAPHS
from lmc.runs.presets import PRESETS
from planetoid_files import small_planetoid

PATH = sparse.csr_matrix(np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]], float))
FEATURES = np.arange(8.0).reshape(4, 2)


@pytest.fixture(autouse=True)
def _nothing_but_what_a_test_writes(tmp_path, monkeypatch):
    monkeypatch.delenv("LMC_DATA", raising=False)
    monkeypatch.chdir(tmp_path)

    def refuse(*_, **__):
        raise OSError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr("torch_geometric.datasets.planetoid.fs.cp", refuse)


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
        ("pubmed", "pubmed/raw/ind.pubmed.x"),
        ("Coauthor_Physics", "coauthor_physics/raw/ms_academic_phy.npz"),
        ("cora-full", "cora_full/raw/cora.npz"),
    ],
)
def test_without_a_network_one_line_says_which_file_goes_where(tmp_path, name, file):
    with pytest.raises(lmc.DatasetError) as caught:
        lmc.load(name, root=tmp_path)
    message = str(caught.value)
    assert f"{tmp_path / file} is missing and cannot be downloaded" in message
    assert list(tmp_path.iterdir()) == []
    assert "\n" not in message


def test_a_table_that_is_not_there_is_named(tmp_path):
    ogbn("ogbn-arxiv", "time")(tmp_path)
    (tmp_path / "ogbn_arxiv" / "split" / "time" / "valid.csv.gz").unlink()
    with pytest.raises(lmc.DatasetError, match=r"cannot be read \(FileNotFoundError: .*/valid\.csv\.gz\)"):
        lmc.load("arxiv", root=tmp_path)


def test_files_are_found_in_the_second_folder(tmp_path, monkeypatch):
    flickr(tmp_path / "second")
    monkeypatch.setenv("LMC_DATA", str(tmp_path / "second"))
    assert lmc.load("flickr", root=tmp_path / "first").num_nodes == 4


def test_files_that_do_not_parse_are_one_line(tmp_path):
    flickr(tmp_path)
    (tmp_path / "flickr" / "raw" / "role.json").write_text("{")
    with pytest.raises(lmc.DatasetError, match=r"flickr: the files in .*flickr cannot be read \(JSON"):
        lmc.load("flickr", root=tmp_path)


def neutral(file, num_nodes):
    """A graph that is no published one, which its number of nodes tells."""
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, indptr=[0] * (num_nodes + 1), indices=np.empty(0, int), y=[0] * num_nodes)


def npz(folder, file):
    """Amazon, Coauthor and CitationFull: two CSR matrices and labels, and names that are objects."""

    def write(root):
        raw = root / folder / "raw"
        raw.mkdir(parents=True)
        directed = sparse.csr_matrix(np.triu(PATH.toarray()) + np.diag([0, 0, 1.0, 0]))
        arrays = {"labels": np.array([0, 1, 0, 1]), "class_names": np.array(["a", None], dtype=object)}
        for prefix, matrix in {"adj": directed, "attr": sparse.csr_matrix(FEATURES)}.items():
            parts = {part: getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
            arrays |= {f"{prefix}_{part}": array for part, array in parts.items()}
        np.savez(raw / file, **arrays)

    return write


WITHOUT_SPLIT = {
    "amazon-photo": npz("amazon_photo", "amazon_electronics_photo.npz"),
    "amazon-computers": npz("Computers", "amazon_electronics_computers.npz"),
    "coauthor-cs": npz("coauthor_cs", "ms_academic_cs.npz"),
    "coauthor-physics": npz("Physics", "ms_academic_phy.npz"),
    "cora-full": npz("cora_full", "cora.npz"),
    "cora-ml": npz("cora_ml", "cora_ml.npz"),
    "dblp": npz("dblp", "dblp.npz"),
}


@pytest.mark.parametrize("name", WITHOUT_SPLIT)
def test_graphs_without_a_published_split_have_the_one_of_files(tmp_path, name):
    WITHOUT_SPLIT[name](tmp_path)
    graph = lmc.load(name, root=tmp_path)
    assert graph.adjacency.to_dense().tolist() == PATH.toarray().tolist()
    assert graph.x.tolist() == (FEATURES > 0).tolist()
    assert graph.y.tolist() == [0, 1, 0, 1]
    neutral(tmp_path / "four.npz", 4)
    other = lmc.load(tmp_path / "four.npz")
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(graph, mask), getattr(other, mask))


def test_flickr_graph_is_flickr_without_its_features(tmp_path):
    flickr(tmp_path)
    graph = lmc.load("flickr-graph", root=tmp_path)
    assert (graph.num_nodes, graph.num_features, graph.num_edges) == (4, 0, 6)
    assert lmc.load("flickr", root=tmp_path).num_features == 2
    assert lmc.load("flickr_graph", root=tmp_path).num_features == 0


# -- names ---------------------------------------------------------------------------------------


def test_the_files_are_those_that_pyg_would_look_for():
    """And every class is one of PyG's, so that a download has somewhere to come from."""
    for name, one in PUBLISHED.items():
        if isinstance(one.source, PyGSet):
            asked = []

            class Asked(one.source._class()):
                def _download(self, asked=asked):
                    asked.append(self.raw_file_names)

                def _process(self):
                    pass

                def load(self, path):
                    pass

            Asked("", *one.source._arguments())
            (files,) = asked
            assert one.files == ((files,) if isinstance(files, str) else tuple(files)), name


def test_every_name_in_presets_bench_paper_and_readme_is_published():
    names = {preset["data"]["name"] for preset in PRESETS.values()}
    names |= {option.default for option in bench_command.params if option.name == "data"}
    names |= {*GRAPHS, *numbers.SMALL}
    readme = re.sub("#.*", "", (Path(__file__).parents[1] / "README.md").read_text())
    written = re.findall(r"""(?:--data |lmc inspect |lmc\.load\(")([a-z][\w-]*)(?![\w./-])""", readme)
    names |= {*written} - {"synthetic"}
    assert {"arxiv", "reddit", "cora", "flickr-graph"} <= names
    assert {name for name in names if published_name(name) not in PUBLISHED} == set()


@pytest.mark.parametrize(
    ("typed", "file"),
    [
        ("flickr", "flickr.npz"),
        ("Flickr", "flickr.npz"),
        ("amazon-photo", "amazon_photo.npz"),
        ("AmazonPhoto", "amazon-photo.npz"),
        ("arxiv", "arxiv.npz"),
        ("arxiv", "ogbn-arxiv.npz"),
        ("ogbn_arxiv", "ogbn-arxiv.npz"),
    ],
)
def test_a_plain_file_of_that_name_comes_first(tmp_path, typed, file):
    for write in (*WRITERS.values(), *WITHOUT_SPLIT.values()):
        write(tmp_path)
    neutral(tmp_path / file, 7)
    assert lmc.load(typed, root=tmp_path).num_nodes == 7


def test_arxiv_is_the_file_of_that_name_or_ogbs(tmp_path):
    WRITERS["ogbn-arxiv"](tmp_path)
    assert lmc.load("arxiv", root=tmp_path).num_nodes == 4
    neutral(tmp_path / "arxiv.npz", 7)
    assert lmc.load("arxiv", root=tmp_path).num_nodes == 7
    assert lmc.load("ogbn-arxiv", root=tmp_path).num_nodes == 4


def test_the_first_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("LMC_DATA", str(tmp_path / "second"))
    flickr(tmp_path / "first")
    neutral(tmp_path / "second" / "flickr.npz", 7)
    assert lmc.load("flickr").num_nodes == 7
    assert lmc.load("flickr", root=tmp_path / "first").num_nodes == 4


# -- downloads -----------------------------------------------------------------------------------


class Served:
    """Files of a folder, to whoever asks for an address that ends in their name."""

    def __init__(self, folder, fails_at=None):
        self.folder, self.fails_at, self.asked = folder, fails_at, []

    def urlopen(self, url, **_):
        self.asked.append(url)
        return io.BytesIO(self.content(url.rpartition("/")[2]))

    def cp(self, url, folder):
        self.asked.append(url)
        name = url.rpartition("/")[2]
        (Path(folder) / name).write_bytes(self.content(name))

    def content(self, name):
        if name == self.fails_at:
            raise OSError("the connection was lost")
        return (self.folder / name).read_bytes()


def test_planetoid_is_downloaded_once_and_whole(tmp_path, monkeypatch, capsys):
    there, here = tmp_path / "there", tmp_path / "here"
    small_planetoid(there, "cora")
    broken = Served(there, fails_at="ind.cora.ally")
    monkeypatch.setattr("torch_geometric.datasets.planetoid.fs.cp", broken.cp)
    with pytest.raises(lmc.DatasetError, match=r"ind\.cora\.x is missing .*the connection was lost"):
        lmc.load("cora", root=here)
    assert not here.exists()
    served = Served(there)
    monkeypatch.setattr("torch_geometric.datasets.planetoid.fs.cp", served.cp)
    capsys.readouterr()
    assert lmc.load("cora", root=here).num_nodes == 10
    assert capsys.readouterr() == ("", f"lmc: downloading cora into {here / 'cora' / 'raw'}\n")
    assert {url.rpartition("/")[0] for url in served.asked} == {Planetoid.url}
    assert sorted(path.name for path in (here / "cora").iterdir()) == ["graph", "raw"]
    assert len(list((here / "cora" / "raw").iterdir())) == len(served.asked) == 8
    assert lmc.load("cora", root=here).num_nodes == 10
    assert len(served.asked) == 8
    assert capsys.readouterr() == ("", "")


def test_amazon_is_downloaded_into_the_first_folder(tmp_path, monkeypatch):
    WITHOUT_SPLIT["amazon-photo"](tmp_path / "there")
    served = Served(tmp_path / "there" / "amazon_photo" / "raw")
    monkeypatch.setattr(urllib.request, "urlopen", served.urlopen)
    monkeypatch.setenv("LMC_DATA", str(tmp_path / "second"))
    assert lmc.load("amazon_photo", root=tmp_path / "first").num_nodes == 4
    assert served.asked == [f"{Amazon.url}amazon_electronics_photo.npz"]
    assert (tmp_path / "first" / "amazon_photo" / "raw" / "amazon_electronics_photo.npz").is_file()
    assert not (tmp_path / "second").exists()


def test_ogb_is_downloaded_as_one_archive(tmp_path, monkeypatch):
    ogbn("ogbn-arxiv", "time")(tmp_path / "there")
    (tmp_path / "there" / "ogbn_arxiv").rename(tmp_path / "there" / "arxiv")
    shutil.make_archive(str(tmp_path / "arxiv"), "zip", tmp_path / "there", "arxiv")

    def urlopen(url):
        content = (tmp_path / url.rpartition("/")[2]).read_bytes()
        answer = io.BytesIO(content)
        answer.info = lambda: {"Content-Length": str(len(content))}
        return answer

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert lmc.load("arxiv", root=tmp_path / "here").num_nodes == 4
    assert sorted(p.name for p in (tmp_path / "here" / "ogbn_arxiv").iterdir()) == ["graph", "raw", "split"]


def test_files_that_somebody_put_there_are_kept(tmp_path, monkeypatch):
    small_planetoid(tmp_path / "cora" / "raw", "cora")
    (tmp_path / "cora" / "raw" / "ind.cora.ally").unlink()
    with pytest.raises(
        lmc.DatasetError, match=r"raw/ind\.cora\.ally is missing .*; put it there from github"
    ):
        lmc.load("cora", root=tmp_path)
    assert len(list((tmp_path / "cora" / "raw").iterdir())) == 7
    assert [path.name for path in (tmp_path / "cora").iterdir()] == ["raw"]


def test_without_ogb_one_line_says_what_to_type(tmp_path, monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "ogb"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ogb", None)
    for write in ((lambda root: None), WRITERS["ogbn-arxiv"]):
        write(tmp_path)
        with pytest.raises(lmc.DatasetError) as raised:
            lmc.load("arxiv", root=tmp_path)
        assert "needs the package ogb; type: pip install 'lmc[ogb]'" in str(raised.value)
        assert "\n" not in str(raised.value)


def test_the_command_line_says_what_there_is(tmp_path):
    done = called("inspect", "corra", "--root", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("lmc: data set 'corra' is missing: did you mean cora? Looked for")
    assert "known are synthetic (needs no file), arxiv, " in done.stderr
    assert done.stderr.count("\n") == 1
    done = called("inspect", "Cora", "--root", tmp_path)
    assert done.returncode == 2
    assert "put it and 7 more there from github.com/kimiyoung/planetoid" in done.stderr
    assert done.stderr.endswith("; `lmc inspect synthetic` needs no file\n")
