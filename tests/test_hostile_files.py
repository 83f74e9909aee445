"""Every file that is read, damaged or replaced: it still works, or one line names the file.

Nothing in a file is executed, and nothing is written outside of the run folder.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import lmc
from commands import called
from damage import cuts, flipped, npy, promising, strangers, zipped
from lmc.bench import tables

pytestmark = pytest.mark.slow

ARRAYS = ("indptr", "indices", "x", "y", "train_mask", "edge_weight", "id")
GRAPH_FILES = ["graph.json", *(f"{name}.npy" for name in ARRAYS)]
COMMANDS = {
    "inspect": lambda place, file: ("inspect", place / ("graph.npz" if file == "graph.npz" else "graph")),
    "predict": lambda place, file: (
        *("predict", place / "run", "--data", place / "graph"),
        *("--out", place / "out" / "predictions.csv"),
    ),
    "report": lambda place, file: ("report", place / "run", "--out", place / "out" / "report.html"),
    "resume": lambda place, file: ("train", "--resume", place / "run", "--epochs", 3),
}
READERS = {
    "config.toml": ["predict", "report", "resume"],
    "metrics.jsonl": ["report", "resume"],
    "summary.json": ["report"],
    "batches.json": ["resume"],
    "environment.json": ["report"],
    "best.safetensors": ["predict"],
    "state": ["resume"],
}
RUN_FILES = list(READERS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A graph as a folder and as a file, and a run on it."""
    place = tmp_path_factory.mktemp("whole")
    graph = lmc.synthetic(nodes=60, features=4, classes=3)
    data = graph.to_pyg()
    data.edge_weight = 0.5 + np.arange(data.edge_index.shape[1]) % 2
    data.id = [f"node {i}" for i in range(60)]
    graph = lmc.Graph.from_pyg(data)
    graph.save(place / "graph")
    arrays = {name: np.load(place / "graph" / f"{name}.npy") for name in (*ARRAYS, "val_mask", "test_mask")}
    np.savez_compressed(place / "graph.npz", **arrays)
    done = called(
        "train",
        *("--data", place / "graph", "--out", place / "run", "--parts", 4, "--hidden", 4, "--epochs", 2),
    )
    assert done.returncode == 0, done.stderr
    for extra in sorted((place / "run" / "checkpoints").iterdir())[:-1]:
        extra.unlink()
    return place


@pytest.fixture
def place(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "place"))


def checkpoint_in(place):
    return next((place / "run" / "checkpoints").glob("*.safetensors"))


def replace(place, file, content):
    """Put content in the place of a file; a checkpoint gets the checksum of what it holds now."""
    path = path_of(place, file)
    if file == "state":
        path.unlink()
        checksum = hashlib.blake2b(content, digest_size=16).hexdigest()
        path = path.with_name(f"{path.name.split('.')[0]}.{checksum}.safetensors")
    path.write_bytes(content)


def path_of(place, file):
    if file == "state":
        return checkpoint_in(place)
    folder = {"graph.npz": place}.get(file, place / ("graph" if file in GRAPH_FILES else "run"))
    return folder / file


def listing(place):
    """All that exists outside of the run folder and the output."""
    inside = {place / "run", place / "out"}
    return {p for p in place.parent.rglob("*") if not inside & {p, *p.parents}}


def survive(place, file):
    """Read the file in every way there is; each works, or is one line that names a file of ours."""
    before = listing(place)
    (place / "out").mkdir(exist_ok=True)
    for command in READERS.get(file, ["inspect"]):
        done = called(*COMMANDS[command](place, file))
        assert done.returncode in (0, 1, 2)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("lmc: warning")]
        if done.returncode:
            assert len(lines) == 1, done.stderr
            assert lines[0].startswith("lmc: "), done.stderr
            assert len(lines[0]) < 2000
            lost = re.match(r"lmc: epoch \d+, step \d+: ", lines[0])  # by values that no rule forbids
            assert lost or str(place) in lines[0], lines[0]
    assert listing(place) == before


@pytest.mark.parametrize("file", [*GRAPH_FILES, "graph.npz", *RUN_FILES])
def test_a_file_that_was_cut(place, file):
    raw = path_of(place, file).read_bytes()
    for content in cuts(raw).values():
        replace(place, file, content)
        survive(place, file)


