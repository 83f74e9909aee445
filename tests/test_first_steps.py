"""What people new to the command line stumbled over, each in one line or not at all."""

import subprocess

import click
import numpy as np
import pytest

import lmc
from commands import COMMAND, called, fails
from lmc.cli.paths import made_folder

SMALL = ("--data", "synthetic", "--epochs", "1", "--hidden", "4", "--quiet")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def wrong(*arguments):
    return fails(2, *arguments, through=called)


@pytest.mark.process
def test_runs_that_begin_together_have_folders_of_their_own(tmp_path):
    runs = [subprocess.Popen([COMMAND, "train", *SMALL], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [run.communicate(timeout=300)[1] for run in runs]
    assert [run.returncode for run in runs] == [0] * 3, said
    names = {folder.name for folder in (tmp_path / "runs").iterdir()}
    assert names == {"synthetic-gcn-lmc", "synthetic-gcn-lmc-2", "synthetic-gcn-lmc-3"}


def test_a_folder_in_which_nothing_was_written_goes(tmp_path):
    with click.Context(click.Command("train")):
        assert made_folder(None, "a").is_dir()
    assert not (tmp_path / "runs").exists()


def test_a_module_that_ends_the_process_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(5)\n")
    (tmp_path / "ends_later.py").write_text("import sys\ndef make(i, o):\n    sys.exit(5)\n")
    assert "model 'ends:make': cannot be imported (SystemExit: 5" in wrong("train", "--model", "ends:make")
    line = wrong("train", "--data", "synthetic", "--model", "ends_later:make", "--out", "a")
    assert "model 'ends_later:make': raised SystemExit: 5" in line


def test_a_null_character_finds_no_node(tmp_path):
    done = called("train", *SMALL, "--out", "a")
    assert done.returncode == 0, done.stderr
    (tmp_path / "ids").write_bytes(b"1\0\n")
    assert wrong("predict", "a", "--nodes", "ids") == r"lmc: ids: ids[0] = '1\x00': holds a null character"
    with pytest.raises(lmc.GraphError, match=r"ids\[1\] = 'b\\x00': holds a null character"):
        lmc.Graph([[0], [1]], id=["a", "b\0"])


def test_a_root_that_is_no_folder_is_named(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    graph = lmc.synthetic(nodes=50)
    graph.save(tmp_path / "here" / "mine")
    monkeypatch.setenv("LMC_DATA", str(tmp_path / "here"))
    assert lmc.load("mine").num_nodes == 50
    with pytest.raises(lmc.DatasetError, match="root='nosuch': is no folder; without it, mine is found"):
        lmc.load("mine", "nosuch")


def test_processes_that_cannot_share_a_run_are_one_line():
    line = wrong("train", "--data", "synthetic", "--shards", "2", "--processes", "3")
    assert line == "lmc: shards=2: 3 processes cannot share them; shards must be a multiple of 3"
    assert "--max-restarts 1: is of --processes" in wrong("train", "--max-restarts", "1")


@pytest.mark.parametrize("clip", ["-1", "0"])
def test_the_rule_of_clipping_is_the_same_for_every_value(clip):
    assert f"clip={clip}: must be above 0;" in wrong("train", "--data", "synthetic", "--clip", clip)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[training]\nepochs = "3"', "own.toml: training.epochs='3': must be an integer"),
        ("[foo]\na = 1", "own.toml: section='foo': must be one of data, model, method, training"),
    ],
)
def test_a_mistake_in_a_file_of_settings_names_the_file_and_nothing_else_is_said(tmp_path, text, line):
    (tmp_path / "own.toml").write_text(text)
    done = called("train", "own.toml")
    assert (done.stdout, done.stderr.strip(), done.returncode) == ("", f"lmc: {line}", 2)


def test_a_wrong_flag_does_not_blame_the_file(tmp_path):
    (tmp_path / "own.toml").write_text("[training]\nepochs = 3\n")
    assert "own.toml" not in wrong("train", "own.toml", "--set", "training.seed='a'")


def test_nothing_is_said_before_wrong_methods():
    assert called("compare", "--methods", "gas,foo").stdout == ""


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_is_none_is_told_by_its_flag(name):
    line = wrong("train", "--data", name)
    assert line == f"lmc: --data {name!r}: must be the name or the path of a graph"


def test_a_graph_without_labels_is_named(tmp_path):
    lmc.Graph([[0, 1, 2], [1, 2, 0]], [[1.0], [2.0], [3.0]]).save(tmp_path / "bare")
    assert "bare: the graph has no labels" in wrong("train", "--data", "./bare")


def test_a_graph_that_is_imported_computes_in_one_type(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target,weight\n0,1,0.5\n1,0,2\n")
    graph = lmc.read_tables(tmp_path / "edges.csv")
    assert (str(graph.to_pyg().edge_weight.dtype), graph.edge_weight.tolist()) == ("torch.float32", [2, 0.5])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            b'id,a\n0,"1,5"\n1,2\n',
            "row 1 '1,5', with a decimal comma: must be numbers, with a decimal point",
        ),
        (b"id,n\xe9\n0,1\n1,2\n", "; save it as UTF-8"),
    ],
)
def test_a_table_as_offices_write_them_is_told_what_to_become(tmp_path, text, told):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    (tmp_path / "x.csv").write_bytes(text)
    assert wrong("import", "edges.csv", "--features", "x.csv", "--out", "g").endswith(told)


