"""What works on this machine: kernels, estimators, a training, and the time of an epoch beside PyG's."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import lmc
from lmc import hashed_random, memory_use
from lmc.batching.samplers import BatchOptions
from lmc.bench.rows import TimedRow, own, pyg
from lmc.device import HOST, copied, free_memory, on_host, widest_type
from lmc.files import cache_folder, one_line
from lmc.kernels import kernels_for, plain
from lmc.precision import multiplies_bf16_faster
from lmc.runs.environment import environment
from lmc.runs.registry import METHODS

PACKAGES = ("torch-geometric", "numpy", "scipy", "pymetis", "triton")
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2}
"""How far a kernel may be off, by the type of what it gives."""


class Finding(NamedTuple):
    """What one check has found.

    Attributes:
        name: of the check.
        passed: whether it is as it should be; None where there is nothing to judge.
        detail: a number, or why not.
        seconds: that it took.
    """

    name: str
    passed: bool | None
    detail: str
    seconds: float


def facts(device: torch.device = HOST) -> dict[str, Any]:
    """Versions, machine, and what is left of memory and disk; what a report of a fault should contain."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return environment() | {
        **{package: _version(package) for package in PACKAGES},
        "kernels": os.environ.get("LMC_KERNELS") or "fast",
        "device": str(device),
        "GPU": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "free memory of the device, MB": None if (left := free_memory(device)) is None else left >> 20,
        "bf16 is faster": multiplies_bf16_faster(),
        "cache": str(folder),
        "cache can be written": os.access(folder, os.W_OK),
        "free memory, MB": None if (free := memory_use.free()) is None else free >> 20,
        "free disk, MB": shutil.disk_usage(folder).free >> 20,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def findings(device: torch.device = HOST) -> Iterator[Finding]:
    """Every check, one after the other; none ends the others."""
    whole_runs: list[tuple[str, Check]] = [
        ("training", partial(_training, device)),
        ("epoch", partial(_epoch, device)),
    ]
    for name, check in (*_kernels(device), *_estimators(device), *whole_runs):
        began = time.perf_counter()
        try:
            passed, detail = check()
        except Exception as error:  # whatever it is, the others still say what works
            passed, detail = False, f"{type(error).__name__}: {one_line(error)}"
        yield Finding(name, passed, detail, time.perf_counter() - began)


Check = Callable[[], tuple[bool | None, str]]


# -- kernels ---------------------------------------------------------------------------------------------


def _kernels(device: torch.device) -> list[tuple[str, Check]]:
    """Each loop of the device beside its twin in plain torch on the host."""
    found = list[tuple[str, Check]]()
    for dtype in ROUNDING:
        if dtype == torch.float64 and widest_type(device) != dtype:
            continue
        for name, given in _given(dtype).items():
            title = f"kernel {name}, {str(dtype).removeprefix('torch.')}"
            found.append((title, partial(_beside_its_twin, name, given, device)))
    return found


def _given(dtype: torch.dtype) -> dict[str, tuple[Any, ...]]:
    """Arguments by the name of a loop."""
    drawn = torch.Generator().manual_seed(0)
    graph = lmc.synthetic(nodes=500, features=1)
    matrix = lmc.normalize(graph)
    z, g = (torch.randn(500, 37, generator=drawn).to(dtype) for _ in range(2))
    wide = plain.wide_type(z)
    scale, shift, third = torch.randn(3, 37, generator=drawn).to(wide)
    assert matrix.values is not None
    passed, keys = z > 0, hashed_random.bits(1, np.arange(500))
    return {
        "spmm": (matrix.indptr, matrix.indices, matrix.values.to(wide), z[:200], z[200:]),
        "moments": (z,),
        "sums": (g, z),
        "activate": (z, scale, shift, keys, 0.5),
        "activated_sums": (g, passed, z, 0.5),
        "activated_vjp": (g, passed, z, 0.5, scale, shift, third),
    }