@pytest.mark.slow
@pytest.mark.parametrize("file", [*GRAPH_FILES, "graph.npz", *RUN_FILES])
def test_a_file_of_another_kind(place, file):
    mark = place / "out" / "executed"
    others = {
        f"the {name}": path_of(place, name).read_bytes()
        for name in ("graph.json", "x.npy", "graph.npz", *RUN_FILES)
    }
    for content in (strangers(mark) | others).values():
        replace(place, file, content)
        survive(place, file)
        assert not mark.exists()


@pytest.mark.fuzz
@given(
    st.sampled_from([*GRAPH_FILES, "graph.npz", *RUN_FILES]),
    st.integers(0, 2**32),
    st.sampled_from([1, 3, 30]),
)
def test_a_file_with_turned_bits(whole, file, seed, count):
    with tempfile.TemporaryDirectory() as folder:
        place = Path(shutil.copytree(whole, Path(folder) / "place"))
        replace(place, file, flipped(path_of(place, file).read_bytes(), seed, count))
        survive(place, file)


# -- archives ------------------------------------------------------------------------------------


def fails_to_load(path, *words):
    with pytest.raises(lmc.LMCError) as raised:
        lmc.load(path)
    text = str(raised.value)
    assert len(text.splitlines()) == 1
    assert str(path) in text
    assert all(word in text for word in words), text


def test_an_archive_that_unpacks_to_far_more_than_it_is(place, monkeypatch):
    bomb = place / "bomb.npz"
    zeros = npy(np.zeros(8 << 20, dtype=np.int8))
    bomb.write_bytes(zipped(indptr=zeros, indices=zeros, y=zeros))
    monkeypatch.setattr("lmc.data.datasets.MOST_UNPACKED", 1 << 20)
    fails_to_load(bomb, "GB unpacked, 200 times its size or more")


def test_an_archive_that_does_not_fit_into_memory_is_one_line(place, monkeypatch):
    monkeypatch.setattr("lmc.memory_use.free", lambda: 1000)
    fails_to_load(place / "graph.npz", "unpacked", "are free")


def test_sparse_features_that_do_not_fit_into_memory_are_one_line(place):
    arrays = dict(np.load(place / "graph.npz"))
    del arrays["x"]
    arrays |= {"x_indptr": np.zeros(61), "x_indices": [], "x_data": [], "x_shape": [60, 2**40]}
    np.savez(place / "wide.npz", **arrays)
    fails_to_load(place / "wide.npz", "x_shape = [60, 1099511627776]")


def test_members_that_promise_more_than_there_is(place):
    whole = dict(np.load(place / "graph.npz"))
    for name in whole:
        members = {other: npy(array) for other, array in whole.items()} | {name: promising((2**38,))}
        (place / "promise.npz").write_bytes(zipped(**members))
        fails_to_load(place / "promise.npz")


# -- names and links -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../graph.npz", "/etc/passwd", "x.npy/../../x.npy", "..", "y.npy", 3, None])
def test_a_header_cannot_name_other_files(place, name):
    header = json.loads((place / "graph" / "graph.json").read_text())
    header["arrays"]["x"] = name
    (place / "graph" / "graph.json").write_text(json.dumps(header))
    fails_to_load(place / "graph", "is not the file of array 'x'")


@pytest.mark.posix
@pytest.mark.parametrize("file", ["lock", "checkpoints", *RUN_FILES[:5]])
def test_nothing_is_written_through_a_link(place, file):
    inside, outside = place / "run" / file, place / "elsewhere"
    inside.rename(outside)
    inside.symlink_to(outside)
    before = {p: p.read_bytes() for p in [outside, *outside.rglob("*")] if p.is_file()}
    done = called("train", "--resume", place / "run", "--epochs", 3)
    assert done.returncode == 1
    assert done.stderr == f"lmc: {inside}: a symbolic link; a run writes none\n"
    assert {p: p.read_bytes() for p in [outside, *outside.rglob("*")] if p.is_file()} == before


@pytest.mark.posix
def test_a_link_to_a_graph_is_followed(place):
    (place / "link").symlink_to(place / "graph")
    (place / "graph" / "x.npy").rename(place / "kept.npy")
    (place / "graph" / "x.npy").symlink_to(place / "kept.npy")
    assert lmc.load(place / "link").num_nodes == 60


@pytest.mark.posix
def test_a_link_that_leads_to_itself_is_one_line(place):
    (place / "graph" / "x.npy").unlink()
    (place / "graph" / "x.npy").symlink_to("x.npy")
    fails_to_load(place / "graph", "x.npy: cannot be read")


