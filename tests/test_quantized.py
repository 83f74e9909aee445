"""Rows of int8: codes that are the nearest, by exact arithmetic; numba against torch."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmc.kernels import fast, plain
from lmc.kernels.plain_quantized import CODES, LARGEST_SCALE, SCALE, quantized_width

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
LARGEST = CODES * LARGEST_SCALE


def stored(values, kernel=fast):
    into = torch.zeros(len(values), quantized_width(values.shape[1]), dtype=torch.int8)
    kernel.put_quantized(torch.arange(len(values)), values, into)
    return into


@pytest.mark.parametrize("kernel", [fast, plain])
@given(row=st.lists(FLOATS, min_size=1, max_size=9))
def test_the_error_is_at_most_half_a_step_exactly(kernel, row):
    values = torch.tensor([row])
    into = stored(values, kernel)
    scale = Fraction(float(into.view(torch.float32)[0, 0]))
    for x, found in zip(
        values[0].tolist(), kernel.take_quantized(into, torch.tensor([0]), len(row))[0].tolist(), strict=True
    ):
        x = max(-LARGEST, min(LARGEST, x))
        assert abs(Fraction(x) - Fraction(found)) <= scale / 2
    # A step is a 127th of the largest entry: no other scale of so many bits is smaller.
    most = min(LARGEST, max(abs(x) for x in values[0].tolist()))
    assert float(scale) <= max(most / CODES * (1 + 2**-16), 2.0**-126)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 1), (5, 0), (300, 256), (40, 41)])
def test_loops_equal_their_twins(rows, width, dtype):
    generator = torch.Generator().manual_seed(rows + width)
    values = torch.randn(rows, width, generator=generator, dtype=dtype) * torch.logspace(-45, 38, rows)[
        :, None
    ].to(dtype)
    places = torch.randperm(rows + 4, generator=generator)[:rows]
    if rows > 2:
        places[1] = -1  # left out
    found = [torch.full((rows + 4, quantized_width(width)), 7, dtype=torch.int8) for _ in range(2)]
    for kernel, into in zip((fast, plain), found, strict=True):
        kernel.put_quantized(places, values, into)
    assert torch.equal(*found)
    there = places[places >= 0]
    assert torch.equal(
        fast.take_quantized(found[0], there, width), plain.take_quantized(found[0], there, width)
    )


@pytest.mark.parametrize("kernel", [fast, plain])
def test_rows_that_are_no_numbers_zero_or_too_large(kernel):
    inf, nan = np.inf, np.nan
    rows = torch.tensor([[0.0, -0.0], [1.0, nan], [inf, 1.0], [-inf, inf], [nan, inf], [1e-45, 0.0]])
    found = kernel.take_quantized(stored(rows, kernel), torch.arange(6), 2)
    assert found[0].tolist() == [0, 0]
    assert bool(found[1].isnan().all())
    assert bool(found[4].isnan().all())
    assert found[2].tolist() == [LARGEST, 0]
    assert found[3].tolist() == [-LARGEST, LARGEST]
    assert found[5].tolist() == [0, 0]
    assert kernel.take_quantized(torch.zeros(1, 8, dtype=torch.int8), torch.tensor([0]), 3).tolist() == [
        [0, 0, 0]
    ]
    assert SCALE == 4
