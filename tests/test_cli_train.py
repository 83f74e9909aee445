"""`lmc train`: from a graph to a run folder, interrupted, killed, resumed, and called in wrong ways."""

import json
import random
import signal
import subprocess
import time

import pytest
import torch

import lmc
from commands import (
    COMMAND,
    ENDLESS,
    arguments,
    best_weights,
    called,
    complaints,
    fails,
    last_weights,
    metrics,
    run,
    started,
    wait_for_epochs,
    written_epochs,
)
from lmc.runs import checkpoint
from lmc.runs.folder import RunFolder
from lmc.runs.registry import METHODS


@pytest.mark.process
def test_a_run_and_its_folder(small, tmp_path):
    done = run("train", *arguments(small), "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "epoch 10/10" in done.stdout
    assert f"lmc report {tmp_path / 'a'}" in done.stdout
    records = metrics(tmp_path / "a")
    assert [record["epoch"] for record in records] == list(range(1, 11))
    assert records[-1]["loss"] < records[0]["loss"]
    config = (tmp_path / "a" / "config.toml").read_text()
    assert 'name = "lmc"' in config
    assert "parts_per_batch = 2" in config
    environment = json.loads((tmp_path / "a" / "environment.json").read_text())
    assert environment["torch"] == torch.__version__
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["best"]["val"] == max(record["val"] for record in records)
    assert summary["wall_seconds"] > summary["seconds"]
    assert f"{summary['seconds']:.1f} s of training, {summary['wall_seconds']:.1f} s in all" in done.stdout
    assert done.stdout.startswith(f"loading {small} ... ")
    graph = lmc.Graph.open(small)
    assert sum(map(sum, summary["confusion"]["counts"])) == int(graph.test_mask.sum())
    hits = sum(row[place] for place, row in enumerate(summary["confusion"]["counts"]))
    assert hits / int(graph.test_mask.sum()) == pytest.approx(summary["best"]["test"])
    assert len(list((tmp_path / "a" / "checkpoints").iterdir())) == 2


@pytest.mark.process
def test_a_config_file_repeats_a_run_and_flags_override_it(small, tmp_path):
    assert called("train", *arguments(small, epochs=3), "--out", tmp_path / "a").returncode == 0
    again = run("train", tmp_path / "a" / "config.toml", "--out", tmp_path / "b", "--quiet")
    assert again.returncode == 0, again.stderr
    assert again.stdout == ""
    assert metrics(tmp_path / "b") == metrics(tmp_path / "a")
    assert best_weights(tmp_path / "b") == best_weights(tmp_path / "a")
    longer = called("train", tmp_path / "a" / "config.toml", "--epochs", 4, "--out", tmp_path / "c", "--json")
    assert [json.loads(line)["epoch"] for line in longer.stdout.splitlines()] == [1, 2, 3, 4]


def test_a_preset_fills_in_the_rest(small, tmp_path):
    done = called(
        "train",
        "--preset",
        "gcn-arxiv",
        "--data",
        small,
        "--hidden",
        8,
        "--epochs",
        1,
        "--out",
        tmp_path / "a",
    )
    assert done.returncode == 0, done.stderr
    config = (tmp_path / "a" / "config.toml").read_text()
    assert "parts = 80" in config
    assert "layers = 3" in config
    assert "hidden = 8" in config


def test_defaults_are_enough_to_train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = called("train", "--epochs", 2)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "synthetic-gcn-lmc" / "best.safetensors").exists()
    assert done.stdout.startswith("no --data: the embedded graph, synthetic, is taken\n")


LONG = [method for method in METHODS if method != "lmc"]


@pytest.mark.posix
@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "times"),
    [("lmc", 1), *(pytest.param(method, 2, marks=pytest.mark.long) for method in LONG)],
)
def test_killed_and_resumed_is_the_same_to_the_byte(small, tmp_path, method, times):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    chance = random.Random(method)
    begin = [*arguments(small, method, ENDLESS), "--out", killed]
    for _ in range(times):
        process = started("train", *begin, "--quiet")
        wait_for_epochs(killed, 2, process)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        begin = ["--resume", killed]
    check_resumed_is_straight(killed, straight, arguments(small, method))


