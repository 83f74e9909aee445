"""Several seeds: the runs are those of each seed alone; mean and deviation are reckoned again here."""

import json
import math
from contextlib import nullcontext

import pytest

import lmc
from commands import arguments, called, fails, metrics
from html_page import Page
from lmc.runs.comparison import compare, over_seeds
from lmc.runs.config import Config
from lmc.runs.seeds import seeded, train_each

pytestmark = pytest.mark.slow


def spread(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def table_of(out):
    """Rows of the table in a terminal."""
    lines = [line for line in out.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_seeds_are_the_runs_of_each_and_their_mean(small, tmp_path):
    command = ["train", *arguments(small, epochs=3), "--seed", 9, "--seeds", 3, "--out", tmp_path / "a"]
    done = called(*command)
    assert done.returncode == 0, done.stderr
    alone = called("train", *arguments(small, epochs=3), "--seed", 10, "--out", tmp_path / "b", "--quiet")
    assert alone.returncode == 0
    assert metrics(tmp_path / "a" / "seed-10") == metrics(tmp_path / "b")
    bests = [
        json.loads((tmp_path / "a" / f"seed-{seed}" / "summary.json").read_text())["best"]
        for seed in (9, 10, 11)
    ]
    kept = json.loads((tmp_path / "a" / "seeds.json").read_text())
    for split in ("val", "test"):
        mean, deviation = spread([best[split] for best in bests])
        assert kept[split] == {"mean": pytest.approx(mean), "deviation": pytest.approx(deviation)}
    assert [run["seed"] for run in kept["runs"]] == [9, 10, 11]
    shown = f"{kept['val']['mean']:.4f} ± {kept['val']['deviation']:.4f}"
    rows = table_of(done.stdout)
    assert [row[0] for row in rows] == ["9", "10", "11", "mean"]
    assert rows[-1][2] == shown

    assert called("report", tmp_path / "a", "--out", tmp_path / "page.html").returncode == 0
    page = Page((tmp_path / "page.html").read_text())
    assert [row[0].split()[0] for row in page.rows(0)[1:]] == ["seed-9", "seed-10", "seed-11"]
    assert page.rows(1)[1][:3] == ["LMC, gcn", "3", shown]

    assert "holds several seeds" in fails(2, "train", "--resume", tmp_path / "a", through=called)
    # The same command has nothing left to do, and with more epochs it goes on.
    assert called(*command, "--epochs", 4, "--quiet").returncode == 0
    longer = called("train", *arguments(small, epochs=4), "--seed", 10, "--out", tmp_path / "c", "--quiet")
    assert longer.returncode == 0
    assert metrics(tmp_path / "a" / "seed-10") == metrics(tmp_path / "c")
    assert "holds a run already" in fails(2, *command, "--lr", 0.5, through=called)


def test_seeds_that_were_interrupted_go_on(small, tmp_path):
    tree = {"data": {"name": str(small)}, "method": {"name": "gas"}, "training": {"parts": 4, "epochs": 3}}
    configs = seeded(Config.of(tree), 2)
    graph = lmc.Graph.open(small)

    class Interrupt(lmc.Callback):
        def on_epoch(self, training, record):
            training.stop("interrupted")

    assert train_each(configs, tmp_path / "a", graph, lambda name: nullcontext([Interrupt()])) is None
    assert not (tmp_path / "a" / "seed-1").exists()
    resumed = train_each(configs, tmp_path / "a", graph, lambda name: nullcontext([]))
    straight = train_each(configs, tmp_path / "b", graph, lambda name: nullcontext([]))
    for name in configs:
        assert metrics(tmp_path / "a" / name) == metrics(tmp_path / "b" / name)
        assert resumed[name].best.val == straight[name].best.val


def test_json_lines_say_whose_they_are(small, tmp_path):
    options = ("--hidden", 4, "--epochs", 2, "--parts", 4, "--seed", 3, "--json")
    done = called("train", "--data", small, *options, "--seeds", 2, "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["seed"], line["epoch"]) for line in lines] == [(3, 1), (3, 2), (4, 1), (4, 2)]


def test_a_comparison_over_seeds(small, tmp_path):
    sizes = [
        "--data",
        small,
        "--hidden",
        8,
        "--parts",
        4,
        "--parts-per-batch",
        2,
        "--epochs",
        3,
        "--seeds",
        2,
    ]
    done = called("compare", *sizes, "--methods", "gas,lmc", "--out", tmp_path / "a", "--quiet")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "a" / "comparison.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["gas", "lmc"]
    for row in rows:
        bests = [
            json.loads((tmp_path / "a" / row["method"] / name / "summary.json").read_text())["best"]
            for name in ("seed-0", "seed-1")
        ]
        for key, split in (("best", "val"), ("test", "test")):
            mean, deviation = spread([best[split] for best in bests])
            assert row[key] == pytest.approx(mean)
            assert row[f"{key}_deviation"] == pytest.approx(deviation)
    assert (
        f"{rows[0]['best']:.4f} ± {rows[0]['best_deviation']:.4f}"
        in (tmp_path / "a" / "comparison.md").read_text()
    )
    assert called("report", tmp_path / "a", "--out", tmp_path / "page.html").returncode == 0
    page = Page((tmp_path / "page.html").read_text())
    assert [row[:2] for row in page.rows(1)[1:]] == [["GAS, gcn", "2"], ["LMC, gcn", "2"]]


def test_a_target_that_one_seed_misses_is_not_reached():
    graph = lmc.synthetic(nodes=200)

    def result(epochs):
        return lmc.fit(
            graph, lmc.GCN(graph.num_features, 4, graph.num_classes), lmc.FullBatch(), epochs=epochs
        )

    runs = {"a": result(2), "b": result(2)}
    lowest, highest = sorted(run.best.val for run in runs.values())
    _, rows = compare(runs, target=lowest)
    assert over_seeds({"gd": rows})[0].epochs is not None
    _, rows = compare(runs, target=highest + 0.01)
    assert over_seeds({"gd": rows})[0].epochs is None
