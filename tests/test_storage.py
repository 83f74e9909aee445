import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given

import lmc
from lmc.data import storage
from strategies import graphs

ARRAYS = ("x", "y", "train_mask", "val_mask", "test_mask")


@given(graphs())
def test_a_saved_graph_comes_back_as_it_was(tmp_path_factory, example):
    path = tmp_path_factory.mktemp("graphs") / "g"
    example.graph.save(path)
    again = lmc.Graph.open(path)
    assert again.adjacency.equal(example.graph.adjacency)
    for name in ARRAYS:
        assert torch.equal(getattr(again, name), getattr(example.graph, name))
    assert (again.task, again.num_classes) == (example.graph.task, example.graph.num_classes)


@pytest.fixture
def saved(tmp_path):
    lmc.synthetic(nodes=300).save(tmp_path / "g")
    return tmp_path / "g"


def test_a_folder_of_plain_arrays(saved):
    assert json.loads((saved / "graph.json").read_text())["task"] == "multiclass"
    names = {file.name for file in saved.iterdir()}
    assert names == {"graph.json", "indptr.npy", "indices.npy", *(f"{name}.npy" for name in ARRAYS)}
    assert np.load(saved / "x.npy", allow_pickle=False).shape == (300, 64)


def test_arrays_are_mapped_and_the_files_never_change(saved):
    before = (saved / "x.npy").read_bytes()
    graph = lmc.Graph.open(saved)
    maps = Path("/proc/self/maps")
    if maps.exists():
        for name in ("x", "indices"):
            assert str(saved / f"{name}.npy") in maps.read_text()
    graph.x[0] = 7.0
    assert (saved / "x.npy").read_bytes() == before


def test_save_replaces_a_graph_but_nothing_else(saved, tmp_path):
    lmc.synthetic(nodes=200).save(saved)
    assert lmc.Graph.open(saved).num_nodes == 200
    assert len(list(saved.iterdir())) == 8  # nothing of the first is left
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter").write_text("one")
    with pytest.raises(lmc.GraphError, match="holds 'chapter' and is not a graph folder"):
        lmc.synthetic(nodes=200).save(precious)
    assert [file.name for file in precious.iterdir()] == ["chapter"]


def test_empty_folders_and_links_are_fine_and_others_may_read(saved, tmp_path):
    (tmp_path / "empty").mkdir()
    lmc.synthetic(nodes=200).save(tmp_path / "empty")
    (tmp_path / "link").symlink_to(saved)
    lmc.synthetic(nodes=200).save(tmp_path / "link")
    assert lmc.Graph.open(saved).num_nodes == 200
    umask = os.umask(0)
    os.umask(umask)
    assert (saved / "graph.json").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_graph_may_be_saved_over_itself(saved):
    graph = lmc.Graph.open(saved)
    graph.save(saved)
    assert torch.equal(lmc.Graph.open(saved).x, graph.x)


def edit(path, arrays=None, **files):
    header = json.loads((path / "graph.json").read_text())
    header["arrays"] = arrays or header["arrays"] | files
    (path / "graph.json").write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "graph.json").unlink(), "graph.json is missing"),
        (lambda p: (p / "graph.json").write_text("{"), "cannot be read"),
        (lambda p: (p / "graph.json").write_text("[]"), "does not describe a graph folder"),
        (lambda p: (p / "x.npy").unlink(), "x.npy: cannot be read"),
        (lambda p: os.truncate(p / "x.npy", 1000), "x.npy: cannot be read"),
        (lambda p: (p / "x.npy").write_bytes(b""), "x.npy: cannot be read"),
        (
            lambda p: np.save(p / "indices.npy", np.load(p / "indices.npy") + 999),
            "node ids must be in 0..299",
        ),
        (lambda p: edit(p, arrays={"x": "../x.npy"}), "array 'indptr' is missing"),
        (lambda p: edit(p, x="../g/x.npy"), "'../g/x.npy' is not the file of array 'x'"),
        (lambda p: edit(p, x="y.npy"), "'y.npy' is not the file of array 'x'"),
        (lambda p: (p / "graph.json").write_text("[" * 100_000), "cannot be read"),
        (lambda p: np.save(p / "y.npy", np.array([{}], dtype=object)), "y.npy: cannot be read"),
    ],
)
def test_a_damaged_folder_is_one_line(saved, damage, message):
    damage(saved)
    with pytest.raises(lmc.LMCError) as caught:
        lmc.Graph.open(saved)
    assert message in str(caught.value)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_newer_version_is_refused(saved):
    header = json.loads((saved / "graph.json").read_text())
    (saved / "graph.json").write_text(json.dumps(header | {"version": 99}))
    with pytest.raises(lmc.GraphError, match="version 99"):
        lmc.Graph.open(saved)


