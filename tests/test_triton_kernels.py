"""Every Triton loop against its plain twin, in Triton's interpreter; and what the compiler makes of them.

Where there is a GPU, `TRITON_INTERPRET=0 pytest tests/test_triton_kernels.py` runs the machine code instead.
"""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from lmc import hashed_random, kernels
from lmc.kernels import fast, plain
from strategies import graphs

pytest.importorskip("triton")

from lmc.kernels import on_gpu

DEVICE = "cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda"
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(1, 1), (7, 64), (65, 1), (130, 67)]  # a tile has 64 rows and 64 columns


def random(*shape, dtype):
    """Numbers that are the same in float64."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


def on_device(given):
    return given.to(DEVICE) if isinstance(given, torch.Tensor) else given


def compare(name, *given, dtype):
    """The loop has the twin's values in float64, but for sums in float32 and one rounding to its type."""
    found = getattr(on_gpu, name)(*(on_device(each) for each in given))
    doubles = (
        each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for each in given
    )
    exact = getattr(plain, name)(*doubles)
    pairs = zip(found, exact, strict=True) if isinstance(found, tuple) else [(found, exact)]
    for one, other in pairs:
        stored = dtype if one.ndim == 2 else plain.wide_type(torch.empty(0, dtype=dtype))  # or a column's sum
        assert one.dtype == stored
        assert one.shape == other.shape
        summed = 1e-13 if dtype == torch.float64 else 2e-6
        largest = float(other.abs().max()) if other.numel() else 0.0
        rounding = torch.finfo(stored).eps * other.abs() + summed * max(1.0, largest)
        assert bool(((one.cpu().double() - other).abs() <= rounding).all())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_loops_over_rows_equal_their_twins(rows, width, dtype):
    z, d = random(rows, width, dtype=dtype), random(width, rows, dtype=dtype).T
    scale, shift, third = random(3, width, dtype=dtype)
    keys = hashed_random.bits(3, 1, np.arange(rows))
    compare("moments", z, dtype=dtype)
    compare("sums", d, z, dtype=dtype)
    for given_keys, p in ((None, 0.0), (keys, 0.3)):
        compare("activate", z, scale, shift, given_keys, p, dtype=dtype)
        passed = on_device(torch.full(z.shape, True))
        found = on_gpu.activate(*map(on_device, (z, scale, shift, given_keys, p)), passed)
        assert torch.equal(found > 0, passed)
        compare("activated_sums", d, passed, z, p, dtype=dtype)
        compare("activated_vjp", d, passed, z, p, scale, shift, third, dtype=dtype)


def test_moments_do_not_cancel():
    z = (random(200, 3, dtype=torch.float32) + 1000).to(DEVICE)
    for one, other in zip(on_gpu.moments(z), plain.moments(z), strict=True):
        assert torch.allclose(one, other, rtol=1e-3)  # without care, off by a tenth


@pytest.mark.parametrize("width", [1, 2, 5, 64, 129])
def test_masks_are_the_same_to_the_bit(width):
    rows = 70
    keys = hashed_random.bits(5, np.arange(rows))
    one, zero = torch.ones(width, device=DEVICE), torch.zeros(width, device=DEVICE)
    for p in (1e-9, 0.1, 0.5, 0.999999):
        found = on_gpu.activate(torch.ones(rows, width, device=DEVICE), one, zero, keys, p).cpu()
        kept = plain.kept(keys, width, p)
        assert torch.equal(found > 0, kept)
        assert torch.equal(found[kept], torch.full_like(found, plain.gain(p))[kept])


