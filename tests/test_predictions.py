import csv
import errno
import os
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import lmc
from lmc.runs.predictions import write_predictions
from lmc.training.metrics import evaluate

TASKS = ("multiclass", "multilabel", "regression")
SUFFIXES = (".parquet", ".csv", ".npz")
TYPES = {"node": np.int64, "class": np.int64, "label": np.int8}


def read(file):
    """A table as a dictionary of columns, in the order and the types they are stored in."""
    if file.suffix == ".parquet":
        table = parquet.read_table(file)
        return {name: table[name].to_numpy() for name in table.column_names}
    if file.suffix == ".csv":
        with open(file, newline="") as opened:
            header, *rows = csv.reader(opened)
        columns = zip(*rows, strict=True)
        return {name: np.array(column) for name, column in zip(header, columns, strict=True)}
    found = {}
    with np.load(file, allow_pickle=False) as arrays:
        for name, array in arrays.items():
            if array.ndim == 2:
                prefix = "p" if name == "probabilities" else name
                found |= {f"{prefix}_{i}": array[:, i] for i in range(array.shape[1])}
            else:
                found[name] = array
    return found


def typed(name, column, floating=np.float32):
    if name == "split":
        return column.tolist()
    return column.astype(TYPES.get(name.split("_")[0], floating))


def expected(graph, prediction, task):
    """What the table must say, node by node."""
    split = []
    for i in range(graph.num_nodes):
        masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
        split.append(next((name for name, mask in masks.items() if mask[i]), "none"))
    table = {"node": np.arange(graph.num_nodes), "split": split}
    width = range(prediction.shape[1])
    if task == "multiclass":
        table["class"] = np.array([int(np.argmax(row)) for row in prediction.numpy()])
        probabilities = torch.softmax(prediction, dim=1)
    elif task == "multilabel":
        table |= {f"label_{i}": np.array([int(v > 0) for v in prediction[:, i]]) for i in width}
        probabilities = torch.sigmoid(prediction)
    else:
        return table | {f"value_{i}": prediction[:, i].numpy() for i in width}
    return table | {f"p_{i}": probabilities[:, i].float().numpy() for i in width}


def graph_of(roles):
    """As many nodes as roles: 0 train, 1 val, 2 test, 3 none."""
    role = torch.tensor(roles)
    n = len(roles)
    return lmc.Graph([[0], [n - 1]], torch.ones(n, 1), [0] * n, role == 0, role == 1, role == 2)


@st.composite
def cases(draw):
    roles = [0, *draw(st.lists(st.integers(0, 3), max_size=8))]
    size = st.floats(width=32, allow_nan=False, allow_infinity=False)
    columns = draw(st.integers(1, 4))
    row = st.lists(size, min_size=columns, max_size=columns)
    rows = draw(st.lists(row, min_size=len(roles), max_size=len(roles)))
    return graph_of(draw(st.permutations(roles))), torch.tensor(rows)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("task", TASKS)
@given(case=cases())
def test_reading_back_gives_every_number_exactly(tmp_path_factory, suffix, task, case):
    graph, prediction = case
    file = tmp_path_factory.mktemp("tables") / f"predictions{suffix}"
    write_predictions(file, graph, prediction, task)
    found, wanted = read(file), expected(graph, prediction, task)
    assert list(found) == list(wanted)
    for name, column in wanted.items():
        again = typed(name, found[name])
        np.testing.assert_array_equal(again, column)
        if name.startswith("value"):  # -0.0 is equal to 0.0
            np.testing.assert_array_equal(np.signbit(again), np.signbit(column))


