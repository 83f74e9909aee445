"""Spider in runs: large batches now and then, settings, commands and mistakes."""

import itertools

import pytest
import torch

import lmc
from commands import called, fails, metrics
from lmc.batching.samplers import BatchOptions, ClusterSampler
from test_resumed import GRAPH, StopAt, made

# -- its batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"balance": "labels"}, {"fixed": True}])
def test_large_batches_come_at_every_third_step_in_the_place_of_others(options):
    graph, parts = lmc.synthetic(nodes=300, classes=4), 13
    clusters = lmc.partition(graph, parts=parts)
    plain, sampler = (ClusterSampler(graph, clusters, 2, seed=1, **options) for _ in range(2))
    sampler.enlarge(every=3, large=4)
    assert sampler.steps == plain.steps == 7
    large = []
    for epoch in range(4):
        own, others = list(sampler.epoch(epoch)), list(plain.epoch(epoch))
        for step, (batch, other) in enumerate(zip(own, others, strict=True)):
            if (epoch * 7 + step) % 3 == 0:
                large.append(set(clusters[batch.nodes].tolist()))
                assert len(large[-1]) == 4
                assert batch.scale == parts / 4
                assert torch.equal(
                    batch.nodes.sort()[0],
                    torch.isin(clusters, torch.tensor(sorted(large[-1]))).nonzero()[:, 0],
                )
            else:
                assert torch.equal(batch.nodes, other.nodes)
                assert batch.scale == other.scale
        for start in range(8):
            rest = list(sampler.epoch(epoch, start))
            assert [b.nodes.tolist() for b in rest] == [b.nodes.tolist() for b in own[start:]]
    first = torch.cat([batch.nodes for batch in itertools.islice(plain.epoch(0), 2)])
    assert large[0] != set(clusters[first].tolist())  # an order of their own
    rounds = [large[i : i + 3] for i in range(0, 9, 3)]  # three of four clusters, one is left out
    assert all(len(set.union(*each)) == 12 for each in rounds)
    assert (rounds[0] == rounds[1]) == ("fixed" in options)


def test_large_groups_are_alike_where_others_are():
    """By the deviation of their label counts from their share of all."""
    graph = lmc.synthetic(nodes=2000, classes=4)
    clusters, away = lmc.partition(graph, parts=40), {}
    for balance in ("none", "labels"):
        sampler = ClusterSampler(graph, clusters, 2, balance=balance)
        sampler.enlarge(every=1, large=10)
        counts = torch.stack(
            [
                torch.bincount(graph.y[batch.nodes][graph.train_mask[batch.nodes]], minlength=4).double()
                for epoch in range(3)
                for batch in sampler.epoch(epoch)
            ]
        )
        share = torch.bincount(graph.y[graph.train_mask], minlength=4).double() / 4
        away[balance] = float((counts - share).square().sum())
    assert away["labels"] < away["none"] / 2


@pytest.mark.parametrize(("every", "parts_per_batch", "expected"), [(3, 2, 6), (10, 2, 8), (1, 2, 2)])
def test_by_default_a_large_batch_is_as_large_as_all_from_one_to_the_next(every, parts_per_batch, expected):
    options = BatchOptions(parts=8, parts_per_batch=parts_per_batch)
    sampler = lmc.Spider(lmc.GAS(), every=every).make_sampler(GRAPH, options)
    assert next(sampler.epoch(0)).scale == 8 / expected
    assert sampler.largest == ("large", expected)


def test_in_a_run_large_batches_are_those_of_large_steps_also_after_it_was_stopped(tmp_path):
    seen = []

    class Seen(lmc.Spider):
        def estimate_on(self, batch):
            seen.append((self._step, batch.scale))
            return super().estimate_on(batch)

    options = {"parts": 8, "parts_per_batch": 2, "epochs": 4, "out": tmp_path / "a"}
    estimator = lambda: Seen(lmc.GAS(), every=3, large=5)  # noqa: E731
    lmc.fit(GRAPH, made(), estimator(), **options, callbacks=[StopAt(6)])
    result = lmc.fit(GRAPH, made(), estimator(), **options, resume=True)
    assert seen == [(k, 8 / 5 if k % 3 == 0 else 8 / 2) for k in range(16)]
    assert result.batches.endswith("; each 3 steps one of 5")


def test_the_loss_of_an_epoch_is_the_mean_over_what_was_visited():
    """With everything in every batch, that of the graph."""
    options = {"parts": 4, "epochs": 1, "optimizer": "sgd", "lr": 1e-30, "seed": 1}
    torch.manual_seed(0)
    model = lmc.GCN(8, 8, 4)
    expected = lmc.fit(GRAPH, model, lmc.FullBatch(), **options).history[0].loss
    found = lmc.fit(GRAPH, model, lmc.Spider(lmc.GAS(), every=1, large=4), **options).history[0].loss
    assert found == pytest.approx(expected, rel=1e-5)


