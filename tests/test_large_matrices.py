"""Matrices that are looked at in pieces, beside the same questions asked of dense ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmc.sparse import CSR

PLACES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12)


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmc.sparse.ENTRIES_AT_ONCE", 3)
        yield


@given(PLACES, st.booleans())
def test_answers_do_not_depend_on_pieces(places, both_ways):
    if both_ways:
        places = places + [(column, row) for row, column in places]
    rows, columns = np.array(sorted(places), dtype=np.int64).reshape(-1, 2).T
    matrix = CSR.of_entries(rows, columns, (5, 5)).with_values(None)
    dense = np.zeros((5, 5), int)
    np.add.at(dense, (rows, columns), 1)
    assert next(part for part, _ in matrix.pieces()).start == 0
    assert torch.equal(torch.cat([part.indices for _, part in matrix.pieces()]), matrix.indices)
    assert matrix.is_ordered()
    assert matrix.is_canonical() == (dense.max() <= 1)
    assert (matrix.without_diagonal() is matrix) == (np.trace(dense) == 0)
    transposed = matrix.transpose()
    assert (transposed is matrix) == np.array_equal(dense, dense.T)
    assert np.array_equal(transposed.to_dense().numpy(), dense.T)


def test_rows_out_of_order_are_seen_in_any_piece():
    for place in range(5):
        columns = np.arange(12).reshape(6, 2) % 6
        columns[place] = columns[place][::-1]
        falls = bool((np.diff(columns, axis=1) < 0).any())
        matrix = CSR(torch.arange(0, 14, 2), torch.from_numpy(columns.flatten()), None, 6)
        assert matrix.is_ordered() != falls
