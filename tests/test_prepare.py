"""A prepared folder beside the graph that it was made of, and what damage it notices."""

import shutil
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from commands import called, fails
from lmc.batching import prepare as module
from lmc.batching.shards import cut_into_shards
from lmc.data.extents import Extents, Form
from lmc.data.prepared import Prepared
from strategies import graphs


def assert_holds(prepared, graph, clusters):
    """Every array, cluster by cluster, is the graph's own in its own numbers."""
    seen = []
    for cluster in range(prepared.parts):
        nodes = prepared.nodes(cluster)
        assert nodes.tolist() == np.flatnonzero(clusters == cluster).tolist()
        assert prepared.clusters(nodes).tolist() == [cluster] * len(nodes)
        for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
            assert np.array_equal(prepared.rows(name, cluster), getattr(graph, name).numpy()[nodes]), name
        offsets, sources = prepared.neighbours(cluster)
        own = graph.adjacency
        for row, node in enumerate(nodes):
            entries = slice(int(own.indptr[node]), int(own.indptr[node + 1]))
            found = slice(offsets[row], offsets[row + 1])
            # Rows are in the order of places; repeated edges follow as they did.
            by_place = np.argsort(order_of(prepared)[own.indices[entries]], kind="stable")
            assert sources[found].tolist() == own.indices[entries].numpy()[by_place].tolist()
            for name in ("edge_weight", "edge_attr", "edge_type"):
                if (array := getattr(graph, name)) is not None:
                    wanted = array[entries].numpy()[by_place]
                    assert np.array_equal(prepared.rows(name, cluster)[found], wanted), name
        seen.extend(nodes)
    assert sorted(seen) == list(range(graph.num_nodes))


def order_of(prepared):
    """(nodes,) the place of each node."""
    places = np.empty(prepared.num_nodes, int)
    places[np.concatenate([prepared.nodes(cluster) for cluster in range(prepared.parts)])] = np.arange(
        len(places)
    )
    return places


@given(example=graphs(), parts=st.integers(1, 5), bucket=st.sampled_from([1, 100, 10**6]))
def test_every_row_is_where_its_cluster_is(tmp_path_factory, example, parts, bucket):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_bucket_bytes", lambda *_: bucket)
        folder = tmp_path_factory.mktemp("prepared") / "g"
        prepared = lmc.prepare(example.graph, folder, parts=parts, partition="random")
        clusters = lmc.partition(example.graph, parts, "random").numpy()
        assert_holds(prepared, example.graph, clusters)


def test_all_that_edges_and_nodes_have(tmp_path):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 30, (2, 200))
    graph = lmc.Graph(
        ends,
        rng.normal(size=(30, 3)),
        rng.integers(0, 2, 30),
        edge_weight=rng.normal(size=200),
        edge_attr=rng.normal(size=(200, 2)),
        edge_type=rng.integers(0, 4, 200),
        id=[f"node {number}" for number in range(30)],
    )
    prepared = lmc.prepare(graph, tmp_path / "g", parts=4)
    assert_holds(prepared, graph, lmc.partition(graph, 4).numpy())
    for cluster in range(4):
        assert prepared.rows("id", cluster).tolist() == [f"node {n}" for n in prepared.nodes(cluster)]
    assert repr(prepared) == "Prepared(30 nodes, 200 edges, 4 clusters)"


@pytest.fixture
def folder(tmp_path):
    graph = lmc.synthetic(nodes=600, features=5)
    lmc.prepare(graph, tmp_path / "g", parts=6)
    return tmp_path / "g"


def test_extents_follow_each_other(folder):
    for file in folder.glob("*.extents.npy"):
        table = np.load(file)
        assert table.dtype == np.int64
        assert (table[1:, 0] == table[:-1, 0] + table[:-1, 1]).all()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["g"]


def test_a_flipped_bit_is_found_when_it_is_read(folder):
    file = folder / "x.bin"
    content = bytearray(file.read_bytes())
    content[np.load(folder / "x.extents.npy")[3, 0] + 7] ^= 1
    file.write_bytes(content)
    prepared = Prepared(folder)
    prepared.rows("x", 2)
    with pytest.raises(lmc.GraphError, match="the rows of cluster 3 are not those that were written"):
        prepared.rows("x", 3)


