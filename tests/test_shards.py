"""Steps over shards: a batch of each, all from the same state, against the same by hand."""

import re
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lmc
from estimating import graph_of, mostly_long
from lmc.batching.samplers import ClusterSampler
from lmc.batching.shard_sampler import ShardedSampler, shards_of
from lmc.batching.shards import cut_into_shards
from lmc.estimators.shard_places import ShardPlaces
from lmc.processes import ALONE
from lmc.runs import checkpoint
from lmc.training.loop import prepare_training
from lmc.training.options import TrainingOptions
from lmc.training.sharding import remembered_in, steps_of
from test_resumed import StopAt

METHODS = {
    "LMC": lmc.LMC,
    "LMC of values": lambda: lmc.LMC(alpha=0.4),
    "LMC in 8 bits": lambda: lmc.LMC(precision="int8"),
    "GAS": lmc.GAS,
    "GraphFM": lambda: lmc.GraphFM(momentum=0.4),
    "ClusterGCN": lmc.ClusterGCN,
    "BackwardSGD": lmc.BackwardSGD,
    "TOP": lambda: lmc.TOP(rank=4),
}


def model_of(graph, norm="batch", **options):
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 6, graph.num_classes, layers=3, norm=norm, dropout=0.3, **options)
    return model.to(graph.x.dtype)


def sampler_of(graph, shards, parts=12, parts_per_batch=2, balance="labels", mine=None):
    clusters = lmc.partition(graph, parts, cache=False)
    whole = ClusterSampler(graph, clusters, parts_per_batch, balance=balance)
    return ShardedSampler(whole, cut_into_shards(graph, clusters, shards), mine)


def by_hand(estimator, model, batches, of_node=None, older=None):
    """All batches of a step by an estimator of the whole graph, each from the same state; then all writes.

    With `older`, histories when the step before began: each batch reads those for nodes of other shards.
    """
    began = {name: value.clone() for name, value in estimator.state_dict().items()}
    buffers = [each.clone() for each in model.buffers()]
    total, loss, ended, changed = {}, 0.0, [], []
    for batch in batches:
        read = began | {"step": began["step"] + batch.shard}
        if older is not None:
            elsewhere = (of_node != batch.shard)[:, None]
            read |= {name: torch.where(elsewhere, older[name], began[name]) for name in estimator.stores}
        estimator.load_state_dict(read)
        for now, before in zip(model.buffers(), buffers, strict=True):
            now.copy_(before)
        plain = estimator.graph.batch(batch.nodes, batch.scale)
        of_batch, gradient = estimator.estimate(plain)
        loss += of_batch
        total = {p: total.get(p, 0) + each for p, each in gradient.items()}
        ended.append({name: value.clone() for name, value in estimator.state_dict().items()})
        changed.append([each.clone() for each in model.buffers()])
    after = {name: value.clone() for name, value in began.items()}
    for name in after:
        if name in estimator.stores:
            for batch, end in zip(batches, ended, strict=True):
                written = batch.members if isinstance(estimator, lmc.GraphFM) else batch.nodes
                after[name][written] = end[name][written]
        elif name.startswith("beta"):
            after[name] = began[name] + sum(end[name] - began[name] for end in ended) / len(ended)
    after["step"] = began["step"] + len(batches)
    estimator.load_state_dict(after)
    for number, now in enumerate(model.buffers()):
        before, each = buffers[number], [of[number] for of in changed]
        mean = before + sum(one - before for one in each) / len(each)
        now.copy_(mean if now.is_floating_point() else each[0])
    return loss, total


STEPS = [*product(["undirected", "directed weighted"], [2, 3], METHODS)]
AHEAD = [*product(["undirected", "directed weighted"], [2, 3], ["LMC of values", "LMC in 8 bits", "GraphFM"])]


@pytest.mark.parametrize(("kind", "shards", "method"), mostly_long(STEPS, 3))
def test_a_step_is_that_by_hand(method, shards, kind):
    check_steps(method, shards, kind, overlap=False)


@pytest.mark.parametrize(("kind", "shards", "method"), mostly_long(AHEAD, 3))
def test_with_overlap_a_step_reads_other_shards_as_they_were_one_step_before(method, shards, kind):
    check_steps(method, shards, kind, overlap=True)


