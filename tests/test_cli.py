"""The other commands, as a person would go from one to the next."""

import json
import shutil

import numpy as np
import pytest
import torch

import lmc
from commands import called, fails, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    lmc.synthetic(nodes=300, seed=2).save(folder / "graph")
    done = called(
        "train", "--data", folder / "graph", "--hidden", 8, "--epochs", 4, "--out", folder / "a", "--quiet"
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("suffix", [pytest.param("parquet", marks=pytest.mark.process), "csv", "npz"])
def test_predict_writes_the_predictions_that_the_summary_judged(trained, suffix):
    out = trained / f"p.{suffix}"
    done = (run if suffix == "parquet" else called)("predict", trained / "a", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "300 nodes" in done.stdout
    summary = json.loads((trained / "a" / "summary.json").read_text())
    if suffix == "npz":
        with np.load(out) as arrays:
            classes, split = arrays["class"], arrays["split"]
    else:
        import pandas

        frame = (
            pandas.read_parquet(out) if suffix == "parquet" else pandas.read_csv(out, keep_default_na=False)
        )
        assert frame["node"].tolist() == list(range(300))
        classes, split = frame["class"].to_numpy(), frame["split"].to_numpy()
    graph = lmc.Graph.open(trained / "graph")
    right = classes == graph.y.numpy()
    assert right[split == "test"].mean() == pytest.approx(summary["best"]["test"])


def test_predict_on_a_graph_the_model_has_not_seen(trained, tmp_path):
    other = lmc.synthetic(nodes=150, seed=9)
    other.save(tmp_path / "other")
    done = called("predict", trained / "a", "--data", tmp_path / "other", "--out", tmp_path / "p.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "p.npz") as arrays:
        assert arrays["probabilities"].shape == (150, 10)
        assert np.allclose(arrays["probabilities"].sum(1), 1, atol=1e-5)
    lmc.synthetic(nodes=150, features=5).save(tmp_path / "narrow")
    line = fails(
        2,
        "predict",
        trained / "a",
        "--data",
        tmp_path / "narrow",
        "--out",
        tmp_path / "q.npz",
        through=called,
    )
    assert "has 5 features, and the model of " in line
    assert ".parquet" in fails(2, "predict", trained / "a", "--out", tmp_path / "p.xlsx", through=called)
    assert "not the folder of a run" in fails(
        2, "predict", tmp_path, "--out", tmp_path / "p.npz", through=called
    )


@pytest.mark.process
def test_inspect_describes_the_graph(trained):
    done = run("inspect", trained / "graph")
    assert done.returncode == 0, done.stderr
    for word in ("300", "homophily", "isolated", "halo"):
        assert word in done.stdout.lower()


@pytest.mark.process
def test_compare_writes_a_table_and_a_report_and_can_be_repeated(trained, tmp_path):
    sizes = ["--hidden", 8, "--epochs", 3, "--parts", 4, "--parts-per-batch", 2]
    methods = ["--methods", "gd,cluster,gas,fm,lmc", "--out", tmp_path / "cmp"]
    arguments = ["compare", "--data", trained / "graph", "--model", "gcn", *sizes, *methods]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "cmp" / "comparison.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["gd", "cluster", "gas", "fm", "lmc"]
    assert all(row["epochs"] is not None for row in rows)
    table = (tmp_path / "cmp" / "comparison.md").read_text()
    assert "| gas |" in table
    assert "| memory of a step | process peak |" in table
    assert all(0 <= row["step_memory"] < row["memory"] for row in rows)
    assert "<html" in (tmp_path / "cmp" / "report.html").read_text()
    page = called(
        "report", tmp_path / "cmp" / "lmc", tmp_path / "cmp" / "gas", "--out", tmp_path / "page.html"
    )
    assert page.returncode == 0, page.stderr
    assert "lmc" in (tmp_path / "page.html").read_text()
    again = called(*arguments)
    assert again.returncode == 0, again.stderr  # what is there goes on: nothing is left to do
    assert json.loads((tmp_path / "cmp" / "comparison.json").read_text())["rows"] == rows
    shutil.rmtree(tmp_path / "cmp" / "lmc")
    resumed = called("compare", "--resume", tmp_path / "cmp", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    results = json.loads((tmp_path / "cmp" / "comparison.json").read_text())["rows"]
    assert [(row["method"], row["best"], row["test"]) for row in results] == [
        (row["method"], row["best"], row["test"]) for row in rows
    ]


def test_a_report_of_one_run_is_in_its_folder_and_of_several_where_it_was_asked_for(
    trained, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "a", tmp_path / "runs" / "a")
    shutil.copytree(trained / "a", tmp_path / "runs" / "b")
    before = sorted((tmp_path / "runs").rglob("*"))
    done = called("report", "runs/b", "runs/a")
    assert (done.returncode, done.stdout) == (0, "comparison.html\n")
    assert "2 training runs" in (tmp_path / "comparison.html").read_text()
    assert sorted((tmp_path / "runs").rglob("*")) == before
    assert called("report", "runs/b").stdout == "runs/b/report.html\n"
    assert "Training run b" in (tmp_path / "runs" / "b" / "report.html").read_text()


def test_wrong_calls_of_compare(tmp_path):
    assert "gsa" in fails(2, "compare", "--methods", "gsa", "--out", tmp_path / "x", through=called)
    line = fails(2, "compare", "--methods", "gas,lmc,gas", "--out", tmp_path / "x", through=called)
    assert line == "lmc: --methods gas,lmc,gas: gas is there twice"
    line = fails(2, "compare", "--resume", tmp_path, through=called)
    assert "not the folder of a comparison (there is no comparison.toml in it)" in line
    line = fails(2, "compare", "--resume", tmp_path, "--lr", "0.1", through=called)
    assert "only --target may be changed" in line
    (tmp_path / "comparison.toml").write_text('methods = "lmc"')
    line = fails(2, "compare", "--resume", tmp_path, through=called)
    assert "comparison.toml: methods='lmc': must be a list" in line


def test_methods_of_a_comparison_start_from_the_same_weights():
    from lmc.runs.config import Config

    models = [
        Config.of({"method": {"name": name}, "training": {"parts": 4}}).build_model(5, 3)
        for name in ("gas", "lmc")
    ]
    states = [model.state_dict() for model in models]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.process
def test_demo_compares_three_methods_and_writes_a_report(tmp_path):
    done = run("demo", "--epochs", 5, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "20,000 nodes" in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["gd", "gas", "lmc"]
    page = next(line for line in done.stdout.splitlines() if line.startswith("report: ")).removeprefix(
        "report: "
    )
    assert (tmp_path / page).exists()


@pytest.mark.process
@pytest.mark.long
def test_bench_writes_numbers_and_compares_them_with_earlier_ones(trained, tmp_path):
    out = tmp_path / "numbers.json"
    old = tmp_path / "old.json"
    names = ["PyG full batch", "full batch", "a row that is gone"]
    old.write_text(json.dumps({"seconds": [{name: [1.0 + place] for place, name in enumerate(names)}]}))
    flags = ["--quick", "--rounds", "1", "--out", out, "--compare", old]
    # It starts a process for each row, which takes minutes on a busy machine.
    first = run("bench", "--data", trained / "graph", *flags, timeout=900)
    assert first.returncode == 0, first.stderr
    assert "Against" in first.stdout
    assert "2.000" in first.stdout
    assert "LMC 80/40" in first.stdout
    raw = json.loads(out.read_text())
    assert all(len(measured) == 1 and measured[0] > 0 for measured in raw["seconds"][0].values())
    assert raw["machine"]["torch"]


def test_a_missing_graph_is_one_line():
    assert "data set 'nowhere' is missing" in fails(2, "bench", "--data", "nowhere", through=called)


@pytest.mark.process
def test_version_help_and_the_nearest_command_are_shown():
    assert lmc.__version__ in run("--version").stdout
    assert "train" in called("--help").stdout
    assert called("train", "-h").stdout == called("train", "--help").stdout != ""
    assert "did you mean 'train'" in fails(2, "trian", through=called)
