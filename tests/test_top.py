"""TOP beside dense algebra: exact where messages are in the span of the basis, and the map that it says elsewhere."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import APPNP, GATConv, RGCNConv, SAGEConv

import lmc
from estimating import (
    MODELS,
    bound,
    clusters_of,
    distance,
    full_gradient,
    gcn,
    gradient,
    graph_of,
    mean_gradient,
)
from lmc.estimators.low_rank import inverse_root

BASES = ("random", "history")


def lifted(directed=False, copies=6, seed=0):
    """Copies of a graph of seven nodes, each edge of which is a perfect matching between the copies of its ends.

    Features and labels are those of the original, so that all copies of a node send the same.
    """
    rng = np.random.default_rng(seed)
    ends = np.array([[0, 1, 2, 3, 4, 5, 6, 0, 2], [1, 2, 3, 4, 5, 6, 0, 3, 6]])
    matched = [(s + 7 * np.arange(copies), t + 7 * rng.permutation(copies)) for s, t in ends.T]
    edges = np.concatenate([np.stack(pair) for pair in matched], 1)
    if not directed:
        edges = np.concatenate([edges, edges[::-1]], 1)
    of = np.tile(np.arange(7), copies)
    x, y, train = rng.normal(size=(7, 5)), rng.integers(0, 3, 7), np.array([1, 1, 0, 1, 1, 1, 0], bool)
    graph = lmc.Graph(edges, torch.from_numpy(x[of]), y[of], train[of], num_classes=3)
    return graph, torch.arange(7 * copies) // 14  # two copies of each node in a cluster


def moved(model, seed=5):
    """Parameters far from where they were."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))


def sage():
    torch.manual_seed(0)
    return lmc.GNN([SAGEConv(5, 6), torch.nn.Sequential(torch.nn.ReLU(), SAGEConv(6, 3))]).double()


def hops():
    torch.manual_seed(0)
    return lmc.GNN([torch.nn.Sequential(torch.nn.Linear(5, 3), APPNP(3, 0.2))]).double()


EXACT = {**MODELS, "jumps": None, "sage": lambda depth: sage(), "hops": lambda depth: hops()}
del EXACT["jumps"]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_where_messages_are_in_the_span_every_batch_has_the_gradient_of_its_losses(name, directed):
    graph, clusters = lifted(directed)
    model = EXACT[name](3)
    estimator = bound(lmc.TOP(rank=9), model, graph)
    moved(model)
    loss, expected = full_gradient(model, graph)
    assert max(distance(mean_gradient(estimator, lmc.batches(graph, clusters)), expected).values()) < 1e-8
    for batch in lmc.batches(graph, clusters):  # each has every node of the original equally often
        assert batch.num_halo > 0
        of_batch, found = gradient(estimator, batch)
        assert of_batch == pytest.approx(loss, rel=1e-8)
        assert max(distance(found, expected).values()) < 1e-8
