import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from strategies import clusterings, graphs

pytestmark = pytest.mark.filterwarnings("ignore:parts_per_batch=.*a batch is the whole graph")


@st.composite
def epochs(draw):
    example = draw(graphs())
    clusters = draw(clusterings(example))
    size = draw(st.integers(1, 6))
    options = {
        "seed": draw(st.integers(0, 3)),
        "epoch": draw(st.integers(0, 3)),
        "fixed": draw(st.booleans()),
    }
    return example.graph, clusters, size, list(lmc.batches(example.graph, clusters, size, **options))


@given(epochs())
def test_every_node_in_exactly_one_batch(case):
    graph, _, _, batches = case
    assert Counter(i for b in batches for i in b.nodes.tolist()) == Counter(range(graph.num_nodes))


@given(epochs())
def test_an_epoch_holds_every_message_once(case):
    graph, _, _, batches = case
    dense = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    count = 0
    for batch in batches:
        dense[batch.nodes[:, None], batch.members] += batch.block().to_dense()
        count += batch.block().num_entries
    assert count == lmc.normalize(graph).num_entries
    assert torch.equal(dense, lmc.normalize(graph).to_dense())


@given(epochs())
def test_clusters_stay_whole_and_scale_counts_them(case):
    _, clusters, size, batches = case
    total = len(clusters.unique())
    per_batch = [len(clusters[b.nodes].unique()) for b in batches]
    assert sum(per_batch) == total
    assert all(b.scale == total / c for b, c in zip(batches, per_batch, strict=True))
    assert sorted(per_batch, reverse=True)[:-1] == [min(size, total)] * (len(batches) - 1)


@given(epochs())
def test_scaled_counts_add_up_to_the_graph(case):
    """The mean over the batches of an epoch of scale * size is the number of nodes, if all are equal."""
    graph, clusters, size, batches = case
    if len(clusters.unique()) % size == 0:
        mean = sum(b.scale * b.num_nodes for b in batches) / len(batches)
        assert mean == pytest.approx(graph.num_nodes)


@pytest.fixture(scope="module")
def graph():
    return lmc.synthetic(nodes=1000)


@pytest.fixture(scope="module")
def clusters(graph):
    return lmc.partition(graph, parts=12)


def groups(graph, clusters, **options):
    return [b.nodes.tolist() for b in lmc.batches(graph, clusters, 3, **options)]


def test_same_address_same_batches(graph, clusters):
    assert groups(graph, clusters, seed=1, epoch=2) == groups(graph, clusters, seed=1, epoch=2)


def test_groups_are_resampled_each_epoch_and_by_seed(graph, clusters):
    first = {tuple(g) for g in groups(graph, clusters, seed=1, epoch=0)}
    assert first != {tuple(g) for g in groups(graph, clusters, seed=1, epoch=1)}
    assert first != {tuple(g) for g in groups(graph, clusters, seed=2, epoch=0)}


def test_fixed_groups_stay_and_change_turns(graph, clusters):
    epochs = [groups(graph, clusters, epoch=e, fixed=True) for e in range(6)]
    assert len({frozenset(map(tuple, e)) for e in epochs}) == 1
    assert len({tuple(map(tuple, e)) for e in epochs}) > 1


def test_arguments_are_checked_before_the_first_batch(graph, clusters):
    with pytest.raises(lmc.ArgumentError, match="parts_per_batch=0: must be 1 or more"):
        lmc.batches(graph, clusters, parts_per_batch=0)
    with pytest.raises(lmc.GraphError, match=r"clusters has shape \(3,\): must be \(1000,\)"):
        lmc.batches(graph, [0, 1, 2])
    with pytest.raises(lmc.GraphError, match=r"clusters\[0\] = -1: clusters must be 0 or more"):
        lmc.batches(graph, torch.full((1000,), -1))


