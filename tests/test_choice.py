"""How a graph is cut where nobody says it: the rule, and what runs make and tell of it."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from commands import called, fails
from lmc.batching.choice import (
    CLUSTERS_PER_BATCH,
    FEW_CLUSTERS,
    LARGE_SHARE,
    LEAST_BATCH,
    LEAST_CLUSTER,
    LEAST_NODES,
    LEAST_NODES_OF_FEW,
    MOST_SHARE,
    choose_batches,
)
from lmc.batching.samplers import BatchOptions, ClusterSampler
from lmc.runs.config import Config
from lmc.runs.seeds import seeded, train_each

SIZES = st.one_of(st.integers(1, 300), st.integers(300, 10**5), st.integers(10**5, 10**9))
SHARES = st.floats(1e-9, 1.0)

# -- the rule ------------------------------------------------------------------------------------


@given(SIZES, st.none() | SHARES)
def test_what_is_chosen_is_within_its_bounds(nodes, share):
    parts, per_batch, _ = choose_batches(nodes, batch_share=share)
    assert 1 <= per_batch <= parts <= max(1, nodes // LEAST_CLUSTER)
    assert per_batch <= CLUSTERS_PER_BATCH
    in_cluster = nodes / parts
    if per_batch > FEW_CLUSTERS:
        assert in_cluster > LEAST_NODES - 2
    elif per_batch > 1:
        assert in_cluster > LEAST_NODES_OF_FEW - 2
    if per_batch < CLUSTERS_PER_BATCH and parts > per_batch:  # no room for another cluster
        assert per_batch <= FEW_CLUSTERS or in_cluster < 2 * LEAST_NODES


@given(st.integers(100, 10**9))
def test_the_share_is_that_of_a_large_graph_or_enough_nodes_or_half(nodes):
    parts, per_batch, _ = choose_batches(nodes)
    wanted = min(MOST_SHARE, max(LARGE_SHARE, LEAST_BATCH / nodes))
    assert per_batch / parts == pytest.approx(wanted, rel=0.5 / parts + 1e-9)


@given(SIZES, SIZES)
def test_a_larger_graph_has_no_fewer_clusters_nor_fewer_in_a_batch(one, other):
    smaller, larger = (choose_batches(nodes) for nodes in sorted((one, other)))
    assert smaller.parts <= larger.parts
    assert smaller.parts_per_batch <= larger.parts_per_batch


@given(SIZES, SHARES, SHARES)
def test_a_larger_share_has_no_fewer_clusters_in_a_batch_and_larger_batches(nodes, one, other):
    smaller, larger = (choose_batches(nodes, batch_share=share) for share in sorted((one, other)))
    assert smaller.parts_per_batch <= larger.parts_per_batch
    # Whole clusters: a share is met to half a cluster of all of them.
    rounding = 0.5 / smaller.parts + 0.5 / larger.parts
    assert smaller.parts_per_batch / smaller.parts <= larger.parts_per_batch / larger.parts * (1 + rounding)


@given(SIZES, st.integers(1, 10**6), st.none() | st.integers(1, 10**6), SHARES)
def test_what_is_given_stays(nodes, parts, per_batch, share):
    parts, per_batch = min(parts, nodes), per_batch and min(per_batch, nodes)
    assert choose_batches(nodes, parts, per_batch)[:2] == (parts, per_batch or 1)
    found = choose_batches(nodes, parts, batch_share=share)
    assert found.parts == parts
    assert 1 <= found.parts_per_batch <= parts
    assert abs(found.parts_per_batch - parts * share) <= 0.5 or found.parts_per_batch == 1
    if per_batch is not None:
        found = choose_batches(nodes, parts_per_batch=per_batch)
        assert found.parts_per_batch == per_batch <= found.parts


def test_some_graphs_by_hand():
    assert choose_batches(169_343)[:2] == (1280, 80)  # 80 clusters of 132 nodes
    assert choose_batches(19_717)[:2] == (306, 62)  # 62 of 64 nodes: 4,000
    assert choose_batches(2_708)[:2] == (42, 21)  # half: 21 of 64
    assert choose_batches(600)[:2] == (32, 16)  # half: 16 of 18, rather than 4 of 64
    assert choose_batches(100)[:2] == (6, 3)  # half: 3 of 16
    assert choose_batches(5)[:2] == choose_batches(1)[:2] == (1, 1)


@pytest.mark.parametrize(("nodes", "per_batch"), [(20_000, 5_000), (20_000, 8_000), (5, None)])
def test_a_batch_that_is_larger_than_its_share_is_not_said_to_have_it(nodes, per_batch):
    reason = choose_batches(nodes, parts_per_batch=per_batch).reason
    assert reason.endswith("a cluster): smaller clusters are not made")


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"batch_share": 0.0}, "batch_share=0.0: must be above 0 and at most 1"),
        ({"batch_share": float("nan")}, "batch_share=nan: must be above 0 and at most 1"),
        ({"batch_share": True}, "batch_share=True: must be a number"),
        (
            {"batch_share": 0.1, "parts_per_batch": 4},
            "batch_share=0.1: parts_per_batch=4 also says how large",
        ),
    ],
)
def test_mistakes_are_one_line(given_, message):
    with pytest.raises(lmc.ArgumentError, match=message):
        choose_batches(100, **given_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(  # 2,400 steps
            {"parts": 601},
            "1 of 600 clusters each (0.167 % of the graph, 1 node a cluster): parts=601",
            marks=pytest.mark.long,
        ),
        ({"parts_per_batch": 601}, "600 of 600 clusters each (100 % of the graph, 1 node a cluster)"),
    ],
)
def test_more_clusters_than_nodes_are_as_many_as_nodes(options, words, tmp_path):
    name = next(iter(options))
    line = f"^{name}=601: the graph has 600 nodes, each a cluster of its own, almost no neighbours among them"
    with pytest.warns(UserWarning, match=line):
        assert trained(**options, out=tmp_path / "a").batches.startswith(words)
    with pytest.warns(UserWarning, match="600 nodes"):
        assert len(trained(**options, out=tmp_path / "a", resume=True).history) == 2


# -- runs ----------------------------------------------------------------------------------------


def small_graph():
    return lmc.synthetic(nodes=600, features=8, seed=3)


def trained(estimator=None, **options):
    torch.manual_seed(0)
    graph = small_graph()
    return lmc.fit(graph, lmc.GCN(8, 8, 10), estimator or lmc.LMC(), epochs=2, **options)


def losses(result):
    return [record.loss for record in result.history]


def test_a_run_needs_no_parts_and_says_what_was_chosen(tmp_path):
    result = trained(out=tmp_path / "a")
    words = "16 of 32 clusters each (50 % of the graph, 19 nodes a cluster): half of a small graph"
    assert result.batches == words
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["batches"] == words
    kept = json.loads((tmp_path / "a" / "batches.json").read_text())
    assert kept == {"parts": 32, "parts_per_batch": 16, "reason": words}
    assert not {"parts", "parts_per_batch"} & lmc.load_run(tmp_path / "a").settings["training"].keys()
    assert losses(result) == losses(trained(parts=32, parts_per_batch=16))
    assert losses(result) == losses(trained(batch_share=0.5))
    assert losses(trained(parts=32, batch_share=0.5)) == losses(result)
    assert trained(parts=32, parts_per_batch=4).batches.endswith(": as given")


def test_one_batch_of_all_nodes_has_no_clusters(tmp_path):
    result = trained(lmc.FullBatch(), out=tmp_path / "a")
    assert result.batches is None
    assert not (tmp_path / "a" / "batches.json").exists()
    trained(lmc.FullBatch(), out=tmp_path / "a", resume=True)


def test_a_method_chooses_for_itself_too():
    sampler = lmc.GAS().make_sampler(small_graph(), BatchOptions())
    assert isinstance(sampler, ClusterSampler)
    assert (sampler.steps, sampler.parts_per_batch) == (2, 16)


def test_a_run_that_goes_on_keeps_what_was_chosen(tmp_path, monkeypatch):
    straight = trained()
    torch.manual_seed(0)
    options = {"out": tmp_path / "a", "checkpoint": 1}
    lmc.fit(small_graph(), lmc.GCN(8, 8, 10), lmc.LMC(), epochs=1, **options)
    assert losses(trained(resume=True, **options)) == losses(straight)
    assert straight.batches.endswith(": half of a small graph")


@pytest.mark.parametrize("by", ["fit", "command"])
def test_a_run_goes_on_with_its_batches_where_a_later_version_chooses_otherwise(tmp_path, monkeypatch, by):
    torch.manual_seed(0)
    small_graph().save(tmp_path / "graph")
    graph, out = lmc.load(tmp_path / "graph"), tmp_path / "a"
    lmc.fit(graph, lmc.GCN(8, 8, 10), lmc.LMC(), epochs=1, out=out)
    monkeypatch.setattr("lmc.batching.choice.FEW_CLUSTERS", 8)
    if by == "fit":
        lmc.fit(graph, lmc.GCN(8, 8, 10), lmc.LMC(), epochs=2, out=out, resume=True)
    else:
        done = called("train", "--resume", out, "--epochs", 2)
        assert done.returncode == 0, done.stderr
    words = "16 of 32 clusters each (50 % of the graph, 19 nodes a cluster): half of a small graph"
    assert json.loads((out / "summary.json").read_text())["batches"] == words
    monkeypatch.undo()
    again = [line["loss"] for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())]
    assert again == losses(trained())
    with pytest.raises(lmc.ArgumentError, match=r"training\.parts_per_batch is 16, and cannot become 1"):
        trained(out=out, parts_per_batch=1, resume=True)


def test_settings_of_a_run_choose_anew_for_another_graph_and_other_parts(tmp_path):
    lmc.synthetic(nodes=4000, features=8, seed=3).save(tmp_path / "larger")
    trained(out=tmp_path / "a")
    trained(out=tmp_path / "quarter", batch_share=0.25)
    common = ("--epochs", 1, "--data", tmp_path / "larger")
    for run, options, words in (
        ("a", (), "31 of 62 clusters each (50 % of the graph, 65 nodes a cluster): half of a small graph"),
        ("a", ("--parts", 40), "1 of 40 clusters each"),
        ("quarter", (), "16 of 64 clusters each (25 % of the graph, 62 nodes a cluster): batch_share=0.25"),
        ("quarter", ("--parts", 40), "10 of 40 clusters each"),
    ):
        done = called("train", tmp_path / run / "config.toml", *common, *options, "--out", tmp_path / "b")
        assert done.returncode == 0, done.stderr
        assert f"batches: {words}" in done.stdout
        shutil.rmtree(tmp_path / "b")


def test_runs_of_a_comparison_go_on_where_batches_were_chosen(tmp_path):
    graph = small_graph()
    tree = {"method": {"name": "gas"}, "model": {"hidden": 4}, "training": {"epochs": 1, "batch_share": 0.25}}
    again = {
        "method": {"name": "gas"},
        "model": {"hidden": 4},
        "training": {"epochs": 2, "batch_share": 0.25},
    }
    for each, epochs in ((tree, 1), (again, 2)):
        results = train_each(seeded(Config.of(each), 1), tmp_path, graph, _nobody)
        assert [len(result.history) for result in results.values()] == [epochs]
    other = Config.of({**again, "training": {"epochs": 2, "batch_share": 0.5}})
    with pytest.raises(lmc.ArgumentError, match="holds a run already"):
        train_each(seeded(other, 1), tmp_path, graph, _nobody)


class _Nobody(list):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def _nobody(name):
    return _Nobody()


def test_the_command_line_chooses_and_says_so(tmp_path):
    graph = small_graph()
    graph.save(tmp_path / "graph")
    common = ("--data", tmp_path / "graph", "--hidden", 4, "--epochs", 1)
    done = called("train", *common, "--method", "gas", "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "batches: 16 of 32 clusters each (50 % of the graph, 19 nodes a cluster)" in done.stdout
    assert "parts" not in (tmp_path / "a" / "config.toml").read_text()
    goes_on = called("train", "--resume", tmp_path / "a", "--epochs", 2, "--quiet")
    assert goes_on.returncode == 0, goes_on.stderr
    done = called("train", *common, "--batch-share", 0.25, "--out", tmp_path / "b")
    assert "batches: 9 of 36 clusters each (25 % of the graph, 17 nodes a cluster)" in done.stdout
    done = called("compare", *common, "--methods", "gas,lmc", "--out", tmp_path / "c", "--quiet")
    assert done.returncode == 0, done.stderr
    for method in ("gas", "lmc"):
        assert json.loads((tmp_path / "c" / method / "batches.json").read_text())["parts"] == 32
    line = fails(2, "train", *common, "--batch-share", 2, through=called)
    assert "batch_share=2" in line


# -- balanced groups, which are the default ------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 6, 12])
def test_every_pair_of_clusters_meets_in_balanced_groups(size):
    """Also clusters with so much of the same that other groups are always better for them."""
    graph = lmc.synthetic(nodes=1200, classes=10)
    sampler = lmc.GAS().make_sampler(graph, BatchOptions(parts=24, parts_per_batch=size))
    met = np.zeros((24, 24))
    for epoch in range(1500):
        for group in sampler._groups(epoch):
            met[np.ix_(group, group)] += 1
    assert met.sum() == 1500 * 24 * size
    assert met.min() > 0


def test_balance_is_the_default_of_what_trains_and_not_of_lmc_batches():
    graph = small_graph()
    clusters = lmc.partition(graph, parts=30)
    default, random = (
        [b.nodes.tolist() for b in lmc.batches(graph, clusters, 5, **options)]
        for options in ({}, {"balance": None})
    )
    assert default == random
    runs = [
        [
            b.nodes.tolist()
            for b in lmc.GAS().make_sampler(graph, BatchOptions(30, 5, balance=balance)).epoch(0)
        ]
        for balance in (BatchOptions().balance, "labels", "none", None)
    ]
    assert runs[0] == runs[1] != runs[2] == runs[3] == random
