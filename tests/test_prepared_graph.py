"""A prepared folder is the graph that it was made of: for who asks, and for trainings and predictions."""

import os
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lmc
from commands import called, fails
from lmc.data import stored
from lmc.data.normalization import propagated
from lmc.data.prepared_graph import PreparedGraph
from lmc.data.set_once import with_arrays
from lmc.training.state_check import fingerprint
from strategies import graphs
from test_disk_histories import last_state

ARRAYS = ("x", "y", "train_mask", "val_mask", "test_mask", "edge_weight", "edge_attr", "edge_type")


def prepared(graph, folder, **options):
    shutil.rmtree(folder, ignore_errors=True)
    lmc.prepare(graph, folder, **{"parts": 6, "partition": "random", **options})
    return lmc.load(folder)


def same(one, other):
    return (one is None) == (other is None) and (one is None or torch.equal(one, other))


@settings(max_examples=30, deadline=None)
@given(example=graphs(), parts=st.integers(1, 5))
def test_everything_is_under_the_users_own_numbers(tmp_path_factory, example, parts):
    graph = example.graph
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmc.data.prepared_graph.ROWS_AT_ONCE", 3)
        patch.setattr(stored, "ROWS_AT_ONCE", 5)
        found = prepared(graph, tmp_path_factory.mktemp("graphs") / "g", parts=parts)
        assert repr(found) == repr(graph)
        assert found.adjacency.equal(graph.adjacency)
        for name in ARRAYS:
            assert same(getattr(found, name), getattr(graph, name)), name
        assert found.is_undirected == graph.is_undirected
        assert (found.task, found.num_classes) == (graph.task, graph.num_classes)


def rich_graph():
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 40, (2, 200))
    return lmc.Graph(
        ends,
        rng.normal(size=(40, 3)),
        rng.integers(0, 2, 40),
        rng.random(40) < 0.5,
        edge_weight=rng.random(200),
        edge_attr=rng.normal(size=(200, 2)),
        edge_type=rng.integers(0, 4, 200),
        id=[f"node {number}" for number in range(40)],
        class_names=["a", "b"],
        feature_names=["p", "q", "r"],
    )


def test_so_are_names_and_what_edges_have(tmp_path):
    graph = rich_graph()
    found = prepared(graph, tmp_path / "g")
    for name in ARRAYS:
        assert same(getattr(found, name), getattr(graph, name)), name
    assert found.id.tolist() == graph.id.tolist()
    assert (found.class_names, found.feature_names) == (graph.class_names, graph.feature_names)
    assert found.source == {"name": str(tmp_path / "g")}
    other = found.select_features(["r", "p"])
    assert torch.equal(other.x, graph.x[:, [2, 0]])
    assert other.by_cluster is other
    replaced = found.replace(y=1 - graph.y)
    assert torch.equal(replaced.by_cluster.y, 1 - graph.y)
    assert other.adjacency.equal(graph.adjacency)


GRAPH = lmc.synthetic(nodes=400, features=8, classes=4).to(torch.float64)
SOME = {"parts_per_batch": 2, "epochs": 3, "progress": False, "balance": "none"}


def trained(graph, estimator=lmc.LMC, **options):
    torch.manual_seed(0)
    model = lmc.GCN(8, 6, 4, layers=3).double()
    result = lmc.fit(graph, model, estimator(), **{**SOME, **options})
    return result, model


@pytest.mark.parametrize("estimator", [lmc.LMC, lmc.GAS, lmc.ClusterGCN])
def test_a_training_is_the_one_on_the_graph_with_these_clusters(tmp_path, estimator):
    """Sums have another order, all else is the same."""
    theirs, model = trained(GRAPH, estimator, parts=6, partition="random")
    found = prepared(GRAPH, tmp_path / "g")
    ours, other = trained(found, estimator)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-12)
    assert [r.test for r in ours.history] == [r.test for r in theirs.history]
    expected = lmc.predict(GRAPH, model)
    assert torch.allclose(lmc.predict(found, other), expected, atol=1e-10)
    some = [7, 3, 250]
    assert torch.allclose(lmc.predict(found, other, nodes=some), expected[some], atol=1e-10)
    mask = torch.arange(400) % 150 == 3
    assert torch.allclose(lmc.predict(found, other, nodes=mask), expected[mask], atol=1e-10)


@pytest.mark.parametrize("shards", [1, 3])
def test_it_has_the_bytes_of_one_in_memory(tmp_path, shards):
    """The same nodes in the same order, from files and from memory."""
    found = prepared(GRAPH.to(torch.float32), tmp_path / "g", shards=shards).by_cluster
    arrays = [found.adjacency.indptr, found.adjacency.indices]
    arrays += [getattr(found, name) for name in ARRAYS[:5]]
    held = lmc.Graph.from_csr(*(array.clone() for array in arrays))
    held.cluster_starts, held.shards = found.cluster_starts, shards
    assert fingerprint(held) == fingerprint(found)
    weights, seen = [], []
    for graph in (held, found):
        torch.manual_seed(0)
        model = lmc.GCN(8, 6, 4, layers=3, dropout=0.3, norm="batch")
        result = lmc.fit(graph, model, lmc.LMC(), shards=shards, **SOME)
        seen.append([(r.loss, r.val, r.test) for r in result.history])
        weights.append([*model.parameters(), lmc.predict(graph, model)])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
    assert seen[0] == seen[1]


