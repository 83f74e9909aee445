import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given

import lmc
from strategies import graphs

ARRAYS = ("x", "y", "train_mask", "val_mask", "test_mask")


@given(graphs())
def test_round_trip(tmp_path_factory, example):
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
    assert [file.name for file in tmp_path.iterdir()] == ["g"]
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter").write_text("one")
    with pytest.raises(lmc.GraphError, match="exists and is not a graph folder"):
        lmc.synthetic(nodes=200).save(precious)
    assert (precious / "chapter").read_text() == "one"


def test_a_graph_may_be_saved_over_itself(saved):
    graph = lmc.Graph.open(saved)
    graph.save(saved)
    assert torch.equal(lmc.Graph.open(saved).x, graph.x)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "graph.json").unlink(), "graph.json is missing"),
        (lambda p: (p / "graph.json").write_text("{"), "cannot be read"),
        (lambda p: (p / "graph.json").write_text("[]"), "does not describe a graph folder"),
        (lambda p: (p / "x.npy").unlink(), "x.npy: cannot be read"),
        (lambda p: os.truncate(p / "x.npy", 1000), "x.npy: cannot be read"),
        (lambda p: (p / "x.npy").write_bytes(b""), "x.npy: cannot be read"),
        (lambda p: np.save(p / "indices.npy", np.full(2729, 999)), "node ids must be in 0..299"),
        (lambda p: np.save(p / "y.npy", np.array([{}], dtype=object)), "y.npy: cannot be read"),
    ],
)
def test_a_damaged_folder_is_one_line(saved, damage, message):
    damage(saved)
    with pytest.raises(lmc.LMCError) as caught:
        lmc.Graph.open(saved)
    assert message in str(caught.value) or "indptr" in str(caught.value)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_newer_version_is_refused(saved):
    header = json.loads((saved / "graph.json").read_text())
    (saved / "graph.json").write_text(json.dumps(header | {"version": 99}))
    with pytest.raises(lmc.GraphError, match="version 99"):
        lmc.Graph.open(saved)


def test_a_killed_save_leaves_no_folder_that_opens(tmp_path):
    """SIGKILL at many moments: what opens afterwards is whole, whatever its name."""
    script = textwrap.dedent(
        """
        import sys, lmc
        graph = lmc.synthetic(nodes=20_000, features=256)
        print("ready", flush=True)
        sys.stdin.readline()
        graph.save(sys.argv[1])
        """
    )
    whole = lmc.synthetic(nodes=20_000, features=256)
    outcomes = set()
    for attempt, delay in enumerate([0.0, 0.004, 0.01, 0.02, 0.04, 2.0]):
        folder = tmp_path / str(attempt)
        command = [sys.executable, "-c", script, str(folder / "g")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "ready\n"
            child.stdin.write("go\n")
            child.stdin.flush()
            time.sleep(delay)
            child.send_signal(signal.SIGKILL)
        for found in folder.iterdir() if folder.exists() else []:
            try:
                graph = lmc.Graph.open(found)
            except lmc.GraphError:
                outcomes.add("refused")
                continue
            assert found.name == "g"
            assert torch.equal(graph.x, whole.x)
            outcomes.add("whole")
    assert "whole" in outcomes
