"""Rows of int8 in plain torch: what `fast_quantized.py` is compared with.

A row is 4 bytes of a float32, its scale s, and then a code q from -127 to 127 for each entry, which stands
for q s. The scale is the largest absolute entry over 127, rounded up to 17 significant bits: q s then has at
most 24, and is exact in float32. A code is the nearest one, so that |x - q s| ≤ s / 2, exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

SCALE = 4
"""Bytes of the scale, which come first."""
CODES = 127
"""The largest code."""
SCALE_BITS = 0x7F
"""Those of a float32 that no scale has: its last 7."""
LEAST_SCALE = 2.0**-126
"""The smallest normal float32."""
LARGEST_SCALE = float(
    (torch.tensor(torch.finfo(torch.float32).max / CODES).view(torch.int32) & ~SCALE_BITS).view(torch.float32)
)
"""Of which `CODES` times are still a finite float32."""


def quantized_width(width: int) -> int:
    """Bytes of a row of so many entries; a multiple of 4, so that scales can be read as float32.

    >>> quantized_width(5)
    12
    """
    return SCALE + -(-width // 4) * 4


def put_quantized(rows: Tensor, values: Tensor, into: Tensor) -> None:
    """Write (rows, width) values to distinct rows of (any, bytes) int8; rows below zero are left out.

    What is too large, infinite included, becomes the largest that there is; a row with an entry that is no
    number has none that is.
    """
    there = rows >= 0
    rows, values = rows[there], values[there].float()
    most = values.abs().amax(1) if values.shape[1] else values.new_zeros(len(values))
    scale = most.clamp(max=CODES * LARGEST_SCALE) / CODES  # of one that is no number, that
    scale = ((scale.view(torch.int32) + SCALE_BITS) & ~SCALE_BITS).view(torch.float32).clamp(min=LEAST_SCALE)
    scale[most.isnan()] = torch.nan
    codes = (values.double() / scale.double()[:, None]).round().clamp(-CODES, CODES).nan_to_num(0)
    into[rows, SCALE : SCALE + values.shape[1]] = codes.to(torch.int8)
    into.view(torch.float32)[rows, 0] = scale


def take_quantized(source: Tensor, rows: Tensor, width: int) -> Tensor:
    """(rows, width) float32 of (any, bytes) int8."""
    taken = source.index_select(0, rows)
    return taken[:, SCALE : SCALE + width] * taken.view(torch.float32)[:, :1]