def test_sums_of_features_are_made_where_they_are_of_use(tmp_path):
    graph = prepared(GRAPH, tmp_path / "g").by_cluster
    some = torch.tensor([3, 4, 5, 90, 200, 399])
    part = with_arrays(graph, within=some)
    of_all, of_some = propagated(graph, "gcn"), propagated(part, "gcn")
    assert torch.equal(of_some[some], of_all[some])
    assert not of_some[torch.ones(400).bool().index_fill(0, some, False)].any()
    assert torch.equal(propagated(part, "gcn", hops=2), propagated(graph, "gcn", hops=2))
    estimator = lmc.LMC()
    estimator.bind(lmc.GCN(8, 6, 4).double(), part)
    assert part.within is not None
    assert estimator.whole.num_nodes == 400
    assert torch.equal(propagated(part, "gcn"), of_all)


def test_clusters_are_those_of_the_folder(tmp_path):
    found = prepared(GRAPH, tmp_path / "g")
    result, _ = trained(found, parts=6)
    assert result.batches.startswith("2 of 6 clusters each")
    with pytest.raises(lmc.ArgumentError, match="parts=7: the prepared graph has 6 clusters"):
        trained(found, parts=7)


# -- on the command line ---------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    lmc.synthetic(nodes=300, features=8, classes=4).save(tmp_path / "graph")
    called("prepare", tmp_path / "graph", "--parts", 6, "--out", tmp_path / "p")
    return tmp_path / "p"


TRAIN = ("--hidden", 8, "--parts-per-batch", 2, "--histories", "disk", "--quiet")


def test_train_resume_and_predict(tmp_path, folder):
    called("train", "--data", folder, *TRAIN, "--epochs", 4, "--out", tmp_path / "whole")
    called("train", "--data", folder, *TRAIN, "--epochs", 2, "--out", tmp_path / "run")
    shutil.move(folder, tmp_path / "moved")
    line = fails(2, "train", "--resume", tmp_path / "run", "--epochs", 4, "--quiet", through=called)
    assert "no such file, or not a graph" in line
    again = ("--resume", tmp_path / "run", "--epochs", 4, "--quiet", "--data", tmp_path / "moved")
    called("train", *again)
    assert last_state(tmp_path / "run") == last_state(tmp_path / "whole")
    for data, out in ((tmp_path / "moved", "p.npz"), (tmp_path / "graph", "g.npz")):
        called("predict", tmp_path / "run", "--data", data, "--out", tmp_path / out)
    ours, theirs = np.load(tmp_path / "p.npz"), np.load(tmp_path / "g.npz")
    for name in theirs.files:
        if theirs[name].dtype.kind == "f":
            assert np.allclose(ours[name], theirs[name], atol=1e-5), name
        else:
            assert (ours[name] == theirs[name]).all(), name


def test_a_graph_that_was_prepared_anew_is_named(tmp_path, folder):
    called("train", "--data", folder, *TRAIN, "--epochs", 1, "--out", tmp_path / "run")
    before = sorted((tmp_path / "run").rglob("*"))
    shutil.rmtree(folder)
    called("prepare", tmp_path / "graph", "--parts", 7, "--out", folder)
    resume = ("train", "--resume", tmp_path / "run", "--epochs", 2, "--quiet")
    line = fails(2, *resume, through=called)
    assert "the run has 6 clusters: the prepared graph has 7" in line
    shutil.rmtree(folder)
    called("prepare", tmp_path / "graph", "--parts", 6, "--partition", "random", "--out", folder)
    line = fails(1, *resume, through=called)
    assert "which has changed" in line
    assert sorted((tmp_path / "run").rglob("*")) == before
    shutil.rmtree(folder)
    called("prepare", tmp_path / "graph", "--parts", 6, "--out", folder)
    called(*resume)


@pytest.mark.parametrize("damage", ["bit", "torn"])
def test_a_damaged_extent_is_one_line_and_the_run_goes_on_with_it_mended(tmp_path, folder, damage):
    called("train", "--data", folder, *TRAIN, "--epochs", 1, "--out", tmp_path / "run")
    file = folder / "x.bin"
    whole = file.read_bytes()
    if damage == "bit":
        file.write_bytes(whole[:5000] + bytes([whole[5000] ^ 4]) + whole[5001:])
    else:
        file.write_bytes(whole[:5000] + bytes(len(whole) - 5000))
    resume = ("train", "--resume", tmp_path / "run", "--epochs", 2, "--quiet")
    line = fails(2, *resume, through=called)
    assert "x.bin: the rows of cluster" in line
    assert "are not those that were written; prepare the graph anew" in line
    file.write_bytes(whole)
    called(*resume)


def test_a_read_that_fails_is_one_line(tmp_path, folder, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(lmc.GraphError, match=r"\.bin: cannot be read \(Input/output error\)"):
        PreparedGraph(folder)


def test_two_runs_on_one_folder(folder):
    """Files are only read: each has the bytes that it would have alone."""
    graphs = [lmc.load(folder) for _ in range(2)]
    models = []
    for graph in graphs:
        torch.manual_seed(0)
        models.append(lmc.GCN(8, 6, 4, layers=2))
        lmc.fit(graph, models[-1], lmc.LMC(), parts_per_batch=2, epochs=1, progress=False)
    weights = [list(model.parameters()) for model in models]
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_nodes_of_another_process_receive_what_they_would_alone(tmp_path):
    """A process makes A X of the nodes of its own shards; by hand, others too."""
    graph = with_arrays(prepared(lmc.synthetic(nodes=300, features=5), tmp_path / "g").by_cluster)
    graph.within = torch.arange(100)
    a_x = lmc.normalize(graph) @ graph.x
    for nodes in (torch.arange(40), torch.arange(140, 190)):
        torch.testing.assert_close(graph.batch(nodes).received_features("gcn"), a_x[nodes])
    assert graph.within is None
