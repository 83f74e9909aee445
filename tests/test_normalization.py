import numpy as np
import pytest
import torch
from hypothesis import assume, given
from torch_geometric.data import Data
from torch_geometric.nn import ChebConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import lmc
from lmc.data.normalization import normalize_transposed
from strategies import graphs


def dense_norm(example, norm):
    """The three formulas, dense."""
    a = example.dense.copy()
    if norm == "gcn":
        np.fill_diagonal(a, example.loop)
    if norm == "sum":
        return a
    degree = a.sum(axis=1)
    inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree != 0)
    if norm == "mean":
        return inverse[:, None] * a
    return np.sqrt(inverse)[:, None] * a * np.sqrt(inverse)[None, :]


@pytest.mark.parametrize("norm", ["gcn", "mean", "sum"])
@given(example=graphs())
def test_every_norm_equals_its_formula(norm, example):
    matrix = lmc.normalize(example.graph, norm)
    assert matrix.values.dtype == torch.float64
    assert matrix.is_ordered()
    assert np.allclose(matrix.to_dense().numpy(), dense_norm(example, norm), rtol=1e-14, atol=0)
    transposed = normalize_transposed(example.graph, norm)
    assert torch.equal(transposed.to_dense(), matrix.to_dense().T)
    if norm != "mean" and example.graph.is_undirected:
        assert transposed is matrix


@given(example=graphs())
def test_gcn_equals_pyg(example):
    """On the edges as they were given, repeated ones included; of repeated self-loops PyG keeps the last."""
    data = Data(edge_index=torch.tensor(example.edges, dtype=torch.long).reshape(-1, 2).T)
    if example.weights is not None:
        data.edge_weight = torch.tensor(example.weights, dtype=torch.float64)
    index, weight = gcn_norm(
        data.edge_index, data.get("edge_weight"), example.graph.num_nodes, dtype=torch.float64
    )
    dense = torch.zeros(2 * [example.graph.num_nodes], dtype=torch.float64)
    dense.index_put_((index[1], index[0]), weight.double(), accumulate=True)
    assert torch.allclose(lmc.normalize(example.graph).to_dense(), dense, rtol=1e-14, atol=0)


@pytest.mark.parametrize("normalization", ["sym", "rw", None])
@given(example=graphs())
def test_chebyshev_equals_pyg(normalization, example):
    """ChebConv's own, on the edges as they were given."""
    conv = ChebConv(1, 1, 2, normalization=normalization)
    index = torch.tensor(example.edges, dtype=torch.long).reshape(-1, 2).T
    weight = None if example.weights is None else torch.tensor(example.weights, dtype=torch.float64)
    nodes = example.graph.num_nodes
    index, weight = conv.__norm__(index, nodes, weight, normalization, dtype=torch.float64)
    assume(bool(weight.isfinite().all()))  # without an edge PyG's is 0 / 0
    dense = torch.zeros(nodes, nodes, dtype=torch.float64)
    dense.index_put_((index[1], index[0]), weight, accumulate=True)
    matrix = lmc.normalize(example.graph, f"chebyshev {normalization or ''}".strip())
    assert matrix.is_ordered()
    assert torch.allclose(matrix.to_dense(), dense, rtol=1e-12, atol=1e-15)
    if normalization == "sym" and example.graph.is_undirected:
        assert normalize_transposed(example.graph, "chebyshev sym") is matrix


def test_a_normalised_adjacency_is_computed_once():
    graph = lmc.synthetic(nodes=50)
    assert lmc.normalize(graph) is lmc.normalize(graph, "gcn")


def test_negative_sums_and_unknown_names_are_refused():
    arguments = ([[0], [1]], torch.ones(2, 1), [0, 1], [True, True])
    graph = lmc.Graph(*arguments, edge_weight=[-3.0])
    with pytest.raises(lmc.GraphError, match=r"row 1 of the adjacency sums to -2\.0; norm='gcn'"):
        lmc.normalize(graph)
    assert lmc.normalize(graph, "sum").values.tolist() == [-3.0]
    with pytest.raises(
        lmc.ArgumentError, match=r"norm='max': must be one of gcn, gcn improved, .*, mean, sum, "
    ):
        lmc.normalize(graph, "max")


@pytest.mark.parametrize("weight", [None, [0.5, 3.0, 2.0]])
def test_improved_is_that_of_pyg_with_and_without_weights(weight):
    """Without weights PyG adds self-loops of weight one, `improved` or not."""
    ends = torch.tensor([[0, 1, 2], [1, 2, 2]])
    given = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    graph = lmc.Graph(ends, torch.ones(3, 1, dtype=torch.float64), [0, 1, 0], [True] * 3, edge_weight=weight)
    index, normalised = gcn_norm(ends, given, 3, improved=True, dtype=torch.float64)
    dense = torch.zeros(3, 3, dtype=torch.float64).index_put_((index[1], index[0]), normalised)
    assert torch.allclose(lmc.normalize(graph, "gcn improved").to_dense(), dense, rtol=1e-14)
