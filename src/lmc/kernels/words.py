"""Numbers of 16 bits in loops: numba has no bfloat16, so loops read and write its words.

A bfloat16 is the upper half of a float32. Loops compute in float32 and round when they store, to the nearest,
and of two that are as near to the even one, as torch does. Other numbers are read and stored as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import types
from numba.extending import overload
from numpy.typing import NDArray
from torch import Tensor

from lmc.kernels.plain import wide_type


def words(tensor: Tensor) -> NDArray[Any]:
    """The tensor's memory for loops: of bfloat16, its words.

    >>> words(torch.tensor([1.0, -2.0], dtype=torch.bfloat16)).tolist()
    [16256, 49152]
    """
    found: NDArray[Any] = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return found


def wide(z: Tensor) -> Any:
    """The numpy type that loops compute in."""
    return np.float64 if wide_type(z) == torch.float64 else np.float32


def value_of(entry: Any) -> Any:
    """In a loop: what an entry says."""
    raise NotImplementedError("for loops alone")


def stored(value: Any, array: Any) -> Any:
    """In a loop: a number as an entry of an array."""
    raise NotImplementedError("for loops alone")


@overload(value_of, inline="always", strict=False)
def _value_of(entry: Any) -> Any:
    if entry == types.uint16:
        return lambda entry: np.uint32(np.uint32(entry) << np.uint32(16)).view(np.float32)
    return lambda entry: entry


@overload(stored, inline="always", strict=False)
def _stored(value: Any, array: Any) -> Any:
    if array.dtype != types.uint16:
        return lambda value, array: value

    def rounded(value: Any, array: Any) -> Any:
        bits = np.float32(value).view(np.uint32)
        if bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000):  # no number: rounding up could make it one
            return np.uint16(0x7FC0)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))

    return rounded
