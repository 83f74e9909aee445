"""`lmc tune`: what is tried, pruned, resumed, written down and shown."""

import json
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest

import lmc
from commands import called, fails, metrics, started, wait_for_epochs
from html_page import Page
from lmc.runs.search_space import Choices, Range, SearchSpace, parse_range
from lmc.runs.study import Study, Trial, read_study, write_study
from lmc.runs.tuning import tune

pytestmark = pytest.mark.slow

EPOCHS = 3


def tree(graph, **training):
    return {
        "data": {"name": str(graph)},
        "model": {"hidden": 8},
        "method": {"name": "gas"},
        "training": {"parts": 4, "parts_per_batch": 2, "epochs": EPOCHS, **training},
    }


def searched(graph, out, *texts, trials, **options):
    settings = tree(graph)
    return tune(settings, SearchSpace.of(list(texts), settings), out, trials, **options)


def told(study):
    """The trials without what depends on the clock."""
    return [replace(trial, seconds=0.0) for trial in study.trials]


# -- what is tried ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0:0.8", Range(0, 0.8, log=False, whole=False)),
        ("1:8", Range(1, 8, log=False, whole=True)),
        ("log:1:64", Range(1, 64, log=True, whole=True)),
        ("log:1e-4:1e-1", Range(1e-4, 1e-1, log=True, whole=False)),
        ("32,64", Choices((32, 64))),
        ("batch, none", Choices(("batch", "none"))),
        ("true,false", Choices((True, False))),
        ("64", Choices((64,))),
    ],
)
def test_ranges_and_choices_are_understood(text, meant):
    assert parse_range("model.x", text) == meant


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("training.lr", "must be such as"),
        ("lr=1:2", "must be such as"),
        ("training.lr=", "must be such as"),
        ("training.lr=log:0:1", "above 0"),
        ("training.lr=2:1", "the first end must be below the other"),
        ("training.lr=low:high", "both ends must be numbers"),
        ("training.lr=0.1,0.1", "must be such as"),
        ("training.learning=1:2", "setting='learning'"),
        ("model.norm=1:2", "model.norm=1: must be one of"),
        ("model.hidden=8.5:16.5", "model.hidden=8.5: must be an integer"),
        ("modle.hidden=8,16", "did you mean 'model'"),
    ],
)
def test_what_cannot_be_searched_is_one_line(small, tmp_path, search, message):
    flags = ["--data", small, "--search", search, "--out", tmp_path / "t"]
    assert message in fails(2, "tune", *flags, through=called)
    assert not list(tmp_path.iterdir())


def test_what_a_flag_sets_is_not_among_the_defaults(small):
    settings = tree(small, lr=0.1)
    assert [*SearchSpace.of([], settings).texts] == ["training.weight_decay", "model.dropout"]


# -- trials ----------------------------------------------------------------------------------------


class Interrupt(lmc.Callback):
    """Ends a run as Ctrl-C does, or as a crash, which leaves the trial as it is."""

    def __init__(self, crash):
        self.crash = crash

    def on_epoch(self, training, record):
        if record.epoch == 1:
            if self.crash:
                raise KeyboardInterrupt
            training.stop("interrupted")


@pytest.fixture(scope="module")
def straight(small, tmp_path_factory):
    """A search without a stop, long enough for the sampler to learn from its trials."""
    folder = tmp_path_factory.mktemp("tune") / "straight"
    texts = ["training.lr=log:1e-6:1e-1", "model.hidden=4,8,16", "model.dropout=0:0.8"]
    return texts, folder, searched(small, folder, *texts, trials=8)


def test_a_search_that_was_stopped_goes_on_as_if_it_were_not(small, tmp_path, straight):
    texts, _, expected = straight
    assert {"finished", "pruned"} <= {trial.state for trial in expected.trials}

    def stop_at(number, crash):
        return lambda n: nullcontext([Interrupt(crash)] if n == number else [])

    stopped = searched(small, tmp_path / "t", *texts, trials=8, watch=stop_at(3, False))
    assert [trial.state for trial in stopped.trials[2:]] == ["running"]
    with pytest.raises(KeyboardInterrupt):
        searched(small, tmp_path / "t", *texts, trials=8, watch=stop_at(7, True))
    assert len(read_study(tmp_path / "t").trials) == 6  # the file is of the last trial that ended
    study = searched(small, tmp_path / "t", *texts, trials=8)
    assert told(study) == told(expected)
    assert study.importance == expected.importance
    assert read_study(tmp_path / "t") == study
    # More trials of the same search are a longer one.
    assert told(searched(small, tmp_path / "t", *texts, trials=9))[:8] == told(expected)


def test_a_trial_is_a_run_and_the_best_settings_train_it_again(small, tmp_path, straight):
    _, folder, study = straight
    best = max((t for t in study.trials if t.state == "finished"), key=lambda trial: trial.val)
    assert study.best == best
    for trial in study.trials:
        records = metrics(folder / "trials" / f"{trial.number:03}")
        assert len(records) == trial.epochs
        assert max(record["val"] for record in records) == trial.val
        assert (trial.epochs < EPOCHS) == (trial.state == "pruned")
        assert not (folder / "trials" / f"{trial.number:03}" / "checkpoints").exists()
    assert called("train", folder / "best.toml", "--out", tmp_path / "again", "--quiet").returncode == 0
    assert metrics(tmp_path / "again") == metrics(folder / "trials" / f"{best.number:03}")
    assert sum(study.importance.values()) == pytest.approx(1)


