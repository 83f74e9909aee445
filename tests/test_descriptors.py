"""Groups that are balanced by what steps have shown of clusters."""

import numpy as np
import pytest
import torch

import lmc
from estimating import bound, clusters_of, gcn, gcnii, graph_of
from lmc.batching.descriptors import DIRECTIONS, ClusterDescriptors
from lmc.batching.samplers import ClusterSampler
from test_resumed import goes_on


@pytest.mark.parametrize("make", [gcn, gcnii])
def test_they_are_projections_of_the_last_gradient(make):
    """Added up over all clusters they are the gradient of the last map, times a matrix of signs."""
    graph, model = graph_of("undirected"), make(3)
    clusters = clusters_of(graph)
    seen = ClusterDescriptors(clusters, int(clusters.max()) + 1)
    estimator = bound(lmc.FullBatch(), model, graph)
    by_cluster = clusters.argsort(stable=True)
    caught = {}
    estimator.watch = lambda *given: (seen.see(*given), caught.update(batch=given[0], v=given[1], r=given[2]))
    estimator.estimate(graph.batch(by_cluster))
    found = seen.state()["now"].numpy()
    v, r, nodes = caught["v"].numpy(), caught["r"].numpy(), caught["batch"].nodes.numpy()
    exact = np.zeros((len(found), v.shape[1], r.shape[1]))
    for row, node in enumerate(nodes):
        exact[int(clusters[node])] += np.outer(v[row], r[row])
    # One matrix maps every row of every cluster, and has signs of one size. Beside that are sums of v.
    found = found.reshape(len(found), v.shape[1], DIRECTIONS + 1)
    ones = np.stack([v[clusters[nodes].numpy() == c].sum(0) for c in range(len(found))])
    assert np.allclose(found[..., -1], ones)
    flat, projected = exact.reshape(-1, r.shape[1]), found[..., :-1].reshape(-1, DIRECTIONS)
    matrix, *_ = np.linalg.lstsq(flat, projected, rcond=None)
    assert np.allclose(flat @ matrix, projected, atol=1e-10)
    assert np.allclose(np.abs(matrix[np.abs(flat).max(0) > 0]), DIRECTIONS**-0.5)
    if make is gcn:  # the gradient itself, by autograd
        loss = torch.nn.functional.cross_entropy(model(graph)[graph.train_mask], graph.y[graph.train_mask])
        (gradient,) = torch.autograd.grad(loss, model.layers[-1].linear.weight)
        assert np.allclose(exact.sum(0), int(graph.train_mask.sum()) * gradient.numpy(), atol=1e-10)


def test_groups_are_made_of_what_was_known_two_epochs_before():
    seen = ClusterDescriptors(torch.tensor([0, 1]), 2)
    path = lmc.Graph([[0, 1], [1, 0]], torch.eye(2), [0, 1], [True, True])
    for epoch in range(4):
        assert seen.before(epoch) is None or epoch >= 2
        seen.see(path.batch([0, 1]), torch.full((2, 1), float(epoch)), torch.ones(2, 1))
        if epoch >= 2:
            assert np.allclose(np.abs(seen.before(epoch))[:, :-1], (epoch - 2) / DIRECTIONS**0.5)
        seen.end_epoch(epoch)
    assert sorted(seen.state()) == ["2", "3", "now"]


def test_what_is_seen_changes_later_groups_and_only_those():
    graph = lmc.synthetic(nodes=300, features=8)
    losses = {}
    for balance in ("labels", "gradients"):
        torch.manual_seed(0)
        given = {"parts": 24, "parts_per_batch": 6, "epochs": 4, "balance": balance}
        result = lmc.fit(graph, lmc.GCN(8, 8, 10), lmc.GAS(), **given)
        losses[balance] = [record.loss for record in result.history]
    assert losses["labels"][:2] == losses["gradients"][:2]
    assert losses["labels"][2] != losses["gradients"][2]


@pytest.mark.parametrize("stop", [1, 5, 8, 9, 13, 18])
def test_a_run_goes_on_to_the_byte(tmp_path, stop):
    goes_on(tmp_path, stop, epochs=5, balance="gradients")


def test_background_and_threads_change_nothing():
    graph = lmc.synthetic(nodes=2000, features=33)
    weights, before = [], torch.get_num_threads()
    for threads, background in ((1, True), (2, True), (2, False)):
        torch.manual_seed(0)
        torch.set_num_threads(threads)
        model = lmc.GCN(33, 33, 10)
        given = {"parts": 40, "parts_per_batch": 8, "epochs": 4, "balance": "gradients"}
        lmc.fit(graph, model, lmc.LMC(), **given, background=background)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.set_num_threads(before)
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[1], weights[2])


def test_the_last_layers_spread_is_below_that_of_balanced_labels():
    graph = lmc.synthetic(nodes=3000, features=16, seed=1)
    torch.manual_seed(0)
    model, clusters = lmc.GCN(16, 16, graph.num_classes, layers=2), lmc.partition(graph, parts=120)
    lmc.fit(graph, model, lmc.LMC(), parts=120, parts_per_batch=24, epochs=3)
    estimator = bound(lmc.BackwardSGD(), model, graph)
    spread = {}
    for balance in (None, "labels", "gradients"):
        sampler = ClusterSampler(graph, clusters, 24, balance=balance)
        if sampler.descriptors:
            estimator.watch = sampler.descriptors.see
            for batch in sampler.epoch(0):
                estimator.estimate(batch)
            for epoch in range(2):
                sampler.descriptors.end_epoch(epoch)
        batches = [batch for epoch in (2, 3) for batch in sampler.epoch(epoch)]
        spread[balance] = lmc.gradient_error(graph, model, estimator, batches).variance["layers.1"]
    assert spread["gradients"] < 0.95 * spread["labels"] < 0.9 * spread[None]


def test_a_state_is_copied_and_one_of_another_run_refused():
    path = lmc.Graph([[0, 1], [1, 0]], torch.eye(2), [0, 1], [True, True])
    one, other = (ClusterDescriptors(torch.tensor([0, 1]), 2) for _ in range(2))
    one.see(path.batch([0, 1]), torch.ones(2, 3), torch.ones(2, 1))
    state = one.state()
    other.load_state(state, 3, torch.float32)
    before = state["now"].clone()
    other.see(path.batch([0, 1]), torch.zeros(2, 3), torch.ones(2, 1))
    assert torch.equal(one.state()["now"], before)
    for wrong in ({"now": before[:, :1]}, {"now": before[:1]}, {"now": before.double()}, {"then": before}):
        with pytest.raises(ValueError, match="sampler"):
            other.load_state(wrong, 3, torch.float32)