def check_resumed_is_straight(stopped, straight, options):
    """A run that goes on to an end is the same, to the byte, as one that was never stopped."""
    epochs = written_epochs(stopped) + 3
    done = called("train", "--resume", stopped, "--epochs", epochs, "--quiet")
    assert done.returncode == 0, done.stderr
    assert called("train", *options, "--epochs", epochs, "--out", straight, "--quiet").returncode == 0
    assert metrics(stopped) == metrics(straight)
    assert best_weights(stopped) == best_weights(straight)
    assert last_weights(stopped) == last_weights(straight)


@pytest.mark.posix
@pytest.mark.process
def test_interrupted_after_a_step_and_resumed(small, tmp_path):
    stopped = tmp_path / "stopped"
    begin = [*arguments(small, epochs=ENDLESS), "--out", stopped]
    for number in (signal.SIGINT, signal.SIGTERM):
        process = started("train", *begin)
        wait_for_epochs(stopped, 2, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + number, errors
        word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
        assert errors.splitlines()[-1] == f"lmc: {word}; `lmc train --resume {stopped}` goes on"
        assert json.loads((stopped / "summary.json").read_text())["stopped"] == "interrupted"
        begin = ["--resume", stopped]
    check_resumed_is_straight(stopped, tmp_path / "straight", arguments(small))


@pytest.fixture
def _interrupted_at_once(monkeypatch):
    """Every run is interrupted before its first step."""
    on_start = RunFolder.on_start

    def interrupted(self, training):
        on_start(self, training)
        training.stop("interrupted")

    monkeypatch.setattr(RunFolder, "on_start", interrupted)


@pytest.mark.usefixtures("_interrupted_at_once")
@pytest.mark.parametrize("live", [False, True])
def test_interrupted_before_the_first_step(small, tmp_path, monkeypatch, live):
    """One line, and nothing about a training that has not begun; the run goes on from there."""
    with monkeypatch.context() as patch:
        if live:
            patch.setattr("rich.console.Console.is_terminal", True)
        done = called("train", *arguments(small, epochs=2), "--out", tmp_path / "a")
    assert done.returncode == 130
    assert complaints(done) == [f"lmc: interrupted; `lmc train --resume {tmp_path / 'a'}` goes on"]
    assert "of training" not in done.stdout
    assert done.stdout.endswith("\x1b[1A\x1b[2K" if live else " s\n")  # the line that moves is taken away
    monkeypatch.undo()
    assert called("train", "--resume", tmp_path / "a", "--quiet").returncode == 0
    assert len(metrics(tmp_path / "a")) == 2


@pytest.mark.usefixtures("_interrupted_at_once")
@pytest.mark.parametrize(
    ("command", "flags", "goes_on"),
    [
        ("train", ["--seeds", 2], "the same command with --out {} goes on"),
        ("compare", [], "`lmc compare --resume {}` goes on"),
    ],
)
def test_several_runs_that_are_interrupted_end_alike(small, tmp_path, command, flags, goes_on):
    begin = ["--data", small, "--parts", 4, "--hidden", 4, "--epochs", 2]
    line = fails(130, command, *begin, *flags, "--out", tmp_path / "a", through=called)
    assert line == f"lmc: interrupted; {goes_on.format(tmp_path / 'a')}"


def test_an_early_stop_is_still_one_after_a_resume(small, tmp_path):
    options = ["--lr", 0, "--patience", 2, "--out", tmp_path / "a", "--quiet"]
    assert called("train", *arguments(small), *options).returncode == 0
    before = metrics(tmp_path / "a")
    assert len(before) == 3
    assert called("train", "--resume", tmp_path / "a", "--quiet").returncode == 0
    assert metrics(tmp_path / "a") == before
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["stopped"] == "early"


def test_a_resume_changes_the_epochs_and_nothing_else(small, tmp_path):
    options = ["--scheduler", "cosine", "--out", tmp_path / "a", "--quiet"]
    assert called("train", *arguments(small, epochs=4), *options).returncode == 0
    for wrong, message in (
        (["--lr", "0.1"], "only --epochs, "),
        (["--epochs", "9"], "cosine schedule"),
    ):
        assert message in fails(2, "train", "--resume", tmp_path / "a", *wrong, through=called)
    assert called("train", *arguments(small, epochs=4), "--out", tmp_path / "b", "--quiet").returncode == 0
    shorter = fails(2, "train", "--resume", tmp_path / "b", "--epochs", 3, through=called)
    assert "the run has 4 already" in shorter


def test_metrics_that_were_damaged_are_written_again(small, tmp_path):
    assert called("train", *arguments(small, epochs=4), "--out", tmp_path / "a", "--quiet").returncode == 0
    before = metrics(tmp_path / "a")
    file = tmp_path / "a" / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0] + "what is this\n" + "".join(lines[2:])[:-5])
    assert called("train", "--resume", tmp_path / "a", "--quiet").returncode == 0
    assert metrics(tmp_path / "a") == before


