"""Every fast loop against its plain twin."""

import os
import stat
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from lmc import hashed_random
from lmc.kernels import fast, fast_batches, plain
from strategies import graphs

TYPES = [torch.bfloat16, torch.float32, torch.float64]
# Of bfloat16, the sums are float32, and what is stored may be the next number.
ROUNDING = {torch.bfloat16: (2**-7, 1e-6), torch.float32: (1e-5, 1e-6), torch.float64: (1e-13, 1e-13)}


def close(one, other, dtype):
    rtol, atol = ROUNDING[dtype]
    return torch.allclose(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (7, 3), (513, 5), (1025, 256)])
def test_loops_over_rows_equal_their_twins(rows, width, dtype, threads):
    generator = torch.Generator().manual_seed(rows)
    z, d = (torch.randn(rows, width, dtype=dtype, generator=generator) for _ in range(2))
    wide = plain.wide_type(z)
    scale, shift, third = (torch.randn(width, dtype=wide, generator=generator) for _ in range(3))
    keys = hashed_random.bits(3, 1, np.arange(rows))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for one, other in zip(fast.moments(z), plain.moments(z), strict=True):
            assert close(one, other, wide)
        for one, other in zip(fast.sums(d, z), plain.sums(d, z), strict=True):
            assert torch.allclose(one, other, rtol=1e-4 if wide == torch.float32 else 1e-11, atol=1e-4)
        for given_keys, p in ((None, 0.0), (keys, 0.5), (keys, 0.1)):
            found, expected = (k.activate(z, scale, shift, given_keys, p) for k in (fast, plain))
            assert close(found, expected, dtype)
            for k in (fast, plain):
                passed = torch.full(z.shape, True)
                assert torch.equal(k.activate(z, scale, shift, given_keys, p, passed) > 0, passed)
            passed = expected > 0
            for one, other in zip(*(k.activated_sums(d, passed, z, p) for k in (fast, plain)), strict=True):
                assert torch.allclose(one, other, rtol=1e-4 if wide == torch.float32 else 1e-11, atol=1e-4)
            derivatives = [k.activated_vjp(d, passed, z, p, scale, shift, third) for k in (fast, plain)]
            assert close(*derivatives, dtype)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", TYPES)
@given(example=graphs(), width=st.integers(1, 9), split=st.floats(0, 1))
def test_spmm_equals_its_twin_and_the_dense_product(dtype, example, width, split):
    matrix = lmc.normalize(example.graph)
    n = example.graph.num_nodes
    x = torch.randn(n, width, dtype=dtype)
    at = int(split * n)
    values = matrix.values.to(plain.wide_type(x))
    found, expected = (k.spmm(matrix.indptr, matrix.indices, values, x[:at], x[at:]) for k in (fast, plain))
    assert close(found, expected, dtype)
    assert close(found, (matrix.to_dense().to(values.dtype) @ x.to(values.dtype)).to(dtype), dtype)
    unweighted = [k.spmm(matrix.indptr, matrix.indices, None, x[:at], x[at:]) for k in (fast, plain)]
    assert close(*unweighted, dtype)


@pytest.mark.parametrize("small_part", [1e9, 0], ids=["by place", "by table"])
@given(example=graphs(), data=st.data())
def test_members_and_blocks_are_the_same_to_the_bit(small_part, example, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_batches, "SMALL_PART", small_part)
        _compare_members_and_blocks(example, data)


def identical(one, other):
    return one.dtype == other.dtype and torch.equal(one, other)  # of other types, equal looks at values


def _compare_members_and_blocks(example, data):
    graph = example.graph
    node = st.integers(0, graph.num_nodes - 1)
    nodes = torch.tensor(data.draw(st.lists(node, min_size=1, unique=True)))
    pattern, matrix = graph.neighbours, lmc.normalize(graph)
    found, expected = (k.members(pattern.indptr, pattern.indices, nodes) for k in (fast, plain))
    assert identical(found, expected)
    for values in (matrix.values, None):
        rows = expected[len(nodes) :]
        blocks = [k.localize(matrix.indptr, matrix.indices, values, rows, expected) for k in (fast, plain)]
        for one, other in zip(*blocks, strict=True):
            assert (one is None and other is None) or identical(one, other)