@pytest.mark.posix
@pytest.mark.parametrize("file", ["graph/graph.json", "graph/x.npy", "run/config.toml", "run/metrics.jsonl"])
def test_a_pipe_does_not_hang(place, file):
    (place / file).unlink()
    os.mkfifo(place / file)
    name = Path(file).name
    survive(place, name)
    if name in GRAPH_FILES:
        fails_to_load(place / "graph")


def test_a_text_is_not_read_without_a_limit(place, monkeypatch):
    monkeypatch.setattr("lmc.files.LARGEST_TEXT", 100)
    fails_to_load(place / "graph", "graph.json: cannot be read (larger than")
    done = called("report", place / "run", "--out", place / "r.html")
    assert done.returncode == 2
    assert "config.toml: not a TOML file that can be read (larger than" in done.stderr


def test_a_folder_in_the_place_of_a_file(place):
    for file in (*GRAPH_FILES, "graph.npz", *RUN_FILES):
        path = path_of(place, file)
        path.rename(path.with_name("away"))
        path.mkdir()
        survive(place, file)
        path.rmdir()
        path.with_name("away").rename(path)


@pytest.mark.posix
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(place):
    for file in (*GRAPH_FILES, "graph.npz", *RUN_FILES):
        path_of(place, file).chmod(0)
        survive(place, file)
        path_of(place, file).chmod(0o600)


def test_an_earlier_bench_of_another_kind_is_one_line(place):
    file = place / "bench.json"
    for content in strangers(place / "mark").values():
        file.write_bytes(content)
        with pytest.raises(lmc.ArgumentError, match=r"bench\.json: not the numbers of a bench"):
            tables.earlier(file)


# -- the cache of partitions ---------------------------------------------------------------------


@pytest.mark.posix
def test_a_damaged_partition_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("LMC_CACHE", str(tmp_path / "cache"))
    graph = lmc.synthetic(nodes=60)
    right = lmc.partition(graph, 4)
    (file,) = (tmp_path / "cache" / "partitions").iterdir()
    raw = file.read_bytes()
    others = {
        "beyond": npy(np.full(60, 2**31 - 1)),
        "negative": npy(np.full(60, -1)),
        "gaps": npy(np.arange(60) * 2),
    }
    for name, content in {**cuts(raw), **strangers(tmp_path / "mark"), **others}.items():
        file.write_bytes(content)
        assert lmc.partition(graph, 4).equal(right), name
        assert file.read_bytes() == raw, name
    assert not (tmp_path / "mark").exists()
    file.unlink()
    os.mkfifo(file)
    assert lmc.partition(graph, 4).equal(right)


# -- a checkpoint and weights from a stranger ------------------------------------------------------


def leaves(tree, path=()):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from leaves(value, (*path, key))


OTHER = st.sampled_from(
    [None, True, -1, 2**70, 1e308, float("nan"), "text", [], {}, [[[]]], {"$tensor": "no"}]
)


def rewritten(file, key, change):
    """The file with its JSON changed; tensors stay."""
    with safe_open(file, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        tree = json.loads(opened.metadata()[key])
    change(tree)
    with tempfile.TemporaryDirectory() as folder:
        save_file(tensors, Path(folder) / "a", {key: json.dumps(tree)})
        return (Path(folder) / "a").read_bytes()


@pytest.mark.fuzz
@pytest.mark.parametrize(("file", "key"), [("state", "state"), ("best.safetensors", "about")])
@given(data=st.data())
def test_a_stranger_changes_a_value(whole, file, key, data):
    with tempfile.TemporaryDirectory() as folder:
        place = Path(shutil.copytree(whole, Path(folder) / "place"))

        def change(tree):
            for _ in range(data.draw(st.integers(1, 2))):
                *way, last = data.draw(st.sampled_from(list(leaves(tree))))
                inner = reduce(getitem, way, tree)
                inner[last] = deepcopy(data.draw(OTHER))

        replace(place, file, rewritten(path_of(place, file), key, change))
        survive(place, file)


@pytest.mark.parametrize(
    "sizes", [{"hidden": 2**40}, {"hidden": 2**62}, {"layers": 10**9}, {"hidden": 3000, "layers": 20}]
)
def test_weights_that_promise_a_larger_model(place, sizes):
    def change(about):
        about["config"]["model"] |= sizes
        del about["$checksum"]  # who promises it can leave that out

    replace(place, "best.safetensors", rewritten(place / "run" / "best.safetensors", "about", change))
    done = called("predict", place / "run", "--data", place / "graph", "--out", place / "p.csv")
    assert done.returncode == 1
    assert "best.safetensors: not the weights of its run" in done.stderr
