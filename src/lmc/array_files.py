"""Arrays as `.npy` files."""

from __future__ import annotations

import warnings
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DAMAGED_ARRAY = (
    OSError,
    ValueError,
    EOFError,
    OverflowError,
    TypeError,
    MemoryError,
    TokenError,
    SyntaxError,
)
"""What numpy raises for a file that is not a `.npy`; the header is read as a Python literal."""


def write_array(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write as `.npy`. Not by `numpy.save`: it bypasses `file`, and is silent where the disk is full.

    >>> import io, numpy
    >>> file = io.BytesIO()
    >>> write_array(file, numpy.eye(2))
    >>> numpy.array_equal(numpy.load(io.BytesIO(file.getvalue())), numpy.eye(2))
    True
    """
    array = np.ascontiguousarray(array)
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    file.write(array.data)


def shared(array: NDArray[Any]) -> Tensor:
    """The array as a tensor, also if it cannot be written to; then nothing may write to the tensor either."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