def test_a_part_of_a_node_is_none(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    line = wrong("import", "edges.csv", "--nodes", "3.7", "--out", "g")
    assert line.endswith("3.7: must be a whole number, such as 10000 or 10e6")


def test_a_column_of_ids_is_told_to_lose_its_name(tmp_path):
    done = called("train", *SMALL, "--out", "a")
    assert done.returncode == 0, done.stderr
    (tmp_path / "ids").write_text("node_id\n1\n")
    line = wrong("predict", "a", "--nodes", "ids")
    assert line.endswith("the ids of this graph are integers; a line that names the column must go")


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_loaded(tmp_path):
    (tmp_path / "file").write_text("")
    for command in ("train", "compare"):
        done = called(command, "--data", "synthetic", "--out", "file/run")
        assert (done.returncode, "cutting" in done.stdout) == (1, False)
        assert "file/run: cannot be made (Not a directory); --out names another" in done.stderr


def test_labels_are_called_by_their_kind():
    shown = [repr(lmc.Graph([[0], [1]], y=y)) for y in ([0, 1], [[0.0, 1.0], [1.0, 1.0]], [0.5, 1.5])]
    assert ["2 classes" in shown[0], "2 labels" in shown[1], "1 target" in shown[2]] == [True] * 3


@pytest.mark.parametrize(
    ("command", "flags", "theirs"),
    [
        ("train", (), "best.safetensors"),
        ("train", (), "batches.json"),
        ("train", ("--seeds", "2"), "seeds.json"),
        ("train", ("--seeds", "2"), "report.html"),
        ("compare", ("--methods", "gd"), "comparison.json"),
        ("compare", ("--methods", "gd"), "report.html"),
        ("tune", ("--trials", "1"), "best.toml"),
    ],
)
def test_files_of_others_are_not_replaced(tmp_path, command, flags, theirs):
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / theirs).write_text("mine")
    line = wrong(command, *SMALL, *flags, "--out", "keep")
    assert f"keep: holds {theirs!r}, which" in line
    assert [file.name for file in (tmp_path / "keep").iterdir()] == [theirs]
    assert (tmp_path / "keep" / theirs).read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "flags"),
    [("train", ("--seeds", "2")), ("compare", ("--methods", "gd")), ("tune", ("--trials", "1"))],
)
def test_the_folder_of_a_run_takes_no_others(tmp_path, command, flags):
    done = called("train", *SMALL, "--out", "a")
    assert done.returncode == 0, done.stderr
    before = sorted(tmp_path.rglob("*"))
    assert wrong(command, *SMALL, *flags, "--out", "a") == "lmc: a: holds a run; choose another folder"
    assert sorted(tmp_path.rglob("*")) == before


