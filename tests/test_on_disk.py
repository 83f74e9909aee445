"""A graph that stays on disk gives the same bits as the same graph in memory, in little memory."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import GAT, GraphSAGE

import lmc
from lmc.batching.samplers import between_clusters
from lmc.data import storage, stored
from lmc.data.normalization import OF_SUMS, messages, messages_back, normalize_transposed, propagated
from lmc.data.weighed_rows import WeighedRows
from lmc.errors import LMCError
from lmc.scratch import ScratchMatrix
from lmc.training.metrics import evaluate


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder stays on disk, and everything that is done in pieces has several."""
    monkeypatch.setattr(storage, "STAYS_ON_DISK", 0)
    monkeypatch.setattr("lmc.sparse.ENTRIES_AT_ONCE", 7)
    monkeypatch.setattr("lmc.sparse.ROWS_AT_ONCE", 3)
    monkeypatch.setattr(stored, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(stored, "SORTED_AT_ONCE", 11)


@st.composite
def graphs(draw: st.DrawFn) -> lmc.Graph:
    """Of any kind: with self-loops, repeated edges, weights, directed or not, nodes without edges."""
    nodes, seed = draw(st.integers(1, 25)), draw(st.integers(0, 2**31))
    numbers = np.random.default_rng(seed)
    ends = numbers.integers(0, nodes, (2, draw(st.integers(0, 60))))
    weight = numbers.random(ends.shape[1]).astype(np.float32) + 0.5 if draw(st.booleans()) else None
    if not draw(st.booleans()):
        ends = ends[:, ends[0] != ends[1]]
        weight = None
    if draw(st.booleans()):
        ends = np.concatenate([ends, ends[::-1]], axis=1)
        weight = None if weight is None else np.concatenate([weight, weight])
    if weight is None and draw(st.booleans()):
        ends = np.unique(ends, axis=1)
    split = numbers.integers(0, 3, nodes)
    split[0] = 0
    x = numbers.standard_normal((nodes, draw(st.integers(1, 40)))).astype(np.float32)
    return lmc.Graph(
        ends, x, numbers.integers(0, 4, nodes), *(split == part for part in range(3)), weight, num_classes=4
    )


def on_disk(graph: lmc.Graph, folder: Path) -> lmc.Graph:
    graph.save(folder)
    opened = lmc.Graph.open(folder)
    assert opened.scratch is not None
    return opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs") / "graph"


def same(one: lmc.CSR, other: lmc.CSR) -> bool:
    return one.equal(other) and (one.values is None or one.values.dtype == other.values.dtype)  # type: ignore[union-attr]


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_all_that_is_made_of_edges_is_the_same(folder: Path, graph: lmc.Graph) -> None:
    disk = on_disk(graph, folder)
    assert disk.is_undirected == graph.is_undirected
    assert same(disk.transposed, graph.transposed)
    assert same(disk.neighbours, graph.neighbours)
    assert same(disk.sources, graph.sources)
    assert torch.equal(disk.degrees, graph.degrees)
    assert same(disk.numbered_edges, graph.numbered_edges)
    clusters = torch.arange(graph.num_nodes) % 3
    assert torch.equal(between_clusters(disk, clusters), between_clusters(graph, clusters))
    for norm in OF_SUMS:
        assert same(lmc.normalize(disk, norm), lmc.normalize(graph, norm)), norm
        assert torch.equal(propagated(disk, norm, 2), propagated(graph, norm, 2)), norm
        there, here = disk.batch(range(0, graph.num_nodes, 2)), graph.batch(range(0, graph.num_nodes, 2))
        assert isinstance(messages(disk, norm), WeighedRows)
        for kind in ("block", "halo_block", "transposed_block", "transposed_halo_block", "telling_block"):
            assert same(getattr(there, kind)(norm), getattr(here, kind)(norm)), (norm, kind)
        back = messages_back(disk, norm).rows(slice(0, graph.num_nodes))
        assert same(back, normalize_transposed(graph, norm)), norm


MODELS = {
    "GCN": lambda f: lmc.GCN(f, 12, 4, layers=3, dropout=0.3, norm="batch"),
    "GCNII": lambda f: lmc.GCNII(f, 12, 4, layers=3),
    "SAGE": lambda f: lmc.from_pyg(GraphSAGE(f, 12, 3, 4, jk="cat")),
    "GAT": lambda f: lmc.from_pyg(GAT(f, 12, 2, 4, heads=2, dropout=0.2)),
}
METHODS = {
    "lmc": lmc.LMC,
    "history": lambda: lmc.LMC(alpha=0),
    "cluster": lmc.ClusterGCN,
    "sage": lambda: lmc.NeighborSampling(fanouts=[2], batch_size=5),
}


@settings(max_examples=3, deadline=None)
@given(graph=graphs(), method=st.sampled_from(sorted(METHODS)))
@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.filterwarnings("ignore")
def test_training_and_predicting_give_the_same_bits(
    folder: Path, name: str, graph: lmc.Graph, method: str
) -> None:
    predictions = []
    for each in (graph, on_disk(graph, folder)):
        torch.manual_seed(0)
        model = MODELS[name](graph.num_features)
        given = {} if method == "sage" else {"parts": 3, "partition": "random"}
        result = lmc.fit(each, model, METHODS[method](), epochs=2, progress=False, **given)
        predicted = lmc.predict(each, model, rows_at_once=7)
        predictions.append((predicted, *model.parameters()))
        record = result.history[-1]
        predictions[-1] += tuple(
            torch.tensor(float(n or 0)) for n in (record.loss, record.train, record.test)
        )
        assert evaluate(each, predicted) == evaluate(graph, predicted.clone())
    assert all(torch.equal(one, other) for one, other in zip(*predictions, strict=True))


def test_what_stays_on_disk_is_decided_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = lmc.synthetic(nodes=100)
    disk = on_disk(graph, tmp_path / "graph")
    assert disk.x.numpy().base is not None  # a view of the file
    assert sorted(each.name for each in (tmp_path / "graph").iterdir()) == sorted(
        ["graph.json", *(f"{name}.npy" for name in storage.REQUIRED)]
    )
    monkeypatch.setattr(storage, "STAYS_ON_DISK", 1 << 28)
    small = lmc.Graph.open(tmp_path / "graph")
    assert small.scratch is None
    small.x[0] = 0  # of a small graph, arrays may be changed; the file stays as it is
    assert torch.equal(lmc.Graph.open(tmp_path / "graph").x, graph.x)


LIMITED = """
import resource, sys, torch
import lmc
from lmc.data import storage

storage.STAYS_ON_DISK = int(sys.argv[2])
torch.set_num_threads(1)


def work(folder):
    graph = lmc.Graph.open(folder)
    model = lmc.GCN(graph.num_features, 256, graph.num_classes, layers=3)
    assert graph.is_undirected and len(graph.degrees) == graph.num_nodes
    batch = graph.batch(range(100), scale=2.0)
    estimator = lmc.LMC()
    estimator.bind(model, graph, outside=batch.halo)  # A X among other things
    estimator.backward(batch)
    prediction = lmc.predict(graph, model, rows_at_once=1000)
    lmc.write_predictions(sys.argv[1] + "/predictions.parquet", graph, prediction)


work(sys.argv[1] + "/small")  # compiles kernels, starts threads
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, ((held << 10) + int(sys.argv[3]),) * 2)
work(sys.argv[1] + "/large")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits what Linux counts as data")
def test_under_a_hard_limit_of_memory(tmp_path: Path) -> None:
    """Features of 82 MB, and as much for each layer, in 160 MB; held in memory they do not fit."""
    lmc.synthetic(nodes=20_001, features=256, degree=4).save(tmp_path / "small")
    lmc.synthetic(nodes=80_000, features=256, degree=4).save(tmp_path / "large")

    def run(stays_on_disk: int) -> subprocess.CompletedProcess[str]:
        given = [sys.executable, "-c", LIMITED, str(tmp_path), str(stays_on_disk), str(160 << 20)]
        return subprocess.run(given, capture_output=True, text=True, timeout=300, env=dict(os.environ))

    on_disk, in_memory = run(0), run(1 << 40)
    assert on_disk.returncode == 0, on_disk.stderr
    assert in_memory.returncode != 0
    assert "memory" in in_memory.stderr.splitlines()[-1].lower()  # and not for another reason


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lmc.scratch._reserve", full)
    with pytest.raises(LMCError, match=r"cannot be written \(No space left on device\); \$LMC_SCRATCH"):
        ScratchMatrix(tmp_path, (3, 2), torch.float32)
    disk = on_disk(lmc.synthetic(nodes=50), tmp_path / "graph")
    with pytest.raises(LMCError, match="No space left"):
        propagated(disk)