def check_steps(method, shards, kind, overlap):
    graph = graph_of(kind, nodes=60, dtype=torch.float32 if "8 bits" in method else torch.float64)
    sampler = sampler_of(graph, shards)
    ours, theirs = model_of(graph), model_of(graph)
    estimator, oracle = METHODS[method](), METHODS[method]()
    estimator.bind(ours, graph, outside=remembered_in(graph, estimator, sampler, ALONE))
    oracle.bind(theirs, graph)
    sharded = steps_of(estimator, sampler, ALONE, overlap)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.3) for model in (ours, theirs)]
    for epoch in range(3):
        before = None
        for turn in sampler.turns(epoch):
            assert [batch.shard for batch in turn.batches] == list(range(shards))
            if overlap:  # what is only looked at leaves no trace in what waits
                with sharded.frozen():
                    sharded.estimate(turn)
            histories = {name: store.snapshot().clone() for name, store in oracle.stores.items()}
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = sharded.backward(turn)
            expected, gradient = by_hand(oracle, theirs, turn.batches, sampler.of_node, before)
            before = histories if overlap else None
            assert loss == expected
            for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(one.grad, gradient[other], rtol=0, atol=0)
                other.grad = gradient[other].clone()
            for optimizer in optimizers:
                optimizer.step()
            for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0)
    for shard, state in enumerate(sharded.states()):
        nodes = estimator.nodes._border[shard].own if state else None
        for name, values in state.items():
            torch.testing.assert_close(values, oracle.stores[name].snapshot()[nodes], rtol=0, atol=0)


@pytest.mark.parametrize("balance", ["labels", "none"])
@pytest.mark.parametrize("kind", ["undirected", "directed"])
@pytest.mark.parametrize("shards", [2, 4])
def test_with_exact_values_outside_the_mean_over_an_epoch_is_the_gradient(shards, kind, balance):
    graph = graph_of(kind, nodes=80)
    model = model_of(graph, norm=None).eval()
    sampler = sampler_of(graph, shards, parts=16, parts_per_batch=2, balance=balance)
    estimator = lmc.BackwardSGD()
    estimator.bind(model, graph)
    sharded = steps_of(estimator, sampler, ALONE)
    with sharded.frozen():
        full = lmc.FullBatch()
        full.bind(model, graph)
        loss, gradient = full.estimate(full.whole)
        said = [sharded.estimate(turn) for turn in sampler.turns(1)]
    assert len(said) == sampler.steps == 16 // shards // 2
    assert sum(each for each, _ in said) / len(said) == pytest.approx(loss, rel=1e-10)
    for p, expected in gradient.items():
        torch.testing.assert_close(sum(of[p] for _, of in said) / len(said), expected, rtol=1e-9, atol=1e-12)


def test_a_frozen_step_leaves_no_trace():
    graph = graph_of("undirected", nodes=60)
    training = prepare_training(
        graph, model_of(graph), lmc.LMC(), TrainingOptions(12, 2, epochs=2, shards=2, gradient_error_every=1)
    )
    training.run()
    assert training.records[-1].gradient_error["total"] > 0
    other = prepare_training(graph, model_of(graph), lmc.LMC(), TrainingOptions(12, 2, epochs=2, shards=2))
    other.run()
    assert [r.loss for r in training.records] == [r.loss for r in other.records]


# -- the cut ------------------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 3))
@settings(deadline=None, max_examples=25)
def test_shards_have_as_many_clusters_each(shards, clusters_of_each, seed):
    graph = lmc.synthetic(nodes=300, seed=seed)
    clusters = lmc.partition(graph, shards * clusters_of_each, "random", seed, cache=False)
    found = cut_into_shards(graph, clusters, shards)
    assert found.bincount().tolist() == [clusters_of_each] * shards


def test_shards_are_balanced_by_nodes_and_edges_and_cut_fewer_edges_than_chance():
    graph = lmc.synthetic(nodes=4000)
    clusters = lmc.partition(graph, 80, cache=False)
    of_node = cut_into_shards(graph, clusters, 4)[clusters]
    degrees = graph.neighbours.row_counts().double()
    nodes = of_node.bincount().double()
    edges = torch.zeros(4).double().index_add_(0, of_node, degrees)
    assert nodes.max() / nodes.mean() < 1.1
    assert edges.max() / edges.mean() < 1.1
    row, column = graph.neighbours.row_ids(), graph.neighbours.indices.long()
    by_chance = (torch.arange(80) % 4)[clusters]
    cut, cut_by_chance = ((of[row] != of[column]).sum() for of in (of_node, by_chance))
    assert cut < 0.8 * cut_by_chance


