"""The bias of LMC falls as Theorem 2 says."""

import numpy as np
import pytest
import torch

import lmc
from estimating import bound, clusters_of, gcn, graph_of


def biases(rate, epochs=30):
    """The relative bias before every epoch of a training run that starts from zero histories."""
    graph, model = graph_of("undirected", nodes=60, seed=1), gcn(3, seed=1)
    estimator = bound(lmc.LMC(alpha=0), model, graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    clusters = clusters_of(graph, parts=6, seed=1)
    found = []
    for epoch in range(epochs):
        batches = list(lmc.batches(graph, clusters, epoch=epoch))
        found.append(lmc.gradient_error(graph, model, estimator, batches).bias["total"])
        for batch in batches:
            optimizer.zero_grad()
            estimator.backward(batch)
            optimizer.step()
    return found


@pytest.mark.long
def test_the_bias_falls_with_the_learning_rate_and_with_the_steps():
    """E||bias|| <= C eps + C rho^((k-1)/2), with a learning rate of the order of eps^2."""
    runs = {rate: biases(rate) for rate in (1e-2, 1e-3, 1e-4)}
    for rate, run in runs.items():
        early, middle, late = (f"{run[epoch]:.2e}" for epoch in (0, 5, 29))
        print(f"lr {rate:g}: bias {early} at the start, {middle} after 5 epochs, {late} after 29")
    for run in runs.values():
        assert run[0] > 0.3  # nothing is known at the start
        assert max(run[8:]) < 0.2 * run[0]  # the term in rho is gone
    late = {rate: np.mean(run[8:]) for rate, run in runs.items()}
    assert late[1e-3] < 0.3 * late[1e-2]
    assert late[1e-4] < 0.3 * late[1e-3]
