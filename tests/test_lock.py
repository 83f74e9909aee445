"""Only one at a time trains in a folder."""

import errno
import os

import pytest

import lmc
from lmc.runs.folder import RunFolder


def test_one_holds_a_folder_and_lets_it_go(tmp_path):
    for _ in range(2):
        with RunFolder(tmp_path, resume=False):
            (tmp_path / "config.toml").touch()
            in_it = f"{tmp_path}: another process is training in it"
            with pytest.raises(lmc.RunError, match=in_it), RunFolder(tmp_path, resume=True):
                pass
    assert (tmp_path / "lock").read_bytes() == b""


def test_a_folder_that_holds_a_run_is_let_go(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(lmc.ArgumentError, match="holds a run already"):
        RunFolder(tmp_path, resume=False).__enter__()
    with RunFolder(tmp_path, resume=True):
        pass


@pytest.mark.posix
@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_still_trains(tmp_path, monkeypatch, error):
    def flock(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("fcntl.flock", flock)
    with RunFolder(tmp_path, resume=False):
        pass


@pytest.mark.posix
@pytest.mark.parametrize("make", ["mkdir", "mkfifo"])
def test_a_lock_that_is_not_a_file_is_one_line(tmp_path, make):
    getattr(os, make)(tmp_path / "lock")
    with pytest.raises(lmc.RunError, match=r"cannot be written to \(not a regular file\)"):
        RunFolder(tmp_path, resume=False).__enter__()


@pytest.mark.parametrize(
    ("name", "why"), [("config.toml", "which a run would"), ("seeds.json", "several seeds")]
)
def test_a_folder_that_is_not_of_a_run_is_left_alone(tmp_path, name, why):
    (tmp_path / name).write_text("mine")
    graph = lmc.synthetic(nodes=100)
    model = lmc.GCN(graph.num_features, 4, graph.num_classes)
    with pytest.raises(lmc.ArgumentError, match=why):
        lmc.fit(graph, model, lmc.GAS(), parts=4, epochs=1, out=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"
