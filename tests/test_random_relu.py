"""Random slopes belong to a node and a step, not to a place in a batch."""

import torch
from torch import nn
from torch_geometric.nn import GraphSAGE

import lmc
from estimating import bound, distance, gradient, graph_of
from lmc.nn.random_relu import RandomReLU
from lmc.nn.rows import Rows


def test_slopes_belong_to_the_node_and_the_step():
    act, z = RandomReLU(nn.RReLU(0.1, 0.3)), -torch.ones(50, 8)
    nodes = torch.arange(50)
    inside = act(z, Rows(nodes, (0, 1)))
    order = torch.randperm(50)
    assert torch.equal(act(z[:20], Rows(nodes[order][:20], (0, 1), inside=False)), inside[order][:20])
    assert not torch.equal(act(z, Rows(nodes, (0, 2))), inside)
    steps = torch.stack([act(z, Rows(nodes, (0, step))) for step in range(200)])
    assert steps.min() >= -0.3
    assert steps.max() <= -0.1
    assert abs(float(steps.mean()) + 0.2) < 1e-3
    assert abs(float(steps.std()) - 0.2 / 12**0.5) < 1e-3
    assert torch.allclose(act.eval()(z, Rows(nodes, (0, 1))), nn.RReLU(0.1, 0.3).eval()(z))


def test_derivatives_are_those_of_the_slopes():
    act, rows = RandomReLU(nn.RReLU()), Rows(torch.arange(4), (0,))
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: act(z, rows), (z,))


def test_a_step_has_the_same_noise_in_any_batch():
    """The mean over batches with exact values outside is the gradient of the whole graph at its noise."""
    torch.manual_seed(0)
    graph, model = graph_of("undirected"), lmc.from_pyg(GraphSAGE(5, 6, 3, 3, act="rrelu").double())
    _, expected = gradient(bound(lmc.FullBatch(), model, graph), graph.batch(range(36)))
    estimates = []
    for start in range(0, 36, 9):
        estimator = bound(lmc.BackwardSGD(), model, graph)  # anew, so that every batch is of the first step
        nodes = torch.arange(35, -1, -1)[start : start + 9]
        estimates.append(gradient(estimator, graph.batch(nodes, scale=4.0))[1])
    mean = {name: sum(each[name] for each in estimates) / 4 for name in expected}
    assert max(distance(mean, expected).values()) < 1e-9
