"""Numba loops over rows of int8; `plain_quantized.py` says what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmc.kernels import parallel
from lmc.kernels.compilation import loop
from lmc.kernels.plain_quantized import CODES, LARGEST_SCALE, LEAST_SCALE, SCALE, SCALE_BITS

_MAGNITUDE, _INFINITE = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_LARGEST = np.float32(CODES * LARGEST_SCALE)
_CODES, _LEAST = np.float32(CODES), np.float32(LEAST_SCALE)
_UP, _KEPT = np.uint32(SCALE_BITS), np.uint32(0xFFFFFFFF ^ SCALE_BITS)


@loop
def _scale(most: Any) -> Any:
    """Of a row whose largest absolute entry has these bits, which are ordered as the numbers are."""
    if most > _INFINITE:
        return np.float32(np.nan)
    scale = np.uint32(most).view(np.float32)
    scale = np.float32(min(scale, _LARGEST) / _CODES)
    scale = np.uint32((scale.view(np.uint32) + _UP) & _KEPT).view(np.float32)
    return max(scale, _LEAST)


@loop
def _put_quantized(start: Any, stop: Any, rows: Any, values: Any, codes: Any, scales: Any) -> None:
    width = values.shape[1]
    given = np.empty(width, np.float32)
    bits = given.view(np.uint32)
    for i in range(start, stop):
        if rows[i] < 0:
            continue
        given[:] = values[i]
        most = np.uint32(0)
        for c in range(width):
            most = max(most, bits[c] & _MAGNITUDE)
        scale = _scale(most)
        scales[rows[i], 0] = scale
        row = codes[rows[i], SCALE:]
        if scale != scale:
            row[:] = 0
            continue
        wide = np.float64(scale)
        for c in range(width):
            row[c] = np.int8(min(max(np.rint(np.float64(given[c]) / wide), -127.0), 127.0))


def put_quantized(rows: Tensor, values: Tensor, into: Tensor) -> None:
    """Write (rows, width) values to distinct rows of (any, bytes) int8; rows below zero are left out."""
    arrays = (rows.numpy(), values.contiguous().numpy(), into.numpy(), into.view(torch.float32).numpy())
    parallel.over(len(values), values.numel(), _put_quantized, *arrays)


@loop
def _take_quantized(start: Any, stop: Any, codes: Any, scales: Any, rows: Any, out: Any) -> None:
    width = out.shape[1]
    for i in range(start, stop):
        scale = scales[rows[i], 0]
        row, into = codes[rows[i], SCALE:], out[i]
        for c in range(width):
            into[c] = np.float32(row[c]) * scale


def take_quantized(source: Tensor, rows: Tensor, width: int) -> Tensor:
    """(rows, width) float32 of (any, bytes) int8."""
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(source):
        raise IndexError("index out of range in self")  # as torch has it; the loop would read elsewhere
    out = torch.empty(len(rows), width)
    arrays = (source.numpy(), source.view(torch.float32).numpy(), rows.numpy(), out.numpy())
    parallel.over(len(rows), out.numel(), _take_quantized, *arrays)
    return out
