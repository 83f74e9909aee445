"""Loggers by name in their offline modes: what they wrote, against the files of the run itself."""

import json
import sqlite3
import sys

import pytest
import torch

import lmc
import logged
from commands import arguments, called, fails, run
from lmc.runs.loggers import Logger
from lmc.runs.registry import LOGGERS

READERS = {"tensorboard": logged.tensorboard, "wandb": logged.wandb, "mlflow": logged.mlflow}


@pytest.fixture
def _offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database takes its seconds: see the long test


def test_every_logger_has_a_reader():
    assert READERS.keys() == LOGGERS.keys()


@pytest.mark.usefixtures("_offline")
@pytest.mark.slow
def test_all_of_a_run_is_logged_and_a_resume_goes_on_with_it(small, tmp_path):
    folder = tmp_path / "a"
    every = [word for name in LOGGERS for word in ("--log", name)]
    told = ["--metric", "macro_f1", "--gradient-error-every", 2, *every, "--quiet"]
    assert called("train", *arguments(small, epochs=3), *told, "--out", folder).returncode == 0
    done = called("train", "--resume", folder, "--epochs", 4, *every, "--quiet")
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    best = json.loads((folder / "summary.json").read_text())["best"]
    ends = {"tensorboard": "finished", "wandb": "finished 0", "mlflow": "finished FINISHED"}
    for name, read in READERS.items():
        found = read(folder)
        for key in ("loss", "lr", "memory", "seconds"):
            expected = {record["epoch"]: record[key] for record in records}
            assert found.epochs[key] == pytest.approx(expected, rel=1e-6), name
        for split in ("train", "val", "test"):
            expected = {record["epoch"]: record[split] for record in records}
            assert found.epochs[f"accuracy/{split}"] == pytest.approx(expected), name
            expected = {record["epoch"]: record["metrics"]["macro_f1"][split] for record in records}
            assert found.epochs[f"macro_f1/{split}"] == pytest.approx(expected), name
            assert found.best[f"best/{split}"] == pytest.approx(best[split]), name
        assert found.epochs["gradient_error/total"].keys() == {2, 4}, name
        assert found.best["best/epoch"] == best["epoch"], name
        assert found.settings["model.name"] == "gcn", name
        assert found.settings["method.alpha"] == "auto", name
        assert found.stopped == ends[name], name


def fit(small, folder, callbacks, **options):
    graph = lmc.Graph.open(small)
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 8, graph.num_classes)
    return lmc.fit(graph, model, lmc.GAS(), 4, 2, out=folder, callbacks=callbacks, **options)


@pytest.mark.usefixtures("_offline")
@pytest.mark.slow
def test_a_run_that_fails_or_is_interrupted_is_logged_as_such(small, tmp_path):
    with pytest.raises(lmc.RunError, match="learning rate"):
        fit(small, tmp_path / "a", [*LOGGERS], epochs=3, lr=1e30)

    class Interrupt(lmc.Callback):
        def on_epoch(self, training, record):
            training.stop("interrupted")

    fit(small, tmp_path / "b", [Interrupt(), *LOGGERS], epochs=3)
    ends = {
        "tensorboard": ("failed", "interrupted"),
        "wandb": ("failed 1", "interrupted 255"),
        "mlflow": ("failed FAILED", "interrupted KILLED"),
    }
    for name, read in READERS.items():
        assert (read(tmp_path / "a").stopped, read(tmp_path / "b").stopped) == ends[name]
    assert [*logged.mlflow(tmp_path / "b").epochs["loss"]] == [1]


@pytest.mark.usefixtures("_offline")
@pytest.mark.slow
def test_epochs_that_are_trained_again_are_logged_once(small, tmp_path, monkeypatch):
    class Crash(lmc.Callback):
        def on_epoch(self, training, record):
            if record.epoch == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr("lmc.runs.folder.SAVING_SHARE", 1e9)  # no checkpoint after the first
    told = ["tensorboard", "mlflow"]
    with pytest.raises(KeyboardInterrupt):
        fit(small, tmp_path / "a", [*told, Crash()], epochs=5)
    seen = []

    class Watch(lmc.Callback):
        def on_start(self, training):
            seen.append(training.epoch)

    result = fit(small, tmp_path / "a", [*told, Watch()], epochs=5, resume=True)
    assert seen == [0]
    for name in told:
        losses = READERS[name](tmp_path / "a").epochs["loss"]
        assert losses == pytest.approx({record.epoch: record.loss for record in result.history}), name


def test_without_a_folder_tensorboard_takes_its_own(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = fit(small, None, ["tensorboard"], epochs=1)
    (folder,) = (tmp_path / "runs").iterdir()
    folder.rename(tmp_path / "tensorboard")
    found = logged.tensorboard(tmp_path)
    assert found.epochs["loss"] == pytest.approx({1: result.history[0].loss})
    assert found.settings["model.name"] == "gcn"


@pytest.mark.parametrize("name", LOGGERS)
def test_what_is_not_installed_is_one_line_before_anything_is_done(small, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, LOGGERS[name].package, None)
    line = fails(2, "train", *arguments(small), "--out", tmp_path / "a", "--log", name, through=called)
    assert line.endswith(f"{LOGGERS[name].title} is not installed; pip install 'lmc[{name}]'")
    assert not list(tmp_path.iterdir())


def test_a_logger_that_nobody_knows(small, tmp_path):
    line = fails(
        2, "train", *arguments(small), "--out", tmp_path / "a", "--log", "tensorbord", through=called
    )
    assert "did you mean 'tensorboard'" in line


class Broken(Logger):
    """A service that can be reached so often, and then no more."""

    def __init__(self, times):
        super().__init__("broken", None)
        self.times, self.told = times, []

    def begin(self, training, settings, run_id):
        self._tell_service("begin")

    def log(self, values, epoch):
        self._tell_service(epoch)

    def finish(self, stopped, best):
        self._tell_service(stopped)

    def _tell_service(self, what):
        if len(self.told) == self.times:
            raise ConnectionError("no answer")
        self.told.append(what)


def test_a_service_that_fails_costs_no_run(small):
    with pytest.raises(lmc.ArgumentError, match=r"broken: cannot be reached \(no answer\)"):
        fit(small, None, [Broken(0)], epochs=1)
    broken = Broken(2)
    with pytest.warns(UserWarning, match=r"broken: logging ends, the run goes on \(no answer\)") as seen:
        assert fit(small, None, [broken], epochs=4).stopped == "finished"
    assert len(seen) == 1
    assert broken.told == ["begin", 1]


def test_ids_that_no_run_wrote(small, tmp_path):
    fit(small, tmp_path / "a", [], epochs=1)
    (tmp_path / "a" / "loggers.json").write_text('{"tensorboard": 3}')
    with pytest.raises(lmc.RunError, match=r"loggers.json: tensorboard=3: must be a string"):
        fit(small, tmp_path / "a", ["tensorboard"], epochs=2, resume=True)


@pytest.mark.process
@pytest.mark.long
def test_mlflow_in_its_own_database(small, tmp_path):
    done = run("train", *arguments(small, epochs=2), "--out", "a", "--log", "mlflow", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        losses = store.execute("select step, value from metrics where key = 'loss' order by step").fetchall()
        assert store.execute("select name, status from runs").fetchall() == [("a", "FINISHED")]
    records = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert losses == [(record["epoch"], record["loss"]) for record in records]
