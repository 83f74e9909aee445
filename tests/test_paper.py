"""The paper's experiments, as little of each as shows that it works, on a small graph."""

import json
from itertools import product
from types import SimpleNamespace

import pytest

import lmc
from commands import called
from lmc.paper import batch_size
from lmc.paper.experiments import EXPERIMENTS
from lmc.paper.figures import epoch_chart
from lmc.paper.outcome import MeanOfRuns, Outcome, ResultTable
from lmc.paper.setup import METHOD_SETTINGS, best_rate
from lmc.paper.variance import errors_along
from lmc.paper.writing import write_page

# `make test-long` has the others, some of which start processes of their own.
QUICK = ["prediction", "gradient-error", "ablation"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small graph under the names that experiments look for."""
    root = tmp_path_factory.mktemp("data")
    graph = lmc.synthetic(nodes=400, features=6, classes=4)
    for name in ("arxiv", "cora"):
        graph.save(root / name)
    return root


def check(name, out, done):
    assert done.returncode == 0, done.stderr
    written = json.loads((out / f"{name}.json").read_text())
    assert written["source"] == EXPERIMENTS[name].source
    assert written["differences"]
    assert written["environment"]["started"]
    for table in written["tables"]:
        assert table["rows"]
        assert all(len(row) == len(table["heads"]) for row in table["rows"])
        assert f"**{table['title']}**" in (out / f"{name}.md").read_text()
    for figure in out.glob(f"{name}-*.png"):
        assert figure.read_bytes().startswith(b"\x89PNG")
        assert figure.with_suffix(".svg").read_text().startswith("<?xml")
    return written


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in EXPERIMENTS]
)
def test_every_experiment_writes_its_tables(name, folder, tmp_path):
    done = called("paper", name, "--quick", "--epochs", 1, "--root", folder, "--out", tmp_path)
    check(name, tmp_path, done)


@pytest.mark.long
def test_batch_sizes_stand_beside_those_of_the_paper(folder, tmp_path):
    done = called(
        "paper", "batch-size", "--quick", "--epochs", 1, "--runs", 2, "--root", folder, "--out", tmp_path
    )
    table = check("batch-size", tmp_path, done)["tables"][0]
    clusters, method, rate, vals, tests, paper, *_ = table["rows"][1]
    assert (clusters, method, rate, paper) == (1, "LMC", "0.01", 71.65)
    assert len(vals) == len(tests) == 2


def test_one_model_can_be_asked_for(folder, tmp_path):
    scale = ("--quick", "--epochs", 1, "--model", "gcnii", "--data", "cora")
    done = called("paper", "prediction", *scale, "--root", folder, "--out", tmp_path)
    rows = check("prediction", tmp_path, done)["tables"][0]["rows"]
    assert [(row[0], row[1]) for row in rows] == [("GCNII", method) for method in METHOD_SETTINGS]


def test_another_batch_size_can_be_asked_for(folder, tmp_path):
    scale = ("--quick", "--epochs", 1, "--clusters", 4)
    done = called("paper", "batch-size", *scale, "--root", folder, "--out", tmp_path)
    rows = check("batch-size", tmp_path, done)["tables"][0]["rows"]
    assert [(row[0], row[1], row[5]) for row in rows] == [(4, method, None) for method in batch_size.COMPARED]


def test_the_learning_rate_is_the_one_that_is_best_on_average():
    vals = {0.01: (0.9, 0.1, 0.9), 0.003: (0.7, 0.6, 0.5), 0.001: (0.5, 0.5, 0.9)}
    asked = []

    def train(rate, seed):
        asked.append((rate, seed))
        return SimpleNamespace(best=SimpleNamespace(val=vals[rate][seed]))

    rate, results = best_rate(train, list(vals), range(3), 2)
    assert (rate, [result.best.val for result in results]) == (0.003, [0.7, 0.6, 0.5])
    assert sorted(asked) == sorted([*product(vals, range(2)), (0.003, 2)])


def test_methods_are_measured_at_the_same_points_of_one_training():
    graph = lmc.synthetic(nodes=240, features=6, classes=4)
    found = errors_along(graph, 12, 3, (1, 2))
    assert list(found) == [1, 2]
    for at in found.values():
        default = at.by_method["LMC, β found"]
        assert default == at.by_groups["labels"]
        spreads = {errors.variance["total"] for errors in at.by_method.values()}
        assert max(spreads) == pytest.approx(min(spreads))  # the same batches at the same parameters
        assert len({errors.bias["total"] for errors in at.by_method.values()}) == len(at.by_method)
    assert found[2].by_groups["gradients"].variance != found[2].by_groups["random"].variance


def test_experiments_are_listed_and_unknown_ones_are_named(tmp_path):
    done = called("paper", "--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(EXPERIMENTS)
    done = called("paper", "batchsize")
    assert done.returncode == 2
    assert "did you mean 'batch-size'?" in done.stderr
    done = called("paper", "prediction", "--model", "GCN", "--root", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "lmc: model='GCN': must be one of gcn, gcnii (did you mean 'gcn'?)\n"
    done = called("paper")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    done = called("paper", "ablation", "--root", tmp_path, "--data", "nowhere")
    assert done.returncode == 2
    assert "data set 'nowhere' is missing" in done.stderr


def test_tables_say_no_more_than_was_measured():
    table = ResultTable("t", ["a", "b"], [[MeanOfRuns([1.0]), None], [MeanOfRuns([1.0, 2.0]), 3]])
    assert table.cells() == [["1.00", "-"], ["1.50 ± 0.71", "3"]]
    assert table.raw()["rows"] == [[[1.0], None], [[1.0, 2.0], 3]]


def test_one_page_of_several_experiments_is_complete_in_itself(tmp_path):
    chart = epoch_chart({"LMC": [0.5, 0.6]}, "accuracy")
    drawn = Outcome({}, ["half of <the> data"], findings=["LMC first"], figures={"arxiv": [chart]})
    measured = Outcome({}, [], [ResultTable("accuracies", ["GAS"], [[MeanOfRuns([71.25])]])])
    write_page(tmp_path / "index.html", {"ablation": drawn, "memory": measured})
    page = (tmp_path / "index.html").read_text()
    for shown in ("half of &lt;the&gt; data", "LMC first", "71.25", EXPERIMENTS["memory"].title):
        assert shown in page
    assert page.count('src="data:image/png;base64,') == 1
    assert "://" not in page
