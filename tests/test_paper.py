"""The paper's experiments, as little of each as shows that it works, on a small graph."""

import json
from itertools import product
from types import SimpleNamespace

import pytest

import lmc
from commands import called
from lmc.batching.samplers import BatchOptions
from lmc.paper import batch_size, methods, numbers, variance
from lmc.paper.experiments import EXPERIMENTS
from lmc.paper.figures import epoch_chart
from lmc.paper.outcome import MeanOfRuns, Outcome, ResultTable
from lmc.paper.setup import METHOD_SETTINGS, Scale, best_rate
from lmc.paper.variance import errors_along
from lmc.paper.writing import write_page
from lmc.runs import registry
from lmc.runs.config import Config

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


def test_numbers_are_those_of_the_paper():
    """Of every row of table 1 that has one, and of some in the other tables."""
    reddit = {m: shown for (model, m), shown in numbers.PREDICTION["reddit"].items() if model == "GCN"}
    assert reddit == {
        "GraphSAGE": "95.40", "VR-GCN": "94.50", "FastGCN": "93.70", "LADIES": "92.80", "CLUSTER": "96.60",
        "GraphSAINT": "97.00", "SIGN": "96.80", "GD": "95.43", "GAS": "95.35 ± 0.01", "FM": "95.27 ± 0.03",
        "LMC": "95.44 ± 0.02",
    }  # fmt: skip
    assert numbers.PREDICTION["ppi"]["GCN", "VR-GCN"] == "85.60"
    assert numbers.PREDICTION["flickr"]["GCN", "FastGCN"] == "50.40"
    assert numbers.PREDICTION["arxiv"]["GCN", "GraphSAGE"] == "71.49"
    assert numbers.EFFICIENCY["reddit"]["GCN", "FM"] == (400.0, 2269, 1644)
    assert numbers.MEMORY["ppi"]["default", "GAS"] == (214, 100, 91)
    assert numbers.EPOCH_TIME["ppi"]["GCNII", "LMC"] == 4.77


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
    found = errors_along(graph, 12, 3, (1, 2), variance.methods(), variance.GROUPS)
    assert list(found) == [1, 2]
    for at in found.values():
        default = at.by_method["LMC, β found"]
        assert default == at.by_groups["labels"]
        spreads = {errors.variance["total"] for errors in at.by_method.values()}
        assert max(spreads) == pytest.approx(min(spreads))  # the same batches at the same parameters
        assert len({errors.bias["total"] for errors in at.by_method.values()}) == len(at.by_method)
    assert found[2].by_groups["gradients"].variance != found[2].by_groups["random"].variance


@pytest.fixture
def no_processes(monkeypatch):
    """The memory of processes is what `make test-long` measures."""
    monkeypatch.setattr(methods, "process_peaks_of", lambda jobs, *_: dict.fromkeys(jobs, 7_000_000))


def test_every_method_makes_as_many_steps(folder, no_processes):
    outcome = methods.methods(Scale(quick=True, epochs=3, data=("cora",), root=str(folder)))
    table = outcome.tables[0]
    rows = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert list(rows) == [registry.METHODS[name].title for name in registry.TRAINING_METHODS]
    assert all(abs(row["steps"] - 6) <= 1 for row in rows.values())
    assert all(row["test, %"].mean > 25 for row in rows.values())  # a guess is right in a quarter
    assert {row["of the process, MB"] for row in rows.values()} == {7.0}


def test_what_is_found_of_some_methods_is_kept_after_each_graph(folder, no_processes):
    kept = []
    scale = Scale(
        quick=True,
        epochs=1,
        data=("cora", "arxiv"),
        methods=("gas", "gd"),
        root=str(folder),
        keep=lambda outcome: kept.append([*outcome.figures]),
    )
    outcome = methods.methods(scale)
    assert kept == [["cora"], ["cora", "arxiv"]]
    assert [[row[0] for row in table.rows] for table in outcome.tables] == [["GAS", "full batch"]] * 2
    with pytest.raises(lmc.ArgumentError, match="method='lcm': must be one of"):
        Scale(methods=("lcm",))


def test_options_suit_the_graph():
    graph = lmc.synthetic(nodes=9000, features=4)
    steps, training = methods.steps_a_round(graph), int(graph.train_mask.sum())
    for name in registry.TRAINING_METHODS:
        estimator = Config.of({"method": methods.suited(name, graph)}).build_estimator()
        expected = 1 if name == "gd" else steps
        assert abs(estimator.make_sampler(graph, BatchOptions()).steps - expected) <= 1, name
    assert steps == 3
    assert methods.suited("sage", graph) == {"name": "sage", "batch_size": -(-training // steps)}


def test_the_budget_goes_by_labels_and_size():
    few, many = (lmc.synthetic(nodes=nodes, features=4) for nodes in (400, 4000))
    assert methods.budget_of(few) is methods.FEW_LABELS
    assert methods.budget_of(many) is methods.MANY_LABELS


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
