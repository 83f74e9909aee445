"""Plans for so much memory: what a step takes of it, what is chosen, and what is said."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GraphSAGE

import lmc
from commands import called, fails
from lmc import memory_use
from lmc.data import storage
from lmc.malloc import short_of_memory, trim_free_memory
from lmc.training import plan as module
from lmc.training.live_bytes import most_live_bytes
from lmc.training.options import TrainingOptions
from lmc.training.plan import make_plan
from lmc.training.trial_step import BatchSizes, step_bytes

GRAPH = lmc.synthetic(nodes=6000, features=32, classes=4)
MODELS = {
    "gcn": lambda: lmc.GCN(32, 48, 4, layers=3, dropout=0.3, norm="batch"),
    "gcnii": lambda: lmc.GCNII(32, 48, 4, layers=4),
    "gat": lambda: lmc.from_pyg(GAT(32, 48, 3, 4, heads=4)),
    "jumping knowledge": lambda: lmc.from_pyg(GraphSAGE(32, 48, 3, 4, jk="cat")),
    "pyg": lambda: lmc.from_pyg(GCN(32, 48, 2, 4)),
}
METHODS = {
    "lmc": lmc.LMC,
    "lmc values": lambda: lmc.LMC(alpha=0.4),
    "gas": lmc.GAS,
    "cluster": lmc.ClusterGCN,
    "top": lambda: lmc.TOP(rank=16),
}


ALL = [(model, method) for model in MODELS for method in METHODS if (model, method) != ("gat", "top")]
SOON = [pair for pair in ALL if pair[1] == "lmc"]


@pytest.mark.parametrize(
    ("model", "method"), [pytest.param(*pair, marks=[pytest.mark.long] * (pair not in SOON)) for pair in ALL]
)
def test_a_small_step_says_what_a_large_one_takes(model, method):
    """Of a batch that is several times as large as the trial, all tensors counted."""
    torch.manual_seed(0)
    own, estimator = MODELS[model](), METHODS[method]()
    batch = GRAPH.batch(lmc.partition(GRAPH, 8, "random") < 3, scale=8 / 3)
    sizes = BatchSizes.of(batch)
    found = step_bytes(GRAPH, own, estimator, sizes)
    estimator.bind(own, GRAPH)
    blocks = most_live_bytes(lambda: estimator.prepare(batch))
    step = most_live_bytes(lambda: estimator.backward(batch))
    assert 1.0 < found.step / step < 1.9  # more where few batch nodes mean that all of them tell of β
    assert 0.95 < (found.blocks + 1e5) / (blocks + 1e5) < 1.8


@pytest.mark.parametrize("estimator", [lmc.FullBatch, lambda: lmc.LMC(alpha=0), lmc.LMC])
def test_a_layer_leaves_what_its_way_back_reads(estimator):
    """For each row z and the sums of messages, and a byte an entry: what ReLU and dropout let through."""
    graph, width, found = lmc.synthetic(nodes=3000, features=64), 64, []
    for layers in (4, 6):
        method, model = estimator(), lmc.GCN(64, width, 10, layers=layers, dropout=0.5, norm="batch")
        method.bind(model, graph)
        whole = isinstance(method, lmc.FullBatch)
        batch = method.whole if whole else graph.batch(range(1500))
        rows = batch.num_nodes + (batch.num_halo if method.computes_halo else 0)
        method.prepare(batch)
        found.append(most_live_bytes(partial(method.backward, batch)) / (4 * rows * width))
    assert (found[1] - found[0]) / 2 < 2.4


@pytest.mark.long
def test_what_another_model_needs_is_tried_before_it_is_trained(monkeypatch):
    """A model of which a step takes many times what formulas say."""
    model, free = MODELS["gat"](), 60_000_000
    monkeypatch.setattr(memory_use, "free", lambda: free)
    given = {"epochs": 1, "progress": False, "partition": "random"}
    with pytest.raises(lmc.ArgumentError, match=r"parts_per_batch=3: training needs .*memory='0\.06GB' cho"):
        lmc.fit(GRAPH, model, lmc.GAS(), parts=4, parts_per_batch=3, **given)
    lmc.fit(GRAPH, model, lmc.GAS(), parts=400, **given)


def plan_for(memory, model="gcn", estimator=lmc.LMC, to_disk=True, graph=GRAPH, **options):
    return make_plan(graph, MODELS[model](), estimator(), TrainingOptions(**options), memory, to_disk)


@pytest.fixture
def small_process(monkeypatch):
    monkeypatch.setattr(memory_use, "anonymous", lambda: 1_000_000)
    monkeypatch.setattr(module, "LEAST_CACHE", 10_000)
    monkeypatch.setattr(module, "RESERVE", 0)
    monkeypatch.setattr(module, "ROWS", 50)
    monkeypatch.setattr(module, "BYTES_PER_NODE", 8)


@pytest.mark.parametrize("model", ["gcn", pytest.param("gat", marks=pytest.mark.long)])
def test_more_memory_makes_larger_batches(small_process, model):
    plans = [plan_for(memory, model, parts=60) for memory in (10e6, 20e6, 10**9)]
    counts = [plan.parts_per_batch for plan in plans]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    assert all(plan.total <= plan.memory for plan in plans)
    assert plans[-1].histories == "memory"
    assert plan_for(10**9, model, parts=60, parts_per_batch=2).parts_per_batch == 2


def test_histories_go_to_disk_and_batches_are_no_longer_built_ahead(small_process):
    few = {"parts": 400, "parts_per_batch": 1}
    enough = plan_for(10**9, **few)
    assert (enough.histories, enough.background) == ("memory", True)
    less = plan_for(enough.total - 1, **few)
    assert (less.histories, less.background) == ("disk", True)
    assert less.history_cache == less.all_histories - 1
    least = enough.total - enough.all_histories + 10_000
    assert plan_for(least, **few).history_cache == 10_000
    assert not plan_for(least - 1, **few).background
    with pytest.raises(lmc.ArgumentError, match=r"out= names a folder for them"):
        plan_for(enough.total - 1, **few, to_disk=False)


def test_too_little_is_one_line_with_the_least_that_would_do(small_process):
    with pytest.raises(lmc.ArgumentError, match=r"memory=1\.1 MB: [0-9.]+ MB is the least that would do"):
        plan_for(1_100_000, parts=60)
    with pytest.raises(lmc.ArgumentError, match="NeighborSampling has no clusters to choose"):
        plan_for(10**9, estimator=lambda: lmc.NeighborSampling(fanouts=[2]))
    with pytest.raises(lmc.ArgumentError, match="memory='much': must be"):
        TrainingOptions(memory="much")


def test_a_run_keeps_to_its_plan_and_goes_on_by_it(tmp_path, monkeypatch):
    """A graph on disk is prepared in the folder of the run."""
    GRAPH.save(tmp_path / "graph")
    monkeypatch.setattr(storage, "STAYS_ON_DISK", 0)
    held = memory_use.anonymous()
    monkeypatch.setattr(memory_use, "anonymous", lambda: held)
    graph, shown = lmc.load(tmp_path / "graph"), []

    class Watch(lmc.Callback):
        def on_plan(self, plan):
            shown.append(plan)

    def train(out, epochs, resume=False, watch=None):
        torch.manual_seed(0)
        options = {"epochs": epochs, "memory": held + 80_000_000, "histories": "disk", "progress": False}
        return lmc.fit(
            graph,
            MODELS["gcn"](),
            lmc.LMC(),
            out=out,
            resume=resume,
            callbacks=[watch or Watch()],
            **options,
        )

    whole = train(tmp_path / "whole", 2)
    (plan,) = shown
    assert plan.histories == "disk"
    assert plan.features == "on disk"
    assert (tmp_path / "whole" / "prepared" / "prepared.json").exists()
    kept = json.loads((tmp_path / "whole" / "plan.json").read_text())
    assert kept["parts_per_batch"] == plan.parts_per_batch
    train(tmp_path / "run", 1)
    again = train(tmp_path / "run", 2, resume=True)
    assert len(shown) == 2  # the one that goes on is not planned anew
    assert [r.loss for r in again.history] == [r.loss for r in whole.history]
    pairs = zip(again.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_on_the_command_line(tmp_path):
    lmc.synthetic(nodes=2000, features=8).save(tmp_path / "graph")
    given = ("--data", tmp_path / "graph", "--hidden", 8, "--epochs", 1)
    done = called("train", *given, "--memory", "2GB", "--out", tmp_path / "run")
    assert "clusters      " in done.stdout
    assert "GB of 2 GB: process" in done.stdout or "MB of 2 GB: process" in done.stdout
    line = fails(2, "train", *given, "--memory", "20MB", "--out", tmp_path / "other", through=called)
    assert "is the least that would do" in line
    done = called("inspect", tmp_path / "graph", "--memory", "2GB", "--hidden", 8)
    assert "of 2 GB: process" in done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc of glibc")
def test_large_buffers_go_back_where_memory_is_short():
    size = 1 << 28

    def held_more():
        before = memory_use.anonymous()
        buffer = torch.ones(size // 4)
        during = memory_use.anonymous() - before
        del buffer
        return during, memory_use.anonymous() - before

    with short_of_memory():
        during, after = held_more()
        assert during > 0.9 * size
        assert abs(after) < 0.1 * size
    assert held_more()[1] > 0.9 * size  # outside of the context it is kept
    trim_free_memory()


LIMITED = """
import resource, sys, torch
import lmc
from lmc.data import storage