def test_every_cluster_is_in_one_batch_of_its_shard_each_epoch():
    graph = lmc.synthetic(nodes=500)
    sampler = sampler_of(graph, 3, parts=21, parts_per_batch=2)
    for epoch in range(3):
        batches = list(sampler.epoch(epoch))
        nodes = torch.cat([batch.nodes for batch in batches])
        assert sorted(nodes.tolist()) == list(range(500))
        assert all(bool((sampler.of_node[batch.nodes] == batch.shard).all()) for batch in batches)
        assert [batch.scale for batch in batches] == [3.5] * 9 + [7.0] * 3
        again = list(sampler.epoch(epoch, start=2))
        assert [batch.nodes.tolist() for batch in again] == [batch.nodes.tolist() for batch in batches[6:]]
    first, second = ([group.tolist() for group in next(sampler.turns(e)).groups] for e in (0, 1))
    assert first != second


@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_what_one_process_sends_another_expects(kind):
    """Places are made by the edges of own nodes alone, on both ends."""
    graph = graph_of(kind, nodes=90)
    sampler = sampler_of(graph, 4, parts=16)
    for count in (1, 2, 4):
        of_process = [shards_of(rank, count, 4) for rank in range(count)]
        places = [
            ShardPlaces(graph, sampler.clusters, sampler.of_cluster, of_process, rank)
            for rank in range(count)
        ]
        for turn in sampler.turns(0):
            ends = [each.exchange(turn.groups) for each in places]
            for here, one in enumerate(ends):
                for there, other in enumerate(ends):
                    sent = one.sources.tensor_split(np.cumsum(one.sent)[:-1].tolist())[there]
                    received = other.targets.tensor_split(np.cumsum(other.received)[:-1].tolist())[here]
                    named = node_at(places[here], None)[sent]
                    assert named.tolist() == node_at(places[there], "inbox")[received].tolist()
            for batch in turn.batches:
                rank = next(rank for rank, shards in enumerate(of_process) if batch.shard in shards)
                read = places[rank].places(batch.halo, batch.shard)
                assert bool((read >= 0).all())
                foreign = sampler.of_node[batch.halo] != batch.shard
                assert set(read[foreign].tolist()) <= set(ends[rank].targets.tolist())


def node_at(places, which):
    """The node of every place: of its own nodes, or of inboxes."""
    found = torch.full((len(places),), -1)
    for shard in places.mine:
        nodes, at = places._known[shard]
        own = torch.tensor([place in places.own[shard] for place in at.tolist()])
        chosen = ~own if which == "inbox" else own
        found[at[chosen]] = nodes[chosen]
    return found


# -- runs ---------------------------------------------------------------------------------------------

GRAPH = lmc.synthetic(nodes=200, features=8, classes=4)


def fit(estimator=lmc.LMC, **options):
    options = {"parts": 12, "parts_per_batch": 2, "epochs": 3, "shards": 2, **options}
    return lmc.fit(GRAPH, model_of(GRAPH), estimator(), **options)