def test_predictions_do_not_replace_what_they_are_made_of(tmp_path):
    graph = lmc.synthetic(nodes=60, features=3)
    edges = {name: getattr(graph.adjacency, name) for name in ("indptr", "indices")}
    arrays = edges | {"x": graph.x, "y": graph.y}
    np.savez(tmp_path / "mine.npz", **{name: array.numpy() for name, array in arrays.items()})
    small = ("--data", "mine.npz", *SMALL[2:])
    done = called("train", *small, "--out", "a")
    assert done.returncode == 0, done.stderr
    (tmp_path / "ids.csv").write_bytes(b"\xef\xbb\xbf1\n")
    for flags in (("--data", "mine.npz"), (), ("--data", "mine")):
        line = wrong("predict", "a", *flags, "--out", "./mine.npz")
        assert line == "lmc: --out mine.npz: is read for this; choose another file"
    line = wrong("predict", "a", "--nodes", "ids.csv", "--out", "ids.csv")
    assert line == "lmc: --out ids.csv: is read for this; choose another file"
    done = called("predict", "a", "--nodes", "ids.csv", "--out", "one.csv")
    assert (done.returncode, done.stdout) == (0, "one.csv: 1 node\n")


def test_a_page_is_called_like_one(tmp_path):
    (tmp_path / "table.csv").write_text("mine")
    line = wrong("report", "a", "--out", "table.csv")
    assert line == "lmc: --out table.csv: is a page; its name must end in .html"


def test_one_table_of_features_labels_and_splits(tmp_path):
    """A label among the features would be predicted perfectly, and nothing learned."""
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n2,3\n3,1\n")
    (tmp_path / "nodes.csv").write_text("id,a,label,split\n1,0.3,0,train\n2,0.1,1,val\n3,0.2,0,train\n")
    tables = [tmp_path / "edges.csv", *[tmp_path / "nodes.csv"] * 3]
    with pytest.warns(UserWarning, match="'label', 'split', read as label or split, is no feature") as caught:
        graph = lmc.read_tables(*tables)
    assert len(caught) == 1
    assert (graph.feature_names, graph.y.tolist(), int(graph.train_mask.sum())) == (("a",), [0, 1, 0], 2)
    (tmp_path / "nodes.csv").write_text("id,a,b\n1,0.3,0\n2,0.1,1\n3,0.2,0\n")
    with pytest.raises(
        lmc.DatasetError, match="holds features and labels; one of its columns must be called label"
    ):
        lmc.read_tables(*tables[:3])


def test_a_quote_that_is_not_closed_is_named(tmp_path):
    (tmp_path / "edges.csv").write_text('source,target\n1,2\n2,"3\n3,1\n4,1\n')
    line = wrong("import", "edges.csv", "--out", "g")
    assert (
        line == "lmc: edges.csv: column 'target' row 2 goes on in the next line: a quote is not closed there"
    )
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    (tmp_path / "labels.csv").write_text('id,label\n1,"a\n2,b\n')
    line = wrong("import", "edges.csv", "--labels", "labels.csv", "--out", "g")
    assert "labels.csv: column 'label' row 1 goes on in the next line" in line


def test_arrays_that_are_not_there_and_those_that_nobody_reads_are_named(tmp_path):
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    few = ("import", "edges.csv", "--nodes", "3", "--out", "g")
    assert wrong(*few, "--arrays", "nosuch") == "lmc: nosuch: no such folder"
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "features.npy", np.ones((3, 1)))
    done = called(*few, "--arrays", "arrays")
    assert "arrays: 'features' left out; read are x, y, train_mask, val_mask, test_mask" in done.stderr


def test_weights_with_a_turned_bit_predict_nothing(tmp_path):
    done = called("train", *SMALL, "--out", "a")
    assert done.returncode == 0, done.stderr
    content = bytearray((tmp_path / "a" / "best.safetensors").read_bytes())
    content[-3] ^= 64
    (tmp_path / "a" / "best.safetensors").write_bytes(content)
    line = fails(1, "predict", "a", through=called)
    damaged = "not the weights of a run (its checksum is not that of its content)"
    assert line == f"lmc: a/best.safetensors: {damaged}"