def test_numbers_of_clusters_may_have_gaps(graph):
    clusters = torch.arange(1000) % 2 * 7
    assert [b.scale for b in lmc.batches(graph, clusters)] == [2.0, 2.0]


PEAK = """
import sys, torch, lmc
from pathlib import Path

n = 4_000_000
ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
y, mask = torch.zeros(n, dtype=torch.long), torch.ones(n, dtype=torch.bool)
graph = lmc.Graph(torch.cat([ring, ring.flip(0)], 1), torch.ones(n, 1), y, mask)


def peak(nodes):
    def kilobytes(field):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    batch = graph.batch(nodes)
    batch.block(), batch.halo_block(), batch.local_degree, batch.renormalized(), batch.y
    return kilobytes("VmHWM") - before


peak(torch.arange(50))  # what is computed once per graph
print(peak(torch.arange(100, 200)), peak(torch.arange(1_000_000)))
"""


@pytest.mark.process
@pytest.mark.long
def test_memory_of_a_batch_does_not_grow_with_the_graph():
    """A hundred nodes of a ring of four million: one byte per node of the graph would be 4 MB."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc")
    command = [sys.executable, "-c", PEAK]
    # Large blocks come fresh from the kernel, so that every one of them is seen.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    small, large = map(int, done.stdout.split())
    assert small < 3000
    assert large > 20_000  # and it is seen where there is something to see


# -- in the background -----------------------------------------------------------------------------


def test_prefetch_gives_the_same_batches(graph, clusters):
    plain = [b.nodes.tolist() for b in lmc.batches(graph, clusters)]
    assert [b.nodes.tolist() for b in lmc.prefetch(lmc.batches(graph, clusters))] == plain


def test_prefetch_builds_the_next_item_while_this_one_is_used():
    second_is_made = threading.Event()

    def items():
        yield threading.current_thread()
        second_is_made.set()
        yield threading.current_thread()

    stream = lmc.prefetch(items())
    first_maker = next(stream)
    assert second_is_made.wait(timeout=10)
    assert first_maker is threading.main_thread()  # nothing else is to be done, and it may have to compile
    assert next(stream) is not threading.main_thread()
    stream.close()


def test_prefetch_passes_errors_on_and_ends_its_thread(graph):
    def items():
        yield 1
        raise lmc.GraphError("broken")

    stream = lmc.prefetch(items())
    assert next(stream) == 1
    with pytest.raises(lmc.GraphError, match="broken"):
        next(stream)
    assert not any(t.name.startswith("lmc-prefetch") for t in threading.enumerate())


# -- reserved messages -----------------------------------------------------------------------------


def test_reserved_messages_is_the_mean_over_groups(graph, clusters):
    """The closed form against what 200 epochs of batches really hold."""
    for size in (1, 5, 12):
        inside = total = 0
        for epoch in range(200):
            for batch in lmc.batches(graph, clusters, size, epoch=epoch):
                inside += int((batch.block().indices < batch.num_nodes).sum())
                total += batch.block().num_entries
        shares = lmc.reserved_messages(graph, clusters, size)
        assert shares["ClusterGCN"].forward == pytest.approx(inside / total, abs=0.01)
        assert shares["ClusterGCN"].forward == shares["ClusterGCN"].backward
        assert shares["GAS"] == (1.0, shares["ClusterGCN"].backward)
        assert shares["LMC"] == (1.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parts", "size", "percent"),
    [("arxiv", 80, 1, 67), ("arxiv", 80, 40, 83), ("flickr-graph", 24, 1, 57), ("flickr-graph", 24, 12, 77)],
)
def test_reserved_messages_of_the_paper(real, name, parts, size, percent):
    graph = real(name)
    share = lmc.reserved_messages(graph, lmc.partition(graph, parts), size)["ClusterGCN"].forward
    print(f"{name}, {parts} parts, {size} a batch: {share:.1%} (paper: {percent} %)")
    assert abs(100 * share - percent) <= 2