def test_a_long_epoch_is_saved_midway(small, tmp_path, monkeypatch):
    monkeypatch.setattr("lmc.runs.folder.MIDWAY_SECONDS", 0.0)
    monkeypatch.setattr("lmc.runs.folder.SAVING_SHARE", 0)
    saved = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *given: saved.append(given[1:3]) or save(*given))
    assert called("train", *arguments(small, epochs=1), "--out", tmp_path / "a", "--quiet").returncode == 0
    assert (0, 1) in saved
    assert (0, 2) in saved


def test_a_finished_run_can_be_made_longer(small, tmp_path):
    assert called("train", *arguments(small, epochs=6), "--out", tmp_path / "long", "--quiet").returncode == 0
    assert called("train", *arguments(small, epochs=3), "--out", tmp_path / "a", "--quiet").returncode == 0
    assert called("train", "--resume", tmp_path / "a", "--epochs", 6, "--quiet").returncode == 0
    # The last epoch of the shorter run was evaluated like any other.
    assert metrics(tmp_path / "a") == metrics(tmp_path / "long")


@pytest.mark.process
@pytest.mark.parametrize("damage", ["truncated", pytest.param("flipped", marks=pytest.mark.long)])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(small, tmp_path, damage):
    straight, damaged = tmp_path / "straight", tmp_path / "damaged"
    assert called("train", *arguments(small, epochs=6), "--out", straight, "--quiet").returncode == 0
    assert called("train", *arguments(small, epochs=4), "--out", damaged, "--quiet").returncode == 0
    file = sorted((damaged / "checkpoints").glob("*.safetensors"))[-1]
    raw = bytearray(file.read_bytes())
    raw = raw[: len(raw) // 2] if damage == "truncated" else raw
    raw[len(raw) // 3] ^= 4
    file.write_bytes(raw)
    done = run("train", "--resume", damaged, "--epochs", 6, "--quiet")
    assert done.returncode == 0, done.stderr
    assert "damaged" in done.stderr
    assert "the one before is used" in done.stderr
    assert metrics(damaged) == metrics(straight)
    assert last_weights(damaged) == last_weights(straight)


@pytest.mark.process
def test_two_processes_cannot_share_a_folder(small, tmp_path):
    process = started("train", *arguments(small, epochs=ENDLESS), "--out", tmp_path / "a", "--quiet")
    try:
        wait_for_epochs(tmp_path / "a", 1, process)
        assert "another process is training" in fails(1, "train", "--resume", tmp_path / "a")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.posix
def test_a_folder_that_is_taken_and_one_that_cannot_be_written(small, tmp_path):
    assert called("train", *arguments(small, epochs=1), "--out", tmp_path / "a", "--quiet").returncode == 0
    before = metrics(tmp_path / "a")
    assert "holds a run already" in fails(
        2, "train", *arguments(small), "--out", tmp_path / "a", through=called
    )
    assert metrics(tmp_path / "a") == before
    (tmp_path / "file").write_text("not a folder")
    assert "file" in fails(2, "train", *arguments(small), "--out", tmp_path / "file", through=called)
    nowhere = fails(1, "train", *arguments(small), "--out", "/proc/nowhere/a", through=called)
    assert "cannot be made" in nowhere


@pytest.mark.posix
@pytest.mark.process
def test_a_full_disk_is_one_line_and_loses_nothing(small, tmp_path):
    """A limit on the size of files stands in for the disk: the checkpoint outgrows it."""
    folder = tmp_path / "a"
    assert called("train", *arguments(small, epochs=2), "--out", folder, "--quiet").returncode == 0
    before = last_weights(folder)

    def limit():
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    command = [COMMAND, "train", "--resume", str(folder), "--epochs", "4", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "cannot be written to" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert last_weights(folder) == before
    assert called("train", "--resume", folder, "--epochs", 4, "--quiet").returncode == 0
    assert len(metrics(folder)) == 4


def test_a_loss_that_is_no_number_fails_the_run(small, tmp_path):
    options = ["--lr", "1e30", "--out", tmp_path / "a", "--quiet"]
    line = fails(1, "train", *arguments(small), *options, through=called)
    assert "epoch 1, step 2" in line
    assert "lr=1e+30" in line
    assert list((tmp_path / "a" / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--method", "lcm", "--parts", "4"], "did you mean 'lmc'"),
        (["--model", "gcm"], "did you mean 'gcn'"),
        (["--data", "synthetc"], "synthetic"),
        (["--preset", "gcn-arxv"], "did you mean 'gcn-arxiv'"),
        (["--batch-share", "1.5"], "batch_share=1.5: must be above 0 and at most 1"),
        (
            ["--parts-per-batch", "9", "--batch-share", "0.5"],
            "batch_share=0.5: parts_per_batch=9 also says how large a batch is",
        ),
        (
            ["--method", "lmc", "--parts", "4", "--parts-per-batch", "9"],
            "parts_per_batch=9: must be at most parts=4",
        ),
        (
            ["--method", "gas", "--parts", "4", "--alpha", "0.4"],
            "--alpha 0.4: gas has no such option; it is for lmc",
        ),
        (
            ["--method", "gas", "--set", "method.alpha=0.4"],
            "method gas: setting='alpha': must be one of precision",
        ),
        (["--epochs", "0"], "epochs=0: must be 1 or more"),
        (["--set", "model.theta"], "must be section.key=value"),
        (["--set", "modle.layers=2"], "did you mean 'model'"),
        (["--set", "model.layers=two"], "model.layers='two': must be an integer"),
        (["--set", "training.epochs=1.5"], "training.epochs=1.5: must be an integer"),
        (["--layers", "two"], "'two' is not a valid integer"),
        (["--resume", "nowhere"], "nowhere: no such folder"),
        (["--epoch", "3"], "No such option"),
        (["missing.toml"], "missing.toml"),
        (["--set", "data.name=3"], "data.name=3: must be a string"),
        (["--seed", "99999999999999999999"], "seed=99999999999999999999: must be at most"),
        (["--set", "training=3"], "must be section.key=value"),
        (["--dropout", "1.5"], "dropout=1.5: must be in [0, 1)"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(tmp_path, monkeypatch, wrong, message):
    monkeypatch.chdir(tmp_path)
    assert message in fails(2, "train", *wrong, through=called)
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_wrong_usage_of_the_installed_command(tmp_path):
    assert "did you mean 'lmc'" in fails(2, "train", "--method", "lcm", "--parts", "4", cwd=tmp_path)
    assert not list(tmp_path.iterdir())