@given(example=graphs(), data=st.data())
def test_rows_are_weighed_the_same_to_the_bit(example, data):
    graph = example.graph
    node = st.integers(0, graph.num_nodes - 1)
    members = torch.tensor(data.draw(st.lists(node, min_size=1, unique=True)))
    places = torch.arange(0, len(members), 2)
    factor, loop = graph.degrees.double().sqrt() + 0.3, data.draw(st.sampled_from([None, 1.0, 2.0]))
    to, of = (data.draw(st.sampled_from([None, factor])) for _ in range(2))
    some, every = graph.adjacency.localized(places, members), graph.adjacency
    for matrix, at, named in ((some, places, members), (every, torch.arange(graph.num_nodes), None)):
        for values in (matrix.values, None):
            given = (matrix.indptr, matrix.indices, values, at, named, to, of, loop, torch.float32)
            for one, other in zip(*(k.weigh(*given) for k in (fast, plain)), strict=True):
                assert identical(one, other)


@given(example=graphs(), data=st.data())
def test_whether_a_matrix_is_its_transpose(example, data):
    adjacency = example.graph.adjacency
    dense = adjacency.to_dense()
    both_ways = lmc.CSR.from_scipy(adjacency.to_scipy() + adjacency.to_scipy().T)
    for matrix in (adjacency, both_ways, both_ways.with_values(None)):
        given = (matrix.indptr, matrix.indices, matrix.values)
        found, expected = (k.is_symmetric(*given) for k in (fast, plain))
        assert found == expected
        assert not found or torch.equal(matrix.to_dense(), matrix.to_dense().T)
    assert fast.is_symmetric(both_ways.indptr, both_ways.indices, both_ways.values)
    assert example.graph.is_undirected <= torch.equal(dense, dense.T)


def test_members_of_a_large_batch_equal_those_of_the_twin():
    """More than one table's worth of halo: it grows on the way."""
    graph = lmc.synthetic(nodes=30_000, degree=12, features=1)
    nodes = torch.arange(0, 30_000, 40)
    a = graph.neighbours
    assert torch.equal(fast.members(a.indptr, a.indices, nodes), plain.members(a.indptr, a.indices, nodes))


def test_a_block_takes_memory_for_its_own_entries():
    a = lmc.synthetic(nodes=20_000, degree=10, features=1).neighbours
    last = torch.tensor([19_999])
    members = fast.members(a.indptr, a.indices, last)
    given = (a.indptr, a.indices, None, last, members)
    found = fast.localize(*given)  # compiled, before anything is counted
    assert found[1].tolist() == list(range(1, len(members)))
    tracemalloc.start()
    fast.localize(*given)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.1 * a.indices.nbytes


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 1), (700, 130)])
def test_put_rows_equals_its_twin(rows, width, dtype):
    into = [torch.zeros(1000, width, dtype=dtype) for _ in range(2)]
    places, values = torch.randperm(1000)[:rows], torch.randn(rows, width, dtype=dtype)
    left_out = torch.arange(rows) % 3 == 1
    places[left_out] = -1
    for kernel, target in zip((fast, plain), into, strict=True):
        kernel.put_rows(places, values, target)
    assert torch.equal(*into)
    assert torch.equal(into[0][places[~left_out]], values[~left_out])
    assert torch.count_nonzero(into[0]) == torch.count_nonzero(values[~left_out])