@pytest.mark.parametrize("name", ["x.bin", "indices.bin", "nodes.npy", "x.extents.npy", "prepared.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_folder_is_one_line(folder, name, damage):
    if damage == "gone":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes()[:-5])
    with pytest.raises(lmc.GraphError) as raised:
        Prepared(folder)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_that_moved_is_the_same(folder, tmp_path):
    before = [Prepared(folder).rows("x", c) for c in range(6)]
    shutil.move(folder, tmp_path / "moved")
    after = Prepared(tmp_path / "moved")
    assert all(np.array_equal(rows, after.rows("x", c)) for c, rows in enumerate(before))


def test_offsets_of_more_than_32_bits(tmp_path):
    """Extents beyond 4 GB, in a file of holes, and offsets of more than 2^31 edges."""
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    offset = 5 * 2**30 + 8
    with open(tmp_path / "x.bin", "wb") as file:
        file.seek(offset)
        file.write(rows.tobytes())
    table = np.array([[0, offset, 0], [offset, rows.nbytes, zlib.crc32(rows.tobytes())]])
    extents = Extents(tmp_path / "x.bin", table, Form("<f4", (2,)))
    assert np.array_equal(extents.read(1, 3), rows)
    assert np.array_equal(extents.mapped(offset // 8 + 3)[-3:], rows)

    order = module.order_of(np.array([1, 0, 1]))
    indptr = np.array([0, 2**31, 2**32, 3 * 2**31])
    assert module._buckets(order, indptr * 16, 2**33).tolist() == [0, 1, 2]


def test_auto_keeps_to_the_memory_that_is_given(tmp_path, monkeypatch):
    graph = lmc.synthetic(nodes=300)
    monkeypatch.setattr(module, "LEAST", 0)
    prepared = lmc.prepare(graph, tmp_path / "g", parts=4, memory=80 * graph.num_edges - 1)
    assert_holds(prepared, graph, lmc.partition(graph, 4, "stream").numpy())


def test_too_little_memory_is_named(tmp_path):
    graph = lmc.synthetic(nodes=100)
    with pytest.raises(lmc.ArgumentError, match=r"memory=0\.1 GB: 0\.\d+ GB is the least that would do"):
        lmc.prepare(graph, tmp_path / "g", memory="100MB")
    with pytest.raises(lmc.ArgumentError, match="memory='much': must be bytes"):
        lmc.prepare(graph, tmp_path / "g", memory="much")


@pytest.mark.parametrize("shards", [2, 3])
def test_clusters_of_a_shard_lie_together(tmp_path, shards):
    graph = lmc.synthetic(nodes=300, features=4)
    folder = lmc.prepare(graph, tmp_path / "g", parts=6, shards=shards)
    assert folder.shards == shards
    clusters = lmc.partition(graph, 6)
    of_node = cut_into_shards(graph, clusters, shards)[clusters]
    each = [np.concatenate([folder.nodes(c) for c in run]) for run in np.arange(6).reshape(shards, -1)]
    assert [sorted(nodes.tolist()) for nodes in each] == [
        (of_node == shard).nonzero()[:, 0].tolist() for shard in range(shards)
    ]
    assert_holds(folder, graph, folder.clusters(np.arange(300)))


def test_shards_that_cannot_be_are_one_line(tmp_path):
    graph = lmc.synthetic(nodes=300, features=4)
    with pytest.raises(lmc.ArgumentError, match="parts=6: must be a multiple of shards=4, such as 4"):
        lmc.prepare(graph, tmp_path / "g", parts=6, shards=4)
    assert lmc.prepare(graph, tmp_path / "g", shards=7).parts % 7 == 0
    manifest = tmp_path / "g" / "prepared.json"
    manifest.write_text(manifest.read_text().replace('"shards": 7', '"shards": 0'))
    with pytest.raises(lmc.GraphError, match="shards=0: must be a divisor of its"):
        Prepared(tmp_path / "g")


def test_on_the_command_line(tmp_path):
    graph = lmc.synthetic(nodes=300, features=4)
    graph.save(tmp_path / "graph")
    done = called("prepare", tmp_path / "graph", "--parts", 5, "--memory", "1GB", "--out", tmp_path / "p")
    assert f"Prepared(300 nodes, {graph.num_edges:,} edges, 5 clusters)" in done.stdout
    assert_holds(Prepared(tmp_path / "p"), graph, lmc.partition(graph, 5).numpy())
    line = fails(2, "prepare", tmp_path / "graph", "--out", tmp_path / "p", through=called)
    assert "holds a prepared graph already" in line
    assert torch.equal(lmc.load(tmp_path / "graph").y, graph.y)