KILLED = """
import os, sys, lmc
from pathlib import Path

graph, moments = lmc.synthetic(nodes=200), 0


def deadly(operation, moment):
    def wrapped(*arguments, **options):
        global moments
        moments += 1
        if moments == moment:
            os.kill(os.getpid(), 9)
        return operation(*arguments, **options)

    return wrapped


for moment in range(1, 40):
    child = os.fork()
    if child == 0:
        Path.mkdir, Path.unlink = deadly(Path.mkdir, moment), deadly(Path.unlink, moment)
        os.fsync, os.replace = deadly(os.fsync, moment), deadly(os.replace, moment)
        graph.save(Path(sys.argv[1]) / str(moment))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.posix
@pytest.mark.process
@pytest.mark.parametrize("replaces", [False, True])
def test_a_killed_save_leaves_the_graph_before_or_none(tmp_path, replaces):
    """Killed before every write, rename and removal of a save, one after the other."""
    paths = [tmp_path / str(moment) for moment in range(1, 40)]
    if replaces:
        for path in paths:
            lmc.synthetic(nodes=100).save(path)
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True)
    codes = [int(line) for line in done.stdout.split()]
    finished = codes.index(0)
    assert codes == [-signal.SIGKILL] * finished + [0] * (39 - finished), done.stderr
    found = []
    for path in paths[: finished + 1]:
        try:
            found.append(lmc.Graph.open(path).num_nodes)
        except lmc.GraphError:
            found.append(None)
        lmc.synthetic(nodes=150).save(path)  # what is left is not in the way of the next save
        assert lmc.Graph.open(path).num_nodes == 150
        assert len(list(path.glob("*.npy"))) == 7
    switch = found.index(200)
    assert found == [100 if replaces else None] * switch + [200] * (finished + 1 - switch)
    assert switch >= 8  # seven arrays and the header come before


def test_arrays_of_other_programs_are_left_alone(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    for write in (
        lambda: lmc.synthetic(nodes=50).save(tmp_path),
        lambda: lmc.import_edges(tmp_path / "edges.csv", tmp_path, 3, tmp_path),
        lambda: lmc.prepare(lmc.synthetic(nodes=50), tmp_path, parts=2),
    ):
        with pytest.raises(lmc.GraphError, match=r"holds 'edges.csv' and is n.*; nothing was written"):
            write()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["edges.csv", "x.npy"]
    assert np.load(tmp_path / "x.npy").tolist() == [0, 1, 2]


def test_what_a_killed_save_has_left_is_replaced(tmp_path, monkeypatch):
    def fails(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_atomically", fails)
        with pytest.raises(KeyboardInterrupt):
            lmc.synthetic(nodes=50).save(tmp_path / "g")
    assert (tmp_path / "g" / "x.npy").exists()
    lmc.synthetic(nodes=60).save(tmp_path / "g")
    assert lmc.Graph.open(tmp_path / "g").num_nodes == 60
    assert not [file.name for file in (tmp_path / "g").iterdir() if "unfinished" in file.name]