def test_hyperband_prunes(small, tmp_path):
    study = searched(small, tmp_path / "t", "training.lr=0.0,0.05", trials=6, pruner="hyperband")
    assert any(trial.state == "pruned" for trial in study.trials)
    assert study.best.settings == {"training.lr": 0.05}


def test_settings_that_diverge_are_a_failed_trial(small, tmp_path):
    study = searched(small, tmp_path / "t", "training.lr=1e30,0.05", trials=4)
    failed = [trial for trial in study.trials if trial.settings["training.lr"] == 1e30]
    assert failed
    assert all(trial.state == "failed" and "learning rate" in trial.error for trial in failed)
    assert study.best.settings == {"training.lr": 0.05}
    with pytest.raises(lmc.RunError, match=r"none of its 1 trials could be trained; .*learning rate"):
        searched(small, tmp_path / "u", "training.lr=1e30,1e31", trials=1)


# -- the command and its page ----------------------------------------------------------------------


def flags(graph, out, trials):
    sizes = ["--hidden", 8, "--method", "gas", "--parts", 4, "--parts-per-batch", 2]
    search = ["--search", "training.lr=log:1e-3:1e-1", "--search", "model.norm=none,batch"]
    return ["--data", graph, *sizes, "--epochs", EPOCHS, *search, "--trials", trials, "--out", out]


def test_from_the_command_to_the_page(small, tmp_path):
    done = called("tune", *flags(small, tmp_path / "t", 5), "--pruner", "none")
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[:5]] == [
        f"trial {n}/5" for n in range(1, 6)
    ]
    assert f"lmc train {tmp_path / 't' / 'best.toml'}" in done.stdout
    study = read_study(tmp_path / "t")
    assert called("report", tmp_path / "t", "--out", tmp_path / "page.html").returncode == 0
    text = (tmp_path / "page.html").read_text()
    assert text == (tmp_path / "t" / "report.html").read_text()
    page = Page(text)
    settings, trials = page.rows(0), page.rows(1)
    assert [row[0] for row in settings[1:]] == ["training.lr", "model.norm"]
    assert settings[2][2] == study.best.settings["model.norm"]
    assert len(trials) == 6
    assert trials[1][:3] == [str(study.best.number), "finished", f"{study.best.val:.4f}"]
    assert all(trial.state == "finished" for trial in study.trials)
    assert len(page.titles) == 3 * 5  # over trials, over both settings
    again = called("tune", *flags(small, tmp_path / "t", 5), "--pruner", "none")
    assert (again.returncode, read_study(tmp_path / "t")) == (0, study)  # nothing is left to do
    other = [*flags(small, tmp_path / "t", 5), "--search", "model.layers=1:2"]
    assert "holds a search with other settings" in fails(2, "tune", *other, through=called)


def test_a_search_without_optuna_is_one_line(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    line = fails(2, "tune", *flags(small, tmp_path / "t", 2), through=called)
    assert line.endswith("Optuna is not installed; pip install 'lmc[tune]'")
    assert not list(tmp_path.iterdir())


def test_a_search_that_has_found_nothing_has_a_page(tmp_path):
    space = {"training.lr": "log:1e-3:1e-1", "model.norm": "none,batch"}
    trials = [
        Trial(1, "running", {}),
        Trial(2, "failed", {"training.lr": -1.0}, error="<b>&"),
        Trial(3, "finished", {"training.lr": "high", "model.norm": 10**400}, val=float("nan")),
        Trial(4, "pruned", {"training.lr": 0.01, "model.norm": "batch"}, val=0.5),
    ]
    write_study(tmp_path, Study("RMSE", False, "a", "b", "c", space, trials))
    assert called("report", tmp_path).returncode == 0
    text = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;&amp;" in text
    assert "No trial has finished yet." in Page(text).text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trials", [{"number": "one"}], r"trials[0].number='one': must be an integer"),
        ("space", {"training.lr": ""}, "must be such as"),
        ("space", {"lr": "1:2"}, "must be section.key=value"),
        ("importance", 3, "importance=3: must be a table"),
    ],
)
def test_a_study_that_no_search_wrote(tmp_path, key, value, message):
    write_study(tmp_path, Study("accuracy", True, "a", "b", "c", {}))
    file = tmp_path / "study.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    line = fails(1, "report", tmp_path, through=called)
    assert "study.json" in line
    assert message in line


@pytest.mark.process
def test_interrupted_after_a_step_and_gone_on_with(small, tmp_path):
    command = flags(small, tmp_path / "t", 2)
    command[command.index(EPOCHS)] = 1_000_000
    process = started("tune", *map(str, command))
    wait_for_epochs(tmp_path / "t" / "trials" / "001", 2, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command" in errors
    assert read_study(tmp_path / "t").trials[0].state == "running"
    assert (tmp_path / "t" / "report.html").exists()
