"""The loops that draw messages against their plain twins, and what they promise by enumeration."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from lmc import hashed_random
from lmc.data.sampled import SampledBlock, heard_among
from lmc.kernels import fast, parallel, plain
from lmc.sparse import CSR
from strategies import graphs


def equal(one, other):
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True))


def star(leaves):
    """Node 0 hears everybody else; the last node hears nobody."""
    ends = [[*range(1, leaves + 1)], [0] * leaves]
    return lmc.Graph(ends, torch.ones(leaves + 2, 1))


@given(example=graphs(), most=st.integers(-1, 5), data=st.data())
def test_draws_and_numbers_are_those_of_the_twin(example, most, data):
    sources, n = example.graph.sources, example.graph.num_nodes
    nodes = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), max_size=n)), dtype=torch.int64)
    keys = hashed_random.bits(data.draw(st.integers(0, 99)), np.arange(len(nodes)))
    drawn = [k.draw(sources.indptr, sources.indices, nodes, keys, most) for k in (fast, plain)]
    assert equal(*drawn)
    offsets, columns, stand_for = drawn[0]
    heard = ~np.eye(n, dtype=bool) & example.pattern
    for row, node in enumerate(nodes.tolist()):
        first, *others = columns[offsets[row] : offsets[row + 1]].tolist()
        degree = int(heard[node].sum())
        assert first == node
        assert len(set(others)) == len(others) == (degree if most < 0 else min(most, degree))
        assert heard[node][others].all()
        expected = [1.0, *(degree / len(others) for _ in others)]
        assert stand_for[offsets[row] : offsets[row + 1]].tolist() == expected
    distinct = nodes.unique()
    assert equal(*(k.number(distinct, columns) for k in (fast, plain)))
    members, places = fast.number(distinct, columns)
    assert torch.equal(members[places], columns)
    assert torch.equal(members[: len(distinct)], distinct)
    assert len(members.unique()) == len(members)


@given(example=graphs(), stacked=st.sampled_from([1, 2]), data=st.data())
def test_entries_are_picked_as_by_the_twin(example, stacked, data):
    """Each entry of the matrix that was asked for, once, repeated ones included."""
    graph, n = example.graph, example.graph.num_nodes
    matrix = graph.adjacency  # repeated edges and self-loops are entries of their own
    count = n // stacked
    nodes = data.draw(st.permutations(range(count)))[: data.draw(st.integers(0, count))]
    rows = torch.tensor([node * stacked + i for node in nodes for i in range(stacked)], dtype=torch.int64)
    wanted = [data.draw(st.lists(st.integers(0, n - 1), unique=True)) for _ in nodes]
    offsets = torch.tensor(np.cumsum([0, *map(len, wanted)]))
    columns = torch.tensor([column for each in wanted for column in each], dtype=torch.int64)
    found = [k.pick(matrix.indptr, matrix.indices, rows, stacked, offsets, columns) for k in (fast, plain)]
    assert equal(*found)
    ends, entry, which = found[0]
    assert torch.equal(columns[which], matrix.indices[entry].long())
    for place, row in enumerate(rows.tolist()):
        own = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()
        expected = Counter(column for column in own if column in wanted[place // stacked])
        assert Counter(matrix.indices[entry[ends[place] : ends[place + 1]]].tolist()) == expected


def test_a_hub_is_drawn_from_with_the_same_bits_on_any_threads(monkeypatch):
    monkeypatch.setattr(parallel, "SMALL", 0)
    leaves, before = 20_000, torch.get_num_threads()
    graph = star(leaves)
    sources, nodes = graph.sources, torch.tensor([leaves + 1, 0, 5, *range(1, 40), 0])
    keys = hashed_random.bits(3, np.arange(len(nodes)))
    matrix, found = lmc.normalize(graph), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            drawn = fast.draw(sources.indptr, sources.indices, nodes, keys, 7)
            picked = fast.pick(matrix.indptr, matrix.indices, nodes, 1, *drawn[:2])
            found.append((*drawn, *picked))
    finally:
        torch.set_num_threads(before)
    assert equal(found[0], found[1])
    assert equal(found[0], found[2])
    assert equal(found[0][:3], plain.draw(sources.indptr, sources.indices, nodes, keys, 7))
    assert found[0][0].diff().tolist() == [1, 8, *[1] * 40, 8]  # the isolated one, the hub, leaves, the hub


@pytest.mark.parametrize(("degree", "most"), [(4, 2), (5, 3), (3, 1), (6, 5)])
def test_every_set_of_neighbours_is_equally_likely(degree, most):
    """Within five deviations of a count; by either way to draw."""
    sources, trials = star(degree).sources, 6000
    nodes = torch.zeros(trials, dtype=torch.int64)
    keys = hashed_random.bits(1, np.arange(trials))
    _, columns, _ = fast.draw(sources.indptr, sources.indices, nodes, keys, most)
    found = Counter(tuple(row[1:]) for row in columns.view(trials, most + 1).tolist())
    sets = list(combinations(range(1, degree + 1), most))
    assert set(found) == set(sets)
    chance = 1 / len(sets)
    allowed = 5 * (trials * chance * (1 - chance)) ** 0.5
    assert all(abs(found[each] - trials * chance) < allowed for each in sets)


def heard_by_hand(example, nodes, drawn):
    """(nodes, graph's nodes) bool: the drawn ones that each hears, itself included."""
    everyone = example.pattern | np.eye(len(example.pattern), dtype=bool)
    mask = np.zeros(len(everyone), dtype=bool)
    mask[drawn] = True
    return everyone[nodes] & mask


@given(example=graphs(), norm=st.sampled_from(["gcn", "mean", "sum"]), data=st.data())
def test_a_block_is_the_dense_matrix_where_it_was_drawn(example, norm, data):
    """Of any draw and any numbers that messages stand for; forth, and back by autograd."""
    graph, n = example.graph, example.graph.num_nodes
    nodes = torch.tensor(data.draw(st.permutations(range(n)))[: data.draw(st.integers(1, n))])
    drawn = torch.tensor(data.draw(st.permutations(range(n)))[: data.draw(st.integers(0, n))]).long()
    heard = heard_among(graph.sources, nodes, drawn)
    mask = heard_by_hand(example, nodes.numpy(), drawn.numpy())
    stand_for = torch.rand(heard.num_entries, dtype=torch.float64) + 0.5
    heard = heard.with_values(stand_for)
    assert np.array_equal(heard.with_values(None).to_dense().numpy(), mask.astype(np.float32))
    block = SampledBlock.of_heard(graph, nodes, heard)
    dense = torch.from_numpy(mask) * heard.to_dense() * lmc.normalize(graph, norm).to_dense()[nodes]
    assert torch.allclose(block.block(norm).to_dense(), dense[:, block.members], rtol=1e-12, atol=0)
    message = torch.randn(len(block.members), 2, dtype=torch.float64, requires_grad=True)
    received = block.received(norm, message)
    assert torch.allclose(received, dense[:, block.members] @ message, rtol=1e-9, atol=1e-12)
    back = torch.randn_like(received)
    (found,) = torch.autograd.grad(received, message, back)
    assert torch.allclose(found, dense[:, block.members].T @ back, rtol=1e-9, atol=1e-12)


def test_places_of_a_numbered_matrix_come_with_who_is_heard():
    triangle = CSR(torch.tensor([0, 2, 4, 6]), torch.tensor([1, 2, 0, 2, 0, 1]), torch.arange(6), 3)
    heard = heard_among(triangle, torch.tensor([2, 0]), torch.tensor([0, 1]))
    assert heard.indptr.tolist() == [0, 2, 4]
    assert heard.indices.tolist() == [0, 1, 0, 1]
    assert heard.values.tolist() == [4, 5, -1, 0]