def test_memory_is_that_of_the_largest_batch(monkeypatch):
    graph = lmc.synthetic(nodes=2000)
    model = lmc.GCN(graph.num_features, 64, graph.num_classes, layers=2)
    options = {"parts": 20, "epochs": 1}
    monkeypatch.setattr("lmc.memory_use.free", lambda: 2_000_000)
    lmc.fit(graph, model, lmc.Spider(lmc.GAS(), every=2), **options)
    with pytest.raises(lmc.ArgumentError, match=r"^large=18: training needs .*; parts=20, large=9 fits"):
        lmc.fit(graph, model, lmc.Spider(lmc.GAS(), every=2, large=18), **options)
    with pytest.raises(lmc.ArgumentError, match=r"^Spider: training needs .*; LMC with parts="):
        lmc.fit(graph, model, lmc.Spider(lmc.BackwardSGD()), **options)


# -- settings and commands --------------------------------------------------------------------------


def test_flags_and_files_and_fit_say_the_same(small, tmp_path):
    flags = ["--data", small, "--hidden", 8, "--epochs", 2, "--method", "gas"]
    flags += ["--parts", 8, "--parts-per-batch", 2, "--spider", 3]
    large = ["--set", "method.spider_large=5"]
    by_flags = called("train", *flags, *large, "--out", tmp_path / "a")
    assert by_flags.returncode == 0, by_flags.stderr
    method = {"name": "gas", "precision": "full", "spider": 3, "spider_large": 5}
    assert lmc.load_run(tmp_path / "a").settings["method"] == method
    by_file = called("train", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    assert by_file.returncode == 0, by_file.stderr
    graph = lmc.load(str(small))
    model = lmc.build_model("gcn", graph, hidden=8)
    model.load_state_dict(_untrained(graph).state_dict())
    estimator = lmc.Spider(lmc.GAS(), every=3, large=5)
    lmc.fit(graph, model, estimator, parts=8, parts_per_batch=2, epochs=2, out=tmp_path / "c")
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b") == metrics(tmp_path / "c")
    assert lmc.load_run(tmp_path / "c").settings["method"] == method
    for name in "ac":
        assert called("train", "--resume", tmp_path / name, "--epochs", 3, "--quiet").returncode == 0
    assert metrics(tmp_path / "a") == metrics(tmp_path / "c")
    other = called("train", *flags[:-2], "--out", tmp_path / "d")
    assert other.returncode == 0
    assert metrics(tmp_path / "d") != metrics(tmp_path / "a")[:2]
    assert called("report", tmp_path / "a").returncode == 0
    assert "SPIDER over GAS" in (tmp_path / "a" / "report.html").read_text()
    assert "must be 1 or more" in fails(2, "train", *flags[:-2], "--spider", 0, through=called)
    assert "spider, which is not given" in fails(2, "train", *flags[:-2], *large, through=called)


def _untrained(graph):
    torch.manual_seed(0)
    return lmc.build_model("gcn", graph, hidden=8)


@pytest.mark.slow
def test_it_is_put_on_top_of_every_method_compared(small, tmp_path):
    sizes = ["--data", small, "--hidden", 4, "--parts", 4, "--epochs", 1, "--batch-size", 99]
    asked = ["--methods", "gas,sage", "--spider", 2, "--set", "method.spider_large=3"]
    done = called("compare", *sizes, *asked, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert lmc.load_run(tmp_path / "gas").settings["method"]["spider_large"] == 3
    assert lmc.load_run(tmp_path / "sage").settings["method"]["spider"] == 2  # without clusters
    assert "SPIDER over GAS" in (tmp_path / "report.html").read_text()


MISTAKES = {
    "every=0: must be": lambda: lmc.Spider(lmc.LMC(), every=0),
    "every=2.5: must be": lambda: lmc.Spider(lmc.LMC(), every=2.5),
    "large=0: must be": lambda: lmc.Spider(lmc.LMC(), large=0),
    "inner: is a Spider already": lambda: lmc.Spider(lmc.Spider(lmc.LMC())),
    "inner='lmc': must be an lmc.Estimator": lambda: lmc.Spider("lmc"),
    "large=9: must be at most parts=8": lambda: lmc.Spider(lmc.GAS(), large=9).check_batches(
        BatchOptions(parts=8)
    ),
    "large=1: must be from 2, ": lambda: lmc.Spider(lmc.GAS(), large=1).make_sampler(
        GRAPH, BatchOptions(parts=8, parts_per_batch=2)
    ),
    "large=4: batches of FullBatch are not": lambda: lmc.Spider(lmc.FullBatch(), large=4).make_sampler(
        GRAPH, BatchOptions()
    ),
    "Spider is not bound": lambda: lmc.Spider(lmc.GAS()).backward(GRAPH.batch([0])),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_one_line(message):
    with pytest.raises(lmc.ArgumentError) as caught:
        MISTAKES[message]()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
