from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from strategies import graphs
from test_normalization import dense_norm

NORMS = ("gcn", "mean", "sum")


@st.composite
def batched(draw):
    example = draw(graphs())
    n = example.graph.num_nodes
    nodes = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    return example, example.graph.batch(nodes, scale=2.0), nodes


def close(block, dense):
    return np.allclose(block.to_dense().numpy(), dense, rtol=1e-14, atol=0)


@given(batched())
def test_halo_is_exactly_the_outside_neighbours(case):
    example, batch, nodes = case
    either = example.pattern | example.pattern.T
    outside = {j for i in nodes for j in np.flatnonzero(either[i])} - set(nodes)
    assert batch.nodes.tolist() == nodes
    assert sorted(batch.halo.tolist()) == sorted(outside)
    assert batch.scale == 2.0


@pytest.mark.parametrize("norm", NORMS)
@given(case=batched())
def test_blocks_are_rows_of_the_normalised_adjacency(norm, case):
    example, batch, _ = case
    dense = dense_norm(example, norm)
    nodes, halo, members = batch.nodes.numpy(), batch.halo.numpy(), batch.members.numpy()
    assert close(batch.block(norm), dense[np.ix_(nodes, members)])
    assert close(batch.halo_block(norm), dense[np.ix_(halo, members)])
    assert close(batch.transposed_block(norm), dense.T[np.ix_(nodes, members)])
    assert close(batch.transposed_halo_block(norm), dense.T[np.ix_(halo, members)])
    # Nothing of a batch row is outside of the block.
    assert np.allclose(batch.block(norm).to_dense().sum(1), dense[nodes].sum(1), rtol=1e-13, atol=0)


@given(batched())
def test_blocks_are_built_once_and_shared_where_symmetric(case):
    example, batch, _ = case
    assert batch.block() is batch.block("gcn")
    if example.graph.is_undirected:
        assert batch.transposed_block() is batch.block()
        assert batch.transposed_halo_block() is batch.halo_block()


@pytest.mark.parametrize("norm", NORMS)
@given(case=batched())
def test_renormalized_is_the_subgraph_alone(norm, case):
    example, batch, _ = case
    inside = np.ix_(batch.nodes.numpy(), batch.nodes.numpy())
    subgraph = SimpleNamespace(dense=example.dense[inside], loop=example.loop[batch.nodes.numpy()])
    assert close(batch.renormalized(norm), dense_norm(subgraph, norm))


@given(batched())
def test_degrees_of_the_halo_equal_a_count_by_hand(case):
    example, batch, _ = case
    either = example.neighbours
    halo = batch.halo.numpy()
    assert batch.global_degree.tolist() == either[halo].sum(1).tolist()
    within = either[np.ix_(halo, batch.members.numpy())]
    assert batch.local_degree.tolist() == within.sum(1).tolist()


@given(batched())
def test_labels_and_masks_are_those_of_batch_then_halo(case):
    example, batch, _ = case
    assert torch.equal(batch.y, example.graph.y[batch.members])
    assert torch.equal(batch.train_mask, example.graph.train_mask[batch.members])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "nodes has shape (0,): must be (batch,), one or more"),
        ([[0, 1]], "nodes has shape (1, 2): must be (batch,)"),
        ([0, 50], "nodes[1] = 50: node ids must be in 0..49"),
        ([3, 1, 3], "nodes contains 3 twice"),
        ([0.5], "nodes has type torch.float32: node ids must be integers"),
    ],
)
def test_wrong_node_sets_are_named(nodes, message):
    with pytest.raises(lmc.GraphError) as caught:
        lmc.synthetic(nodes=50).batch(nodes)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_wrong_scale_is_named(scale):
    with pytest.raises(lmc.ArgumentError, match="scale="):
        lmc.synthetic(nodes=50).batch([0], scale=scale)


def test_a_mask_is_the_nodes_where_it_is_true():
    graph = lmc.synthetic(nodes=50, seed=0)
    model = lmc.GCN(graph.num_features, 4, graph.num_classes)
    ids = graph.val_mask.nonzero()[:, 0]
    assert torch.equal(graph.batch(graph.val_mask.numpy()).nodes, ids)
    assert torch.equal(lmc.predict(graph, model, nodes=graph.val_mask), lmc.predict(graph, model, nodes=ids))
    with pytest.raises(
        lmc.GraphError, match=r"^nodes has shape \(2,\): a mask must be \(50,\), one per node$"
    ):
        graph.batch([True, False])
    with pytest.raises(lmc.GraphError, match=r"^nodes has type torch.int64: zeros and ones.*nodes.bool\(\)$"):
        lmc.predict(graph, model, nodes=graph.val_mask.long())
    with pytest.raises(lmc.GraphError, match=r"^nodes has shape \(0,\): must be \(batch,\), one or more$"):
        graph.batch(torch.zeros(50, dtype=torch.bool))
