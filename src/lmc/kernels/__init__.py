"""The few hot loops.

Each has forms of the same signature: a numba loop in `fast.py` for CPU tensors of float32 or float64; for
what a step computes, a Triton loop in `on_gpu.py` for tensors on a GPU; and a plain torch twin in `plain.py`
for everything else. Tests compare each with the twin. Which one runs is decided here and nowhere else;
`LMC_KERNELS=plain` in the environment asks for the twins.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from lmc.kernels import plain

NUMBA = {("cpu", each) for each in (torch.float32, torch.float64)}
TRITON = {("cuda", each) for each in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}


def kernels_for(*tensors: Tensor | None) -> Any:
    """The module whose loops take these tensors; without any, loops over arrays of the host."""
    if os.environ.get("LMC_KERNELS") == "plain":
        return plain
    kinds = {(tensor.device.type, tensor.dtype) for tensor in tensors if tensor is not None}
    if kinds <= NUMBA:
        from lmc.kernels import fast

        return fast
    if kinds <= TRITON and _has_triton():
        from lmc.kernels import on_gpu

        return on_gpu
    return plain


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None  # torch brings it along where it is built for GPUs, but on Windows


def compiled_seconds() -> float:
    """How long loops were compiled in this process, by whatever thread."""
    compilation = sys.modules.get("lmc.kernels.compilation")  # it loads numba: not before it is needed
    return 0.0 if compilation is None else float(compilation.COMPILATIONS.seconds())
