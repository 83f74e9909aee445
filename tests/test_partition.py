import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from strategies import graphs

METHODS = ("auto", "metis", "stream", "bfs", "random")


@pytest.mark.parametrize("method", METHODS)
@given(example=graphs(), parts=st.integers(1, 15))
def test_every_node_has_a_cluster_and_none_is_empty(method, example, parts):
    clusters = lmc.partition(example.graph, parts, method, cache=False)
    assert clusters.dtype == torch.int64
    assert clusters.shape == (example.graph.num_nodes,)
    used = clusters.unique().tolist()
    assert used == list(range(len(used)))
    assert len(used) <= parts
    if parts >= example.graph.num_nodes:
        assert len(used) == example.graph.num_nodes


@pytest.mark.parametrize("method", METHODS)
def test_clusters_are_balanced_and_cut_few_edges(method):
    graph = lmc.synthetic(nodes=2000)
    clusters = lmc.partition(graph, 10, method)
    sizes = torch.bincount(clusters)
    assert sizes.numel() == 10
    assert sizes.max() <= 1.2 * 200
    random = lmc.partition(graph, 10, "random", seed=1)
    within, at_random = (lmc.reserved_messages(graph, c)["ClusterGCN"].forward for c in (clusters, random))
    assert within > {"auto": 2.5, "metis": 2.5, "stream": 2.3, "bfs": 1.1, "random": 0.95}[method] * at_random


def test_one_seed_gives_the_same_clusters_and_another_gives_others():
    graph = lmc.synthetic(nodes=500)
    for method in ("metis", "stream", "random"):
        assert torch.equal(*(lmc.partition(graph, 8, method, seed=1, cache=False) for _ in range(2)))
        one, two = (lmc.partition(graph, 8, method, seed=s, cache=False) for s in (1, 2))
        assert not torch.equal(one, two)


def test_directed_graphs_are_cut_as_if_undirected():
    n = 100
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    arguments = (torch.ones(n, 1), torch.zeros(n, dtype=torch.long), torch.ones(n, dtype=torch.bool))
    one_way = lmc.Graph(ring, *arguments)
    both_ways = lmc.Graph(torch.cat([ring, ring.flip(0)], 1), *arguments)
    assert not one_way.is_undirected
    assert torch.equal(lmc.partition(one_way, 4), lmc.partition(both_ways, 4))


def test_without_pymetis_bfs_is_used_with_a_warning(monkeypatch):
    graph = lmc.synthetic(nodes=300)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.warns(UserWarning, match='pymetis is not installed: method="bfs" is used'):
        clusters = lmc.partition(graph, 6)
    assert torch.equal(clusters, lmc.partition(graph, 6, "bfs"))


def test_wrong_arguments_are_named():
    graph = lmc.synthetic(nodes=50)
    with pytest.raises(
        lmc.ArgumentError, match="method='louvain': must be one of auto, metis, kaminpar, stream, bfs, random"
    ):
        lmc.partition(graph, 2, "louvain")
    with pytest.raises(lmc.ArgumentError, match="parts=0: must be 1 or more"):
        lmc.partition(graph, 0)


# -- the cache -------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LMC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "partitions"


def test_clusters_are_found_again_by_graph_and_arguments(cache):
    graph = lmc.synthetic(nodes=300)
    lmc.partition(graph, 5)
    (file,) = cache.iterdir()
    # A marked result shows that the file is what is read.
    marked = np.arange(300) % 5
    np.save(file, marked)
    assert lmc.partition(lmc.synthetic(nodes=300), 5).tolist() == marked.tolist()
    for other in ({"parts": 6}, {"parts": 5, "seed": 1}, {"parts": 5, "method": "random"}):
        assert lmc.partition(graph, **other).tolist() != marked.tolist()
    assert lmc.partition(lmc.synthetic(nodes=300, seed=1), 5).tolist() != marked.tolist()
    assert lmc.partition(graph, 5, cache=False).tolist() != marked.tolist()


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", b"not an array", None],
    ids=["empty", "cut off", "other", "other graph"],
)
def test_a_damaged_file_is_computed_anew(cache, content):
    graph = lmc.synthetic(nodes=300)
    right = lmc.partition(graph, 5)
    (file,) = cache.iterdir()
    if content is None:
        np.save(file, np.arange(10))
    else:
        file.write_bytes(content)
    assert torch.equal(lmc.partition(graph, 5), right)
    assert np.array_equal(np.load(file), right.numpy())


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path, monkeypatch):
    occupied = tmp_path / "file"
    occupied.write_text("")
    monkeypatch.setenv("LMC_CACHE", str(occupied))
    assert lmc.partition(lmc.synthetic(nodes=300), 5).shape == (300,)


def test_kaminpar_cuts_as_few_edges_as_metis():
    pytest.importorskip("kaminpar")
    graph = lmc.synthetic(nodes=2000)

    def cut(method):
        clusters = lmc.partition(graph, 20, method, cache=False)
        source, target = graph.to_pyg().edge_index
        assert clusters.bincount().max() <= 110
        return int((clusters[source] != clusters[target]).sum())

    assert cut("kaminpar") < 1.1 * cut("metis") < 0.8 * cut("random")
    same = [lmc.partition(graph, 20, "kaminpar", seed=3, cache=False) for _ in range(2)]
    assert torch.equal(*same)


def test_without_kaminpar_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kaminpar", None)
    with pytest.raises(lmc.ArgumentError, match=r"pip install 'lmc\[kaminpar\]'"):
        lmc.partition(lmc.synthetic(nodes=50), 4, "kaminpar", cache=False)


def test_where_metis_fails_it_is_one_line(monkeypatch):
    pymetis = pytest.importorskip("pymetis")

    def fails(*given, **options):
        raise RuntimeError("Caught an unknown exception!")  # what it says where there is no memory

    monkeypatch.setattr(pymetis, "part_graph", fails)
    with pytest.raises(
        lmc.LMCError, match=r'parts=3: METIS has failed .*; partition="stream" takes far less'
    ):
        lmc.partition(lmc.synthetic(nodes=100), 3, "metis", cache=False)