storage.STAYS_ON_DISK = 0
torch.set_num_threads(1)


def work(name, memory):
    graph = lmc.load(f"{sys.argv[1]}/{name}")
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 64, graph.num_classes, layers=3)
    given = {"memory": memory, "epochs": 1, "progress": False, "partition": "stream"}
    result = lmc.fit(graph, model, lmc.LMC(), out=f"{sys.argv[1]}/run of {name}", **given)
    lmc.write_predictions(f"{sys.argv[1]}/{name}.parquet", graph, lmc.predict(graph, model))
    return result


work("small", "4GB")  # compiles kernels, starts threads
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) << 10
memory = held + (190 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
print(work("large", memory).batches)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits what Linux counts as data")
@pytest.mark.long
def test_a_run_keeps_to_its_memory_under_a_hard_limit(tmp_path):
    """Features of 82 MB, as much for A X, and 42 MB of histories, in 190 MB beside what a process needs."""
    lmc.synthetic(nodes=3_000, features=256).save(tmp_path / "small")
    lmc.synthetic(nodes=80_000, features=256).save(tmp_path / "large")
    given = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=900, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "large.parquet").exists()
    assert json.loads((tmp_path / "run of large" / "plan.json").read_text())["histories"] == "disk"


def test_a_plan_is_for_one_shard():
    with pytest.raises(lmc.ArgumentError, match=r"shards=2: memory= plans for one shard alone"):
        lmc.fit(lmc.synthetic(nodes=200), lmc.GCN(64, 8, 8), lmc.LMC(), memory="2GB", shards=2)


@pytest.mark.parametrize("nodes", [20, 1000])
def test_of_a_graph_that_is_one_batch(nodes):
    graph = lmc.synthetic(nodes=nodes)
    model = lmc.GCN(graph.num_features, 8, graph.num_classes)
    result = lmc.fit(graph, model, lmc.LMC(), memory="2GB", epochs=1, progress=False)
    assert len(result.history) == 1
