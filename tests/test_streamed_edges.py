"""Tables of edges larger than memory, beside those that are read at once."""

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import lmc
from commands import called, fails
from lmc.data import sorted_edges
from lmc.sparse import index_dtype


@pytest.mark.filterwarnings("ignore:.*edges.csv. left out. 'more'")
@settings(max_examples=15, deadline=None)
@given(
    nodes=st.integers(1, 12),
    count=st.integers(1, 40),
    undirected=st.booleans(),
    suffix=st.sampled_from([".csv", ".parquet"]),
    seed=st.integers(0, 999),
)
def test_the_graph_is_that_of_the_edges(tmp_path_factory, nodes, count, undirected, suffix, seed):
    folder, numbers = tmp_path_factory.mktemp("edges"), np.random.default_rng(seed)
    source, target = numbers.integers(0, nodes, (2, count))
    file = folder / f"edges{suffix}"
    if suffix == ".csv":
        rows = "".join(f"{t},9,{s}\n" for s, t in zip(source, target, strict=True))
        file.write_text(f"to,more,from\n{rows}")
    else:
        parquet.write_table(pyarrow.table({"source": source, "target": target.astype(np.int32)}), file)
    x = numbers.normal(size=(nodes, 3)).astype(np.float32)
    y, train = numbers.integers(0, 2, nodes), numbers.random(nodes) < 0.5
    for name, array in (("x", x), ("y", y), ("train_mask", train)):
        np.save(folder / f"{name}.npy", array)
    ends = np.stack([source, target])
    if undirected:
        ends = np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)
    expected = lmc.Graph(ends, x, y, train)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_edges, "BUCKET_EDGES", 5)
        found = lmc.import_edges(file, folder / "graph", nodes, folder, undirected=undirected)
    assert found.adjacency.equal(expected.adjacency)
    for name in ("x", "y", "train_mask", "val_mask"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_what_is_wrong_is_one_line(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n2,7\n")
    with pytest.raises(lmc.DatasetError, match=r"node 7: must be from 0 to 2 \(nodes=3\)"):
        lmc.import_edges(tmp_path / "edges.csv", tmp_path / "g", 3)
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    with pytest.raises(lmc.DatasetError, match="not a table that can be read"):
        lmc.import_edges(tmp_path / "edges.csv", tmp_path / "g", 3)
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    np.save(tmp_path / "x.npy", np.zeros((2, 1)))
    with pytest.raises(lmc.ArgumentError, match="must have nodes=3 rows"):
        lmc.import_edges(tmp_path / "edges.csv", tmp_path / "g", 3, tmp_path)
    assert not (tmp_path / "g").exists()


def test_columns_that_are_not_read_are_named(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target,weight\n0,1,0.5\n")
    with pytest.warns(
        UserWarning, match=r"edges.csv: left out: 'weight'; read are source, target; weights and"
    ):
        lmc.import_edges(tmp_path / "edges.csv", tmp_path / "g", 2)


def test_into_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    lmc.import_edges("../edges.csv", ".", 2)
    assert lmc.Graph.open(".").num_edges == 1


def test_on_the_command_line(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n2,1\n")
    done = called("import", tmp_path / "edges.csv", "--nodes", "3", "--undirected", "--out", tmp_path / "g")
    assert "Graph(3 nodes, 4 edges, 0 features" in done.stdout
    given = ("import", tmp_path / "edges.csv", "--nodes", "3", "--labels", "y.csv", "--out", tmp_path / "h")
    assert "--labels: with --nodes" in fails(2, *given, through=called)


def test_more_than_2_to_the_31_edges_are_counted():
    assert index_dtype(2**31 - 1) == torch.int32
    assert index_dtype(2**31) == torch.int64
    # Rows of 2^31 messages each, of which only where they begin is there.
    indptr = torch.arange(4, dtype=torch.int64) * 2**31
    rows = lmc.CSR(indptr, torch.empty(0, dtype=torch.int32), None, 3)
    assert rows.row_lengths().tolist() == [2**31] * 3
