"""Arrays as `.npy` files."""

from __future__ import annotations

from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

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
