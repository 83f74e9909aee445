"""Arrays as `.npy` files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from tokenize import TokenError
from typing import Any, BinaryIO, NamedTuple

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


class Pieces(NamedTuple):
    """An array that is never whole in memory.

    Attributes:
        dtype: of its numbers.
        row: the shape of one of its rows; () for an array of numbers.
        pieces: consecutive rows, in that type.
    """

    dtype: np.dtype[Any]
    row: tuple[int, ...]
    pieces: Iterable[NDArray[Any]]


def write_pieces(file: BinaryIO, array: Pieces) -> None:
    """Write as `.npy` what comes in pieces; how many rows there are is known, and written, at the end.

    >>> import io
    >>> file = io.BytesIO()
    >>> write_pieces(file, Pieces(np.dtype(float), (2,), [np.eye(2), np.eye(2)]))
    >>> np.load(io.BytesIO(file.getvalue())).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    rows = 0
    _write_header(file, array, rows)
    for piece in array.pieces:
        rows += len(piece)
        file.write(np.ascontiguousarray(piece, dtype=array.dtype).data)
    file.seek(0)
    _write_header(file, array, rows)


def _write_header(file: BinaryIO, array: Pieces, rows: int) -> None:
    """It has room for any number of rows, so that it can be written again."""
    descr = np.lib.format.dtype_to_descr(array.dtype)
    about = {"descr": descr, "fortran_order": False, "shape": (rows, *array.row)}
    np.lib.format.write_array_header_1_0(file, about)


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


def handed_over(array: Any) -> Any:
    """An array that nobody else has, as a tensor of the same memory; as it is where torch has no such type.

    >>> handed_over(np.arange(3)), handed_over(np.array(["a"]))
    (tensor([0, 1, 2]), array(['a'], dtype='<U1'))
    """
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        return array
    try:
        return torch.from_numpy(array)
    except TypeError:
        return array


def shared(array: NDArray[Any]) -> Tensor:
    """The array as a tensor, also if it cannot be written to; then nothing may write to the tensor either."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