@pytest.mark.parametrize("stop", [1, 4])
@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (lmc.LMC, {}),
        (lmc.LMC, {"balance": "gradients", "epochs": 4, "init": "exact"}),
        (lmc.GraphFM, {"precision": "half", "shards": 3}),
        (lmc.LMC, {"overlap": True}),
        (lmc.GraphFM, {"precision": "half", "shards": 3, "overlap": True}),
        (lmc.ClusterGCN, {}),
        (lmc.FullBatch, {}),
    ],
)
def test_a_run_goes_on_to_the_same_bytes(tmp_path, estimator, options, stop):
    straight = fit(estimator, **options)
    stop = 1 if estimator is lmc.FullBatch else stop
    first = fit(estimator, out=tmp_path / "a", callbacks=[StopAt(stop)], **options)
    assert first.stopped == "interrupted"
    second = fit(estimator, out=tmp_path / "a", resume=True, **options)
    assert [r.loss for r in second.history] == [r.loss for r in straight.history]
    assert [r.val for r in second.history] == [r.val for r in straight.history]
    for one, other in zip(second.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_overlap_is_another_run_where_shards_remember_and_no_other_where_they_do_not():
    for estimator, same in [(lmc.LMC, False), (lmc.ClusterGCN, True)]:
        losses = [[r.loss for r in fit(estimator, overlap=overlap).history] for overlap in (False, True)]
        assert (losses[0] == losses[1]) == same


def test_a_checkpoint_without_what_waits_is_not_gone_on_with(tmp_path):
    fit(out=tmp_path / "a", callbacks=[StopAt(1)], overlap=True)
    file = max((tmp_path / "a" / "checkpoints").glob("*.shard-1.*"))
    training = prepare_training(
        GRAPH, model_of(GRAPH), lmc.LMC(), TrainingOptions(12, 2, epochs=3, shards=2, overlap=True)
    )
    training.stepping.load_state_dict(training.stepping.state_dict() | {"ahead": torch.tensor(True)})
    whole = checkpoint.read_shard(file)
    assert len(whole["ahead"]) > 0
    training.stepping.load_state_of(1, lambda: whole)
    for changed in [
        {"ahead": whole["ahead"] + 10_000},
        {"ahead": whole["ahead"].float()},
        {"ahead.embeddings.2": whole["ahead.embeddings.2"][1:]},
    ]:
        with pytest.raises(ValueError, match="shard 1: ahead"):
            training.stepping.load_state_of(1, lambda found=whole | changed: found)


def test_a_checkpoint_has_a_file_for_each_shard_and_a_damaged_one_is_not_used(tmp_path):
    fit(out=tmp_path / "a", callbacks=[StopAt(4)], checkpoint_seconds=0)
    folder = tmp_path / "a" / "checkpoints"
    shards = sorted(file.name for file in folder.iterdir() if ".shard-" in file.name)
    assert [name.rpartition(".")[0][:21] for name in shards] == [
        f"{place}.shard-{n}" for place in ("000001-000000", "000001-000001") for n in (0, 1)
    ]
    last = folder / shards[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match=r"shard-1.*is not the one in its name"):
        second = fit(out=tmp_path / "a", resume=True)
    assert [r.loss for r in second.history] == [r.loss for r in fit().history]
    missing = next(folder.glob("*.shard-0.*"))
    missing.unlink()
    for other in folder.glob("*.shard-0.*"):
        other.unlink()
    with (
        pytest.warns(UserWarning, match="No such file"),
        pytest.raises(lmc.RunError, match="none of its 2 checkpoints is whole"),
    ):
        fit(out=tmp_path / "a", resume=True)


def test_clusters_that_nobody_asked_for_make_equal_shards():
    result = lmc.fit(GRAPH, model_of(GRAPH), lmc.LMC(), epochs=1, shards=3)
    parts = int(re.search(r"of ([\d,]+) clusters", result.batches)[1])
    assert parts % 3 == 0


@pytest.mark.parametrize(
    ("estimator", "options", "line"),
    [
        (lmc.LMC, {"shards": 0}, "shards=0: must be 1 or more"),
        (
            lmc.LMC,
            {"shards": 1, "overlap": True},
            "overlap=True: one shard reads nothing of others; shards= must be 2 or more",
        ),
        (lmc.LMC, {"shards": 5}, "parts=12: must be a multiple of shards=5, such as 10"),
        (
            lmc.LMC,
            {"parts_per_batch": 7},
            "parts_per_batch=7: must be at most 6, the clusters of one of 2 shards",
        ),
        (
            lmc.NeighborSampling,
            {},
            "shards=2: batches of NeighborSampling are not made of clusters; must be 1",
        ),
        (lambda: lmc.Spider(lmc.LMC()), {}, "shards=2: Spider has one batch a step; must be 1"),
        (
            lambda: lmc.TOP(basis="history"),
            {},
            "shards=2: bases of histories read those of all nodes; must be 1",
        ),
    ],
)
def test_what_cannot_be_is_one_line(estimator, options, line):
    with pytest.raises(lmc.ArgumentError) as caught:
        fit(estimator, **options)
    assert str(caught.value) == line


def test_other_shards_cannot_go_on(tmp_path):
    fit(out=tmp_path / "a", epochs=1)
    with pytest.raises(lmc.ArgumentError, match=r"training.shards is 2, and cannot become 3"):
        fit(out=tmp_path / "a", epochs=2, shards=3, resume=True)
