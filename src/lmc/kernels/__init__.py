"""The few hot loops.

Each has two forms of the same signature: a numba loop in `fast.py` for CPU tensors of float32 or float64, and
a plain torch twin in `plain.py` for everything else. Tests compare the two. Which one runs is decided here
and nowhere else; `LMC_KERNELS=plain` in the environment asks for the twins.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import Tensor

from lmc.kernels import plain

FAST_TYPES = (torch.float32, torch.float64)


def kernels_for(*tensors: Tensor | None) -> Any:
    """The module whose loops take these tensors."""
    if os.environ.get("LMC_KERNELS") == "plain":
        return plain
    for tensor in tensors:
        if tensor is not None and (tensor.device.type != "cpu" or tensor.dtype not in FAST_TYPES):
            return plain
    from lmc.kernels import fast

    return fast


def compiled_seconds() -> float:
    """How long loops were compiled in this process, by whatever thread."""
    compilation = sys.modules.get("lmc.kernels.compilation")  # it loads numba: not before it is needed
    return 0.0 if compilation is None else float(compilation.COMPILATIONS.seconds())