@pytest.mark.parametrize("task", TASKS)
def test_columns_have_their_types(tmp_path, task):
    graph = graph_of([0, 1, 2, 3])
    kinds = {"node": "int64", "class": "int64", "label": "int8", "p": "float32", "value": "float32"}
    write_predictions(tmp_path / "a.parquet", graph, torch.randn(4, 3), task)
    for field in parquet.read_schema(tmp_path / "a.parquet"):
        wanted = {"float32": "float", "split": "string"}
        kind = kinds.get(field.name.split("_")[0], "split")
        assert str(field.type) == wanted.get(kind, kind)
    write_predictions(tmp_path / "a.npz", graph, torch.randn(4, 3), task)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["split"].dtype == "<U5"
        for name, array in arrays.items():
            if name != "split":
                assert array.dtype == kinds["p" if name == "probabilities" else name]
        names = {"multiclass": "class", "multilabel": "label", "regression": "value"}
        shapes = {"multiclass": (4,), "multilabel": (4, 3), "regression": (4, 3)}
        assert arrays[names[task]].shape == shapes[task]
        assert ("probabilities" in arrays) == (task != "regression")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_double_precision_values_stay_so_and_probabilities_do_not(tmp_path, suffix):
    graph = graph_of([0, 3, 1])
    prediction = torch.randn(3, 2, dtype=torch.float64)
    file = tmp_path / f"a{suffix}"
    write_predictions(file, graph, prediction, "regression")
    found = read(file)
    for i in range(2):
        np.testing.assert_array_equal(
            typed("value", found[f"value_{i}"], np.float64), prediction[:, i].numpy()
        )
    write_predictions(file, graph, prediction, "multiclass")
    wanted = prediction.softmax(dim=1).float().numpy()
    for i in range(2):
        np.testing.assert_array_equal(typed("p", read(file)[f"p_{i}"]), wanted[:, i])