def test_loops_round_to_bfloat16_as_torch_does():
    """Numbers between two others, halfway between them, too large, and none."""
    unusual = torch.tensor([0.0, 3.4e38, 1e-40, torch.inf, -torch.inf, torch.nan])
    halfway = torch.arange(0x3F80_0000, 0x3FA0_0000, 0x8000, dtype=torch.int32).view(torch.float32)
    z = torch.cat([torch.randn(1000), unusual, halfway])[None]
    found = torch.empty_like(z, dtype=torch.bfloat16)
    identity = torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1)
    fast._spmm(0, 1, *fast._arrays(*identity, z, z[:0]), fast._row(z), fast.words(found))
    assert torch.allclose(found, z.bfloat16(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(fast.spmm(*identity, found, found[:0]).isnan(), z.isnan())


@pytest.mark.parametrize("p", [1e-9, 0.1, 0.3, 0.5, 0.999999])
def test_dropout_keeps_the_mean(p):
    """What is kept is multiplied by one over the probability to be kept, to the bit."""
    every = np.arange(2**16, dtype=np.uint32)
    kept = np.count_nonzero(every >= plain.threshold(p)) / 2**16
    assert kept > 0
    assert kept * plain.gain(p) == pytest.approx(1, rel=1e-15)
    assert abs((1 - kept) - p) <= 2**-16


TRAIN = """
import hashlib, sys, torch, lmc
torch.set_num_threads(int(sys.argv[1]))
graph = lmc.synthetic(nodes=3000)
clusters = lmc.partition(graph, 6)
torch.manual_seed(0)
model = lmc.GCN(64, 64, 10, layers=3, dropout=0.5, norm="batch")
estimator = lmc.LMC()
estimator.bind(model, graph)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
make = lmc.prefetch if sys.argv[2] == "prefetch" else iter
for epoch in range(2):
    for batch in make(lmc.batches(graph, clusters, 2, epoch=epoch)):
        optimizer.zero_grad()
        estimator.backward(batch)
        optimizer.step()
print(*(round(float(p.double().sum()), 4) for p in model.parameters()))
print(hashlib.sha256(b"".join(h.values.numpy().tobytes() for h in estimator.embeddings.values())).hexdigest())
"""


def run(script, *arguments, **environment):
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
def test_a_run_does_not_depend_on_threads_or_the_background():
    first = run(TRAIN, "1", "plain")
    assert run(TRAIN, "2", "plain") == first
    assert run(TRAIN, "2", "prefetch") == first
    # The plain path rounds differently: its results are close, not equal.
    plain_numbers, fast_numbers = (
        [float(number) for number in printed.splitlines()[0].split()]
        for printed in (run(TRAIN, "1", "plain", LMC_KERNELS="plain"), first)
    )
    assert fast_numbers == pytest.approx(plain_numbers, abs=2e-2)


def test_dropout_is_uniform_and_independent():
    """Shares of kept entries by column, by row, and jointly with the neighbours, within five deviations."""
    rows, width, p = 4000, 64, 0.3
    kept = plain.kept(hashed_random.bits(0, 5, 1, np.arange(rows)), width, p).double()
    spread = (p * (1 - p)) ** 0.5
    assert abs(kept.mean() - (1 - p)) < 5 * spread / (rows * width) ** 0.5
    assert (kept.mean(0) - (1 - p)).abs().max() < 5 * spread / rows**0.5
    assert (kept.mean(1) - (1 - p)).abs().max() < 6 * spread / width**0.5
    other = plain.kept(hashed_random.bits(0, 6, 1, np.arange(rows)), width, p).double()
    for one, two in ((kept[:, 1:], kept[:, :-1]), (kept[1:], kept[:-1]), (kept, other)):
        joint = ((one - (1 - p)) * (two - (1 - p))).mean()
        assert abs(joint) < 5 * spread**2 / one.numel() ** 0.5


@pytest.mark.posix
@pytest.mark.process
def test_a_read_only_home_does_not_matter(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    blocked = tmp_path / "file"
    blocked.write_text("")
    script = (
        "import torch, lmc; from lmc.kernels import fast; print(fast.moments(torch.ones(2, 3))[0].tolist())"
    )
    # Root may write anywhere, so the cache folder is one that cannot be made.
    printed = run(script, HOME=str(home), LMC_CACHE=str(blocked / "cache"), NUMBA_CACHE_DIR="")
    assert printed.strip() == "[1.0, 1.0, 1.0]"


@pytest.mark.process
def test_compilation_is_announced_once_and_kept(tmp_path):
    script = (
        "import torch, lmc; from lmc.kernels import fast; fast.moments(torch.ones(2, 3)); "
        "fast.put_rows(torch.tensor([0]), torch.ones(1, 2), torch.ones(1, 2)); "
        "from lmc.kernels import compiled_seconds; print(compiled_seconds() > 0)"
    )
    printed, counted = [], []
    for _ in range(2):
        command = [sys.executable, "-c", script]
        environment = os.environ | {"LMC_CACHE": str(tmp_path)}
        del environment["NUMBA_CACHE_DIR"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
        assert done.returncode == 0, done.stderr
        printed.append(done.stderr)
        counted.append(done.stdout)
    assert counted == ["True\n", "False\n"]
    assert printed[0].splitlines() == [f"lmc: compiling kernels, once; kept in {tmp_path / 'kernels'}"]
    assert printed[1] == ""


def test_memory_goes_back_early_where_nothing_comes_back_to_it():
    """A step of LMC ends its forward pass without messages of the halo, where alpha = 0 all of them."""
    graph = lmc.synthetic(nodes=300)

    def held(alpha):
        estimator = lmc.LMC(alpha, "1")
        estimator.bind(lmc.GCN(64, 8, 10, layers=3), graph)
        batch = graph.batch(range(50))
        forward = estimator.step_on(batch, estimator.halo_policy(batch)).forward()
        return ["sent_by_halo" in vars(at) for at in forward.passes]

    assert held(0) == [False] * 3
    assert held(1) == [False, False, True]  # nothing reads V̂ of the first boundary