def test_what_is_no_number_stays_so():
    z = torch.tensor([[float("nan"), float("inf"), -float("inf"), -1.0]], device=DEVICE)
    one, zero = torch.ones(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    found, expected = (k.activate(z, one, zero, None, 0.0) for k in (on_gpu, plain))
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize(("rows", "width"), [(0, 3), (3, 0), (0, 0)])
def test_of_nothing(rows, width):
    z, column = torch.ones(rows, width, device=DEVICE), torch.ones(width, device=DEVICE)
    keys = hashed_random.bits(1, np.arange(rows))
    compare("sums", z, z, dtype=torch.float32)
    compare("activate", z, column, column, keys, 0.5, dtype=torch.float32)
    compare("activated_sums", z, z > 0, z, 0.5, dtype=torch.float32)
    compare("activated_vjp", z, z > 0, z, 0.5, column, column, column, dtype=torch.float32)
    into = torch.ones(2, width, device=DEVICE)
    on_gpu.put_rows(torch.arange(0, device=DEVICE), z[:0], into)
    assert torch.equal(into, torch.ones_like(into))
    assert all(bool(each.isnan().all()) for each in on_gpu.moments(z[:0]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_put_rows_equals_its_twin(rows, width, dtype):
    places, values = torch.randperm(200)[:rows], random(rows, width, dtype=dtype)
    places[1::3] = -1
    across = torch.zeros(width, 200, dtype=dtype).T  # its columns are contiguous, not its rows
    for into in (torch.zeros(200, width, dtype=dtype), across):
        expected, found = into.clone(), into.to(DEVICE)
        plain.put_rows(places, values, expected)
        on_gpu.put_rows(places.to(DEVICE), values.to(DEVICE), found)
        assert torch.equal(found.cpu(), expected)


@given(
    example=graphs(max_nodes=6),
    dtype=st.sampled_from(TYPES),
    width=st.integers(1, 3),
    split=st.floats(0, 1),
    weighted=st.booleans(),
)
def test_spmm_equals_its_twin(example, dtype, width, split, weighted):
    matrix = lmc.normalize(example.graph)
    n = example.graph.num_nodes
    at, x = int(split * n), random(n, width, dtype=dtype)
    values = matrix.values.to(dtype) if weighted else None
    compare("spmm", matrix.indptr, matrix.indices, values, x[:at], x[at:], dtype=dtype)


@pytest.mark.parametrize(
    ("index", "dtype"), [(torch.int64, torch.float32), *((torch.int32, dtype) for dtype in TYPES)]
)
def test_spmm_of_hubs_and_empty_rows(index, dtype):
    """A row of 300 entries, with repeated columns, between empty ones; 32 are read at once."""
    lengths = torch.tensor([0, 300, 0, 32, 33, 0])
    indptr = torch.cat([torch.zeros(1), lengths.cumsum(0)]).to(index)
    indices = torch.randint(0, 90, (int(lengths.sum()),), generator=torch.Generator().manual_seed(0)).to(
        index
    )
    x, values = random(90, 65, dtype=dtype), random(len(indices), dtype=dtype)
    for split, width in ((0, 1), (90, 1), (40, 65)):
        compare("spmm", indptr, indices, values, x[:split, :width], x[split:, :width], dtype=dtype)


def test_spmm_takes_values_of_another_type():
    """Weights of messages stay in float32 where messages have fewer bits."""
    indptr, indices = torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1])
    x = random(3, 5, dtype=torch.bfloat16)
    for values in (random(3, dtype=torch.float32), random(3, dtype=torch.float64)):
        compare("spmm", indptr, indices, values, x[:1], x[1:], dtype=torch.bfloat16)


@pytest.mark.parametrize(("rows", "columns", "width"), [(0, 4, 3), (3, 4, 3), (3, 0, 3), (3, 4, 0)])
def test_spmm_without_entries(rows, columns, width):
    indptr, indices = torch.zeros(rows + 1, dtype=torch.int32), torch.empty(0, dtype=torch.int32)
    x = torch.ones(columns, width)
    found = on_gpu.spmm(*(on_device(each) for each in (indptr, indices, None, x, x[:0])))
    assert torch.equal(found.cpu(), torch.zeros(rows, width))


def test_who_computes():
    """By device and type; without tensors, the loops that build batches on the host."""

    def chosen(*kinds):  # nothing else of a tensor is looked at, and there may be no GPU
        given = (SimpleNamespace(device=torch.device(device), dtype=dtype) for device, dtype in kinds)
        return kernels.kernels_for(None, *given)

    on_cpu, on_cuda = ("cpu", torch.float32), ("cuda:1", torch.float32)
    assert chosen() is fast
    assert chosen(on_cpu, ("cpu", torch.float64)) is fast
    assert chosen(on_cpu, ("cpu", torch.float16)) is plain
    assert chosen(*(("cuda:1", dtype) for dtype in TYPES)) is on_gpu
    assert chosen(("cuda", torch.int64)) is plain
    assert chosen(on_cpu, on_cuda) is plain
    assert chosen(("mps", torch.float32)) is plain
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMC_KERNELS", "plain")
        assert chosen(on_cuda) is plain
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_has_triton", lambda: False)
        assert chosen(on_cuda) is plain


@pytest.mark.skipif(DEVICE == "cuda", reason="the graph is on the CPU")
def test_a_step_of_lmc_has_the_same_gradient(monkeypatch):
    """With autograd's functions around the loops: norm, dropout, histories and products of two sources."""
    drawn = lmc.synthetic(nodes=20, degree=4, features=5, classes=3, seed=1)
    graph = lmc.Graph.from_pyg(drawn.to_pyg().apply(torch.Tensor.double, "x"))

    def gradient():
        torch.manual_seed(0)
        model = lmc.GCN(5, 4, graph.num_classes, layers=2, dropout=0.3, norm="batch").double()
        estimator = lmc.LMC()
        estimator.bind(model, graph)
        for nodes in (range(12), range(8, 20)):
            estimator.backward(graph.batch(nodes))
        return [parameter.grad for parameter in model.parameters()]

    expected = gradient()
    monkeypatch.setattr(kernels, "TRITON", kernels.NUMBA)
    monkeypatch.setattr(kernels, "NUMBA", set())
    assert kernels.kernels_for(graph.x) is on_gpu
    for one, other in zip(gradient(), expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-13)


COMPILE = """
import sys, numpy, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from lmc.kernels import on_gpu

NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}
NAMES |= {torch.bool: "i1", torch.int32: "i32", torch.int64: "i64"}

def compile(kernel, programs, *arguments):
    types, constants = {}, {}
    for place, (name, given) in enumerate(zip(kernel.arg_names, arguments, strict=True)):
        types[name] = "*" + NAMES[given.dtype] if isinstance(given, torch.Tensor) else "i32"
        if given is None or (isinstance(given, int) and given == 1):  # what a launch makes constants of
            types[name], constants[place,] = "constexpr", given
    target, options = GPUTarget("cuda", 80, 32), {"enable_fp_fusion": True}
    made = triton.compile(ASTSource(kernel, types, constants), target=target, options=options)
    assert len(made.asm["cubin"]) > 1000
    print(kernel.__name__)

on_gpu._launch = compile
dtype = getattr(torch, sys.argv[1])
z, column, rows = torch.ones(3, 2, dtype=dtype), torch.ones(2, dtype=dtype), torch.arange(3)
on_gpu.moments(z)
on_gpu.sums(z, z)
on_gpu.activate(z, column, column, None, 0.0, z > 0)
on_gpu.activate(z, column, column, numpy.ones(3, numpy.uint64), 0.5)
on_gpu.activated_sums(z, z > 0, z, 0.5)
on_gpu.activated_vjp(z, z > 0, z, 0.5, column, column, column)
on_gpu.put_rows(rows, z, z)
on_gpu.spmm(rows.int(), rows.int(), torch.ones(3), z, z[:0])
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", *(pytest.param(each, marks=pytest.mark.long) for each in ("float16", "float32", "float64"))],
)
def test_every_loop_compiles_to_machine_code(dtype, tmp_path):
    """For NVIDIA's GPUs of compute capability 8.0; none is needed for that."""
    command = [sys.executable, "-W", "error", "-c", COMPILE, dtype]
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    loops = "_moments _sums _activate _activate _activated_sums _activated_vjp _put_rows _spmm"
    assert done.stdout.split() == loops.split()
