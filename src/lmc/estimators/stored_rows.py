"""How the rows of a history are stored: as they are, or in int8 with a scale each."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from lmc.kernels import kernels_for
from lmc.kernels.plain_quantized import quantized_width


class StoredRows(Protocol):
    """From values to entries of storage, and back.

    Attributes:
        dtype: of entries.
        entries: in a row.
    """

    dtype: torch.dtype
    entries: int

    def take(self, stored: Tensor, rows: Tensor) -> Tensor:
        """(rows, width) values of (any, entries)."""

    def values(self, stored: Tensor) -> Tensor:
        """(any, width) values of (any, entries)."""

    def put(self, rows: Tensor, values: Tensor, stored: Tensor) -> None:
        """Write (rows, width) to distinct rows of (any, entries); those below zero are left out."""


class PlainRows:
    """Rows of floats; what is too large for them becomes their largest number."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        self.dtype, self.entries = dtype, width

    def take(self, stored: Tensor, rows: Tensor) -> Tensor:
        """(rows, width) values of (any, entries)."""
        return stored.index_select(0, rows)

    def values(self, stored: Tensor) -> Tensor:
        """(any, width) values of (any, entries): themselves."""
        return stored

    def put(self, rows: Tensor, values: Tensor, stored: Tensor) -> None:
        """Write (rows, width) to distinct rows of (any, entries); those below zero are left out."""
        if self.dtype != values.dtype:
            limit = torch.finfo(self.dtype).max
            values = values.clamp(-limit, limit).to(self.dtype)
        kernels_for(stored).put_rows(rows, values, stored)


class QuantizedRows:
    """Rows of int8, each with a scale: an entry is off by half a 127th of the row's largest one at most."""

    dtype = torch.int8

    def __init__(self, width: int) -> None:
        self._width, self.entries = width, quantized_width(width)

    def take(self, stored: Tensor, rows: Tensor) -> Tensor:
        """(rows, width) float32 values of (any, entries)."""
        found: Tensor = _loops(stored).take_quantized(stored, rows, self._width)
        return found

    def values(self, stored: Tensor) -> Tensor:
        """(any, width) float32 values of (any, entries)."""
        return self.take(stored, torch.arange(len(stored)))

    def put(self, rows: Tensor, values: Tensor, stored: Tensor) -> None:
        """Write (rows, width) to distinct rows of (any, entries); those below zero are left out."""
        _loops(stored).put_quantized(rows, values, stored)


def _loops(stored: Tensor) -> Any:
    return kernels_for(stored.view(torch.float32))  # as which scales are read


def rows_of(width: int, dtype: torch.dtype) -> StoredRows:
    """Rows of a type of storage.

    >>> rows_of(40, torch.float16).entries, rows_of(40, torch.int8).entries
    (40, 44)
    """
    return QuantizedRows(width) if dtype == torch.int8 else PlainRows(width, dtype)


def bytes_of_row(width: int, dtype: torch.dtype) -> int:
    """How many bytes a row takes.

    >>> bytes_of_row(40, torch.float16), bytes_of_row(40, torch.int8)
    (80, 44)
    """
    rows = rows_of(width, dtype)
    return rows.entries * rows.dtype.itemsize
