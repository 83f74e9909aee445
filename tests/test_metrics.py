"""Metrics by name against scikit-learn's, and those of a user's own in records, files and resumed runs."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, mean_absolute_error, roc_auc_score

import lmc
from commands import called, fails
from lmc.training.metrics import METRICS


def classes_of(rows=60, classes=5):
    torch.manual_seed(rows)
    y = torch.randint(classes - 1, (rows,))  # the last class is never true
    logits = torch.randn(rows, classes).round(decimals=1)  # some of them equal
    logits[:, classes - 2] = -9.0  # and the one before it never predicted
    return logits, y


def labels_of(rows=60, labels=4):
    torch.manual_seed(rows)
    return torch.randn(rows, labels).round(decimals=1), (torch.rand(rows, labels) > 0.6).float()


def test_f1_of_classes():
    logits, y = classes_of()
    predicted = logits.argmax(1)
    assert METRICS["macro_f1"].of(logits, y) == pytest.approx(
        f1_score(y, predicted, average="macro", zero_division=0)
    )
    assert METRICS["micro_f1"].of(logits, y) == pytest.approx(f1_score(y, predicted, average="micro"))
    assert METRICS["micro_f1"].of(logits, y) == pytest.approx(METRICS["accuracy"].of(logits, y))


def test_f1_of_labels():
    logits, y = labels_of()
    for name in ("macro", "micro"):
        assert METRICS[f"{name}_f1"].of(logits, y) == pytest.approx(f1_score(y, logits > 0, average=name))


def test_roc_auc():
    logits, y = labels_of()
    assert METRICS["roc_auc"].of(logits, y) == pytest.approx(roc_auc_score(y, logits))
    logits, y = classes_of()
    shares = logits.double().softmax(1).numpy()
    each = [roc_auc_score(y == k, shares[:, k]) for k in range(4)]  # nobody is of the fifth
    assert METRICS["roc_auc"].of(logits, y) == pytest.approx(np.mean(each))
    assert np.isnan(METRICS["roc_auc"].of(logits, torch.zeros_like(y)))


def test_mae():
    prediction, y = torch.randn(9, 1), torch.randn(9)
    assert METRICS["mae"].of(prediction, y) == pytest.approx(mean_absolute_error(y, prediction[:, 0]))


def fit(graph, epochs, **options):
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 8, graph.num_classes)
    return lmc.fit(graph, model, lmc.LMC(), 4, 2, epochs=epochs, **options)


def test_a_function_of_ones_own_is_recorded_and_kept_through_a_resume(small, tmp_path):
    graph = lmc.Graph.open(small)
    seen = []

    def hits(prediction, y):
        seen.append((tuple(prediction.shape), tuple(y.shape)))
        return (prediction.argmax(1) == y).sum()  # a tensor: any number will do

    straight = fit(graph, 4, metrics={"hits": hits}, evaluate_every=2)
    sizes = {split: int(getattr(graph, f"{split}_mask").sum()) for split in ("train", "val", "test")}
    assert seen[:3] == [((size, graph.num_classes), (size,)) for size in sizes.values()]
    assert [record.metrics is None for record in straight.history] == [True, False, True, False]
    last = straight.history[-1]
    for split, size in sizes.items():
        assert last.metrics["hits"][split] == pytest.approx(getattr(last, split) * size)

    options = {"metrics": {"hits": hits}, "evaluate_every": 2, "out": tmp_path / "a"}
    fit(graph, 2, **options)
    resumed = fit(graph, 4, **options, resume=True)
    assert [record.metrics for record in resumed.history] == [record.metrics for record in straight.history]
    kept = [
        json.loads(line)["metrics"] for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    ]
    assert kept == [record.metrics for record in straight.history]


def test_by_name_from_the_command_line_to_the_report(small, tmp_path):
    sizes = ["--hidden", 8, "--parts", 4, "--epochs", 2, "--method", "gas", "--out", tmp_path / "a"]
    done = called("train", "--data", small, *sizes, "--metric", "macro_f1", "--metric", "roc_auc")
    assert done.returncode == 0, done.stderr
    best = json.loads((tmp_path / "a" / "summary.json").read_text())["best"]
    assert best["metrics"].keys() == {"macro_f1", "roc_auc"}
    assert f"macro_f1 train {best['metrics']['macro_f1']['train']:.4f}" in done.stdout
    assert 'metrics = [\n    "macro_f1",\n    "roc_auc",\n]' in (tmp_path / "a" / "config.toml").read_text()
    assert called("report", tmp_path / "a").returncode == 0
    page = (tmp_path / "a" / "report.html").read_text()
    assert "Validation macro_f1" in page
    assert "Validation roc_auc" in page


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["macro_f2"], "did you mean 'macro_f1'"),
        (["mae"], "metrics='mae': is for regression, and the labels are multiclass"),
        (5, "metrics=5: must be a list"),
        (max, r"metrics=.*: has no name; metrics=\{'name': function\} does"),
        ("macro_f2", "did you mean 'macro_f1'"),
        ({"f1": 0.5}, r"metrics\['f1'\]=0.5: must be a function"),
        ({"f 1": float}, "a name must be of letters"),
        ({"f1": lambda *_: "high"}, r"metrics\['f1'\]: gave 'high'; must be a number"),
    ],
)
def test_what_is_no_metric(small, metrics, message):
    with pytest.raises(lmc.ArgumentError, match=message):
        fit(lmc.Graph.open(small), 1, metrics=metrics)


def test_one_name_is_a_list_of_it(small):
    record = fit(lmc.Graph.open(small), 1, metrics="macro_f1").history[0]
    assert record.metrics.keys() == {"macro_f1"}
    assert lmc.TrainingOptions(metrics="macro_f1").metrics == ["macro_f1"]


def test_what_is_no_metric_in_a_file(small, tmp_path):
    line = fails(2, "train", "--data", small, "--set", "training.metrics={f1 = 1}", through=called)
    assert "training.metrics={'f1': 1}: must be a string or a list" in line
