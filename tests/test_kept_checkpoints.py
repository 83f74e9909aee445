"""Which checkpoints a run keeps, how often it saves, and how large they are."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

import lmc
from commands import called, fails, metrics
from lmc.batching.samplers import between_clusters
from lmc.runs import checkpoint
from test_load_run import GRAPH, SIZES, fit

pytestmark = pytest.mark.slow


def sizes_of(folder):
    return [file.stat().st_size for file in sorted((folder / "checkpoints").iterdir())]


@pytest.mark.parametrize(("given", "kept"), [("none", 0), ("last", 1), ("3", 3)])
def test_so_many_checkpoints_are_kept(small, tmp_path, monkeypatch, given, kept):
    monkeypatch.setattr("lmc.runs.folder.SAVING_SHARE", 0)
    flags = ["--data", small, "--epochs", 5, "--checkpoint", given, "--out", tmp_path / "a", "--quiet"]
    assert called("train", *flags).returncode == 0
    assert len(sizes_of(tmp_path / "a")) == kept
    assert len(metrics(tmp_path / "a")) == 5
    lmc.load_run(tmp_path / "a").predict()
    longer = ["train", "--resume", tmp_path / "a", "--epochs", 6, "--quiet"]
    if kept:
        assert called(*longer).returncode == 0
    else:
        line = fails(1, *longer, through=called)
        assert 'checkpoint="none" keeps nothing to go on from' in line
        assert len(metrics(tmp_path / "a")) == 5


def test_without_checkpoints_an_interrupt_keeps_the_best_weights(tmp_path, capsys):
    class Stop(lmc.Callback):
        def on_epoch(self, training, record):
            if record.epoch == 2:
                training.stop("interrupted")

    result = fit(lmc.GCN(8, 6, 4), tmp_path / "a", checkpoint="none", epochs=5, callbacks=[Stop()])
    assert sizes_of(tmp_path / "a") == []
    assert torch.equal(lmc.load_run(tmp_path / "a").predict(GRAPH), lmc.predict(GRAPH, result.model))


def test_seconds_between_checkpoints(tmp_path, monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr("lmc.runs.folder.time.monotonic", lambda: float(next(clock)))
    saved, save = [], checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *given: saved.append(given[1:3]) or save(*given))
    fit(lmc.GCN(8, 6, 4), tmp_path / "often", checkpoint_seconds=0, epochs=3)
    often = list(saved)
    saved.clear()
    fit(lmc.GCN(8, 6, 4), tmp_path / "never", checkpoint_seconds=10**5, epochs=3)
    assert {(0, 1), (1, 0), (1, 1), (2, 0), (2, 1)} <= set(often)
    assert saved == [(0, 0), (3, 0)]  # at the beginning and at the end


def test_half_precision_halves_the_histories_of_a_checkpoint(tmp_path):
    held = {}
    for precision in ("full", "half"):
        fit(lmc.GCN(8, 64, 4), tmp_path / precision, estimator=lmc.LMC(precision=precision))
        file = sorted((tmp_path / precision / "checkpoints").iterdir())[-1]
        tensors = {name: value for name, value in load_file(file).items() if name.startswith(".estimator.")}
        held[precision] = {name: value for name, value in tensors.items() if ".embeddings" in name}
    assert held["full"].keys() == held["half"].keys() != set()
    nodes = len(between_clusters(GRAPH, lmc.partition(GRAPH, SIZES["parts"])))
    for name, value in held["half"].items():
        assert value.dtype == torch.float16
        assert held["full"][name].shape == value.shape == (nodes, value.shape[1])


def test_all_files_of_a_run_have_one_mode(tmp_path):
    fit(lmc.GCN(8, 6, 4), tmp_path / "a")
    files = [file for file in (tmp_path / "a").rglob("*") if file.is_file() and file.name != "lock"]
    assert len(files) >= 6
    assert len({file.stat().st_mode for file in files}) == 1


def test_a_run_whose_checkpoints_are_gone_is_not_begun_anew(small, tmp_path):
    """Its best weights and its metrics would be gone, too."""
    folder = tmp_path / "a"
    assert called("train", "--data", small, "--epochs", 3, "--out", folder, "--quiet").returncode == 0
    shutil.rmtree(folder / "checkpoints")
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    for epochs in (2, 5):
        line = fails(1, "train", "--resume", folder, "--epochs", epochs, "--quiet", through=called)
        lost = "has epochs behind it and no checkpoint to go on from"
        assert line == f"lmc: {folder}: {lost}; begin it anew, in another folder"
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before