def _beside_its_twin(name: str, given: tuple[Any, ...], device: torch.device) -> tuple[bool, str]:
    there = copied(given, device)
    numbers = [each for each in there if isinstance(each, Tensor) and each.is_floating_point()]
    found = _on_host(getattr(kernels_for(*numbers), name)(*there))
    expected = _on_host(getattr(plain, name)(*given))
    distance = max(_distance(one, other) for one, other in zip(found, expected, strict=True))
    return distance < ROUNDING[found[0].dtype], f"off by {distance:.1e}"


def _on_host(found: Any) -> list[Tensor]:
    return [on_host(each) for each in (found if isinstance(found, tuple) else [found])]


def _distance(one: Tensor, other: Tensor) -> float:
    """Relative, over all entries."""
    return float((one.double() - other.double()).norm() / other.double().norm())


# -- estimators ------------------------------------------------------------------------------------------


def _estimators(device: torch.device) -> list[tuple[str, Check]]:
    """One step of each by the kernels of the device, and by the plain ones on the host."""
    names = [name for name, method in METHODS.items() if method.model is None]
    return [(f"step of {METHODS[name].title}", partial(_step, name, device)) for name in names]


def _step(name: str, device: torch.device) -> tuple[bool, str]:
    found = _gradient(name, device)
    with _plain_kernels():
        expected = _gradient(name, HOST)
    distance = _distance(torch.cat(found), torch.cat(expected))
    return distance < 1e-3, f"gradient off by {distance:.1e}"


def _gradient(name: str, device: torch.device) -> list[Tensor]:
    """(any,) of every parameter, flat."""
    graph, estimator = lmc.synthetic(nodes=200), METHODS[name].load()()
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2, norm="batch", dropout=0.5)
    estimator.bind(model, graph, device=device)
    batch = next(estimator.make_sampler(graph, BatchOptions(parts=6, parts_per_batch=2)).epoch(0))
    for _ in range(2):  # the second one reads what the first has left in histories
        model.zero_grad()
        estimator.backward(batch)
    return [on_host(p.grad).flatten() for p in model.parameters() if p.grad is not None]


@contextmanager
def _plain_kernels() -> Iterator[None]:
    before = os.environ.get("LMC_KERNELS")
    os.environ["LMC_KERNELS"] = "plain"
    try:
        yield
    finally:
        os.environ.pop("LMC_KERNELS")
        if before is not None:
            os.environ["LMC_KERNELS"] = before


# -- whole runs ------------------------------------------------------------------------------------------


def _training(device: torch.device) -> tuple[bool, str]:
    """Better than the class that most nodes have."""
    graph = lmc.synthetic(nodes=2000)
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 32, graph.num_classes)
    best = lmc.fit(graph, model, lmc.LMC(), epochs=10, device=device, progress=False).best
    reached = 0.0 if best is None or best.val is None else best.val
    most = float(graph.y.bincount().max() / graph.num_nodes)
    return reached > most, f"validation accuracy {reached:.2f}; the largest class has {most:.2f}"


def _epoch(device: torch.device) -> tuple[None, str]:
    """Seconds of an epoch, the shorter of two after one that warms up."""
    graph = lmc.synthetic(nodes=20_000, degree=15, features=128)
    ours = own(graph, lmc.LMC(), BatchOptions(parts=40, parts_per_batch=10), device=device)
    beside = device if device.type == "cuda" else HOST  # torch has PyG's sparse products there alone
    seconds = [_shortest(row, device) for row in (ours, pyg(graph, device=beside))]
    full_batch = f"full batch of PyG on {beside.type} {seconds[1]:.2f} s"
    return None, f"LMC {seconds[0]:.2f} s, {full_batch}, 20,000 nodes, GCN 3 x 256"


def _shortest(row: TimedRow, device: torch.device) -> float:
    taken = list[float]()
    for _ in range(3):
        began = time.perf_counter()
        row.epoch()
        if device.type == "cuda":  # which may still be computing
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return min(taken[1:])