def test_half_precision_and_tensors_that_require_a_gradient_are_written(tmp_path):
    graph, prediction = graph_of([0, 0]), torch.tensor([[1.0, 2.0], [4.0, 3.0]], requires_grad=True)
    write_predictions(tmp_path / "a.npz", graph, prediction, "multiclass")
    write_predictions(tmp_path / "b.npz", graph, prediction.half(), "multiclass")
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert a["class"].tolist() == [1, 0]
        np.testing.assert_array_equal(a["probabilities"], b["probabilities"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_predictions_are_in_the_order_of_the_graph(tmp_path, suffix):
    """The width of a prediction may be another than the graph's own classes; a path may be a string."""
    graph = lmc.synthetic(nodes=300)
    prediction = lmc.predict(graph, lmc.GCN(64, 8, 17))
    write_predictions(str(tmp_path / f"a{suffix}"), graph, prediction, "multiclass")
    found = read(tmp_path / f"a{suffix}")
    assert list(found) == ["node", "split", "class", *(f"p_{i}" for i in range(17))]
    assert typed("node", found["node"]).tolist() == list(range(300))
    assert (typed("class", found["class"]) == prediction.argmax(dim=1).numpy()).all()
    accuracy = (typed("class", found["class"]) == graph.y.numpy())[np.array(found["split"]) == "test"].mean()
    assert accuracy == pytest.approx(evaluate(graph, prediction)["test"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_tables_are_written_in_several_parts(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("lmc.runs.predictions.ROWS_AT_ONCE", 3)
    graph, prediction = graph_of([0] * 8), torch.randn(8, 2)
    write_predictions(tmp_path / f"a{suffix}", graph, prediction, "regression")
    found = read(tmp_path / f"a{suffix}")
    assert typed("node", found["node"]).tolist() == list(range(8))
    np.testing.assert_array_equal(typed("value", found["value_1"]), prediction[:, 1].numpy())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, suffix):
    graph = graph_of([0, 0])
    for value in (1.0, 2.0):
        write_predictions(tmp_path / f"a{suffix}", graph, torch.full((2, 1), value), "regression")
    assert typed("value", read(tmp_path / f"a{suffix}")["value_0"]).tolist() == [2.0, 2.0]
    assert [file.name for file in tmp_path.iterdir()] == [f"a{suffix}"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"file": "a.txt"}, "file='a.txt': must end in one of .parquet, .csv, .npz"),
        ({"file": "csv"}, "file='csv': must end in one of .parquet, .csv, .npz"),
        ({"task": "ranking"}, "task='ranking': must be one of multiclass, multilabel, regression"),
        ({"prediction": torch.ones(2)}, "prediction has shape (2,): must be (2, out), a row per node"),
        ({"prediction": torch.ones(3, 1)}, "prediction has shape (3, 1): must be (2, out), a row per node"),
        ({"prediction": torch.ones(2, 0)}, "prediction has shape (2, 0): must be (2, out), a row per node"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, monkeypatch, changed, message):
    monkeypatch.chdir(tmp_path)
    given = {"file": "a.csv", "graph": graph_of([0, 1]), "prediction": torch.ones(2, 2), "task": "multiclass"}
    with pytest.raises(lmc.ArgumentError) as error:
        write_predictions(**given | changed)
    assert str(error.value) == message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_folders_that_are_not_there_are_made(tmp_path, suffix):
    file = tmp_path / "missing" / "too" / f"a{suffix}"
    write_predictions(file, graph_of([0]), torch.ones(1, 2), "multiclass")
    assert typed("node", read(file)["node"]).tolist() == [0]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, suffix):
    (tmp_path / "file").touch()
    file = tmp_path / "file" / f"a{suffix}"
    with pytest.raises(lmc.LMCError) as error:
        write_predictions(file, graph_of([0]), torch.ones(1, 2), "multiclass")
    assert str(error.value) == f"{file}: cannot be written (File exists)"


@pytest.mark.posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(lmc.LMCError, match=r"a\.csv: cannot be written \(Permission denied\)"):
        write_predictions(tmp_path / "a.csv", graph_of([0]), torch.ones(1, 2), "multiclass")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_is_one_line_and_the_old_file_stays(tmp_path, suffix, monkeypatch):
    file = tmp_path / f"a{suffix}"
    write_predictions(file, graph_of([0]), torch.ones(1, 2), "multiclass")
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(lmc.LMCError) as error:
        write_predictions(file, graph_of([0]), torch.zeros(1, 2), "multiclass")
    assert str(error.value) == f"{file}: cannot be written (No space left on device)"
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


@pytest.mark.posix
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_disk_that_fills_up_while_writing_is_one_line(tmp_path, suffix, monkeypatch):
    """Whatever a writer makes of an error in the middle, it is an OSError."""
    partial = tmp_path / "partial"
    partial.symlink_to("/dev/full")
    monkeypatch.setattr("pathlib.Path.with_name", lambda self, name: partial)
    graph, prediction = graph_of([0] * 20_000), torch.randn(20_000, 4)
    with pytest.raises(lmc.LMCError, match=r"cannot be written \(No space left on device\)"):
        write_predictions(tmp_path / f"a{suffix}", graph, prediction, "multiclass")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["cat", "a, b"], ["label_cat", "label_a, b", "p_cat", "p_a, b"]),
        (["cat", "cat"], ["label_0", "label_1", "p_0", "p_1"]),  # two columns of one name would be one
        (["cat"], ["label_0", "label_1", "p_0", "p_1"]),
    ],
)
def test_labels_are_called_by_their_names(tmp_path, names, columns):
    graph = lmc.Graph([[0], [1]], torch.ones(2, 1))
    prediction = torch.tensor([[1.0, -2.0], [-1.0, 2.0]])
    for suffix in (".csv", ".parquet"):
        file = tmp_path / f"p{suffix}"
        write_predictions(file, graph, prediction, "multilabel", class_names=names)
        table = pd.read_csv(file) if suffix == ".csv" else pd.read_parquet(file)
        assert list(table) == ["node", "split", *columns]
        assert np.allclose(table[columns[2:]], prediction.sigmoid())
    write_predictions(tmp_path / "p.csv", graph, prediction, "regression", class_names=names)
    assert list(pd.read_csv(tmp_path / "p.csv")) == ["node", "split", "value_0", "value_1"]
