"""Groups of clusters that are alike."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from estimating import bound, clusters_of, full_gradient, gcn, gradient, graph_of
from lmc import hashed_random
from lmc.batching.balance import balanced, label_counts
from lmc.batching.samplers import ClusterSampler
from lmc.kernels import fast, plain


def deviations(order, size, described):
    """The sum of squares of what groups of `size` are away from their mean."""
    groups = [described[order[i : i + size]].sum(axis=0) for i in range(0, len(order) - size + 1, size)]
    return sum(((group - np.mean(groups, axis=0)) ** 2).sum() for group in groups)


@given(st.integers(1, 6), st.integers(0, 8), st.integers(0, 3), st.integers(1, 4), st.integers(0, 99))
def test_groups_become_more_alike_and_stay_groups(size, groups, rest, columns, seed):
    count = max(1, size * groups + min(rest, size - 1))
    described = np.random.default_rng(seed).integers(0, 9, (count, columns)).astype(float)
    order = hashed_random.permutation(count, seed)
    found = balanced(order, size, described, seed)
    assert sorted(found) == list(range(count))
    assert deviations(found, size, described) <= deviations(order, size, described)
    whole = size * groups
    assert found[whole:].tolist() == order[whole:].tolist()


@given(st.integers(1, 6), st.integers(2, 8), st.integers(1, 4), st.integers(0, 99))
def test_swaps_equal_those_of_the_twin(size, groups, columns, seed):
    random = np.random.default_rng(seed)
    described = random.integers(0, 9, (size * groups, columns)).astype(float)
    steps = random.integers(1, size * groups, (3, 5))
    orders = [random.permutation(size * groups)] * 2
    orders = [order.copy() for order in orders]
    for kernel, order in zip((fast, plain), orders, strict=True):
        kernel.swap_between_groups(order, size, described, steps)
    assert orders[0].tolist() == orders[1].tolist()


def test_a_lopsided_start_is_mended():
    described = np.repeat(np.eye(4), 8, axis=0)  # 32 clusters of four kinds
    for seed in range(5):
        found = balanced(np.arange(32), 8, described, seed)
        assert deviations(found, 8, described) == 0


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_what_clusters_are_described_by(task):
    graph = graph_of("undirected", task=task)
    clusters = clusters_of(graph)
    found = label_counts(graph, clusters, 4)
    y, learned = graph.y.numpy(), graph.train_mask.numpy()
    for cluster in range(4):
        here = learned & (clusters.numpy() == cluster)
        if task == "multiclass":
            wanted = [(y[here] == c).sum() for c in range(3)]
        elif task == "multilabel":
            wanted = [*y[here].sum(axis=0), here.sum()]
        else:
            bounds = np.quantile(y[learned], np.arange(1, 8) / 8, axis=0)
            eighth = (y[here][:, None] > bounds[None]).sum(axis=1)  # (nodes, columns)
            counts = [(eighth[:, column] == k).sum() for column in range(3) for k in range(8)]
            away = (y[here] - y[learned].mean(axis=0)) / y[learned].std(axis=0)
            wanted = [*counts, *away.sum(axis=0)]
        assert np.allclose(found[cluster], wanted)


def test_batches_have_nearly_the_mix_of_the_graph():
    graph = lmc.synthetic(nodes=3000, classes=6)
    clusters = lmc.partition(graph, parts=60)

    def spread(balance):
        batches = lmc.batches(graph, clusters, 10, balance=balance)
        counts = [torch.bincount(graph.y[b.nodes][graph.train_mask[b.nodes]], minlength=6) for b in batches]
        return float(torch.stack(counts).double().var(dim=0).sum())

    assert spread("labels") < 0.2 * spread(None)
    assert spread(None) == spread("none")


def test_every_cluster_is_in_every_place_equally_often_and_meets_every_other():
    graph = lmc.synthetic(nodes=400, classes=4)
    clusters = lmc.partition(graph, parts=14)  # three batches of four, and one of two
    sampler, epochs = ClusterSampler(graph, clusters, 4, balance="labels"), 1500
    place, met = np.zeros((14, 4)), np.zeros((14, 14))
    for epoch in range(epochs):
        for number, group in enumerate(sampler._groups(epoch)):
            place[group, number] += 1
            met[np.ix_(group, group)] += 1
    for number, chance in enumerate((4 / 14, 4 / 14, 4 / 14, 2 / 14)):
        deviation = np.sqrt(epochs * chance * (1 - chance))
        assert (np.abs(place[:, number] - epochs * chance) < 4.5 * deviation).all()
    assert (met > 0).all()


def test_a_batch_that_takes_what_remains_leaves_the_mean_unbiased():
    """With exact values outside: over the groups of many epochs, within 4 standard errors."""
    graph, model = graph_of("undirected"), gcn(2)
    clusters = clusters_of(graph, parts=7)
    wanted = full_gradient(model, graph)[1]
    estimator = bound(lmc.BackwardSGD(), model, graph)
    known = {}  # of each group of clusters: parameters stand still
    sampler, means = ClusterSampler(graph, clusters, 3, balance="labels"), []
    for epoch in range(600):
        parts = []
        for group in sampler._groups(epoch):
            key = frozenset(group.tolist())
            if key not in known:
                nodes = torch.isin(clusters, torch.from_numpy(group)).nonzero()[:, 0]
                known[key] = gradient(estimator, graph.batch(nodes, scale=7 / len(group)))[1]
            parts.append(known[key])
        means.append({name: sum(part[name] for part in parts) / len(parts) for name in wanted})
    for name, value in wanted.items():
        each = torch.stack([mean[name] for mean in means])
        error = each.std(dim=0) / len(means) ** 0.5
        assert bool(((each.mean(dim=0) - value).abs() <= 4 * error + 1e-12).all())


def test_groups_depend_on_the_seed_and_the_epoch_alone():
    graph = lmc.synthetic(nodes=300)
    clusters = lmc.partition(graph, parts=12)
    samplers = [ClusterSampler(graph, clusters, 3, seed, balance="labels") for seed in (0, 0, 1)]
    groups = [[group.tolist() for group in sampler._groups(5)] for sampler in samplers]
    assert groups[0] == groups[1] != groups[2]
    assert groups[0] != [group.tolist() for group in samplers[0]._groups(6)]


def test_runs_are_balanced_where_they_are_told_to_be():
    graph = lmc.synthetic(nodes=300, features=8)
    losses = {}
    for name, options in {"default": {}, "labels": {"balance": "labels"}, "none": {"balance": None}}.items():
        torch.manual_seed(0)
        result = lmc.fit(
            graph, lmc.GCN(8, 8, 10), lmc.GAS(), parts=12, parts_per_batch=4, epochs=2, **options
        )
        losses[name] = [record.loss for record in result.history]
    assert losses["default"] == losses["labels"] != losses["none"]
    with pytest.raises(lmc.ArgumentError, match="balance='colour': must be one of labels, gradients, none"):
        lmc.fit(graph, lmc.GCN(8, 8, 10), lmc.GAS(), parts=12, balance="colour")


def test_a_graph_without_labels_has_random_groups():
    graph = lmc.Graph([[0, 1, 2, 3], [1, 0, 3, 2]])
    groups = [batch.nodes.tolist() for batch in lmc.batches(graph, [0, 1, 2, 3], 2, balance="labels")]
    assert sorted(itertools.chain(*groups)) == [0, 1, 2, 3]


def test_clusters_may_have_any_numbers():
    graph = lmc.synthetic(nodes=60)
    clusters = torch.arange(60) % 6
    few = [b.nodes.tolist() for b in lmc.batches(graph, clusters, 2, balance="labels")]
    many = [b.nodes.tolist() for b in lmc.batches(graph, 10 * clusters, 2, balance="labels")]
    assert few == many
