"""Predictions as a table on disk: parquet, csv or npz."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks
from lmc.data.graph import Graph
from lmc.data.rules import Task
from lmc.errors import ArgumentError, LMCError
from lmc.files import one_line, write_atomically

Array = NDArray[Any]

# The name of a column for each column of a matrix; what is not here is one column under its own name.
_PREFIX = {"label": "label", "value": "value", "probabilities": "p"}

_CSV_ROWS = 1 << 14
_CSV_FORMATS = {"i": "%d", "U": "%s"}


def write_predictions(file: str | Path, graph: Graph, prediction: Tensor, task: Task) -> None:
    """Write a table with one row per node, in the graph's own order; whole or not at all.

    The columns are `node`; `split` (`"train"`, `"val"`, `"test"` or `"none"`); and, by the task,

    - multiclass: `class`, the most likely one, and `p_0` .., the softmax of the logits;
    - multilabel: `label_0` .., 1 where the logit is positive, and `p_0` .., the sigmoid of the logits;
    - regression: `value_0` ...

    Probabilities are float32, and every number reads back as it was. In an `.npz`, columns that are
    numbered here are one array (nodes, out): `probabilities`, `label` and `value`.

    Args:
        file: ends in `.parquet`, `.csv` or `.npz`; a file that is there already is replaced, and folders that
            are missing are made.
        graph: the graph, for its order and its split.
        prediction: (nodes, out) logits or values, as from `lmc.predict`.
        task: what the predictions mean: the kind of labels that the model was trained on.

    Raises:
        LMCError: the file cannot be written.

    >>> import tempfile
    >>> graph = Graph([[0], [1]], torch.ones(2, 1), [0, 1], [True, False], [False, True])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "predictions.csv"
    ...     write_predictions(file, graph, torch.tensor([[0.0, 0.0], [0.0, 200.0]]), "multiclass")
    ...     print(file.read_text())
    node,split,class,p_0,p_1
    0,train,0,0.5,0.5
    1,val,1,0,1
    <BLANKLINE>
    """
    file = Path(file)
    check_suffix(file)
    checks.one_of("task", task, Task)
    if prediction.ndim != 2 or len(prediction) != graph.num_nodes or prediction.shape[1] == 0:
        shape = tuple(prediction.shape)
        raise ArgumentError(f"prediction has shape {shape}: must be ({graph.num_nodes}, out), a row per node")
    arrays = {"node": np.arange(graph.num_nodes), "split": split_of(graph)} | _meaning(prediction, task)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda opened: _WRITERS[file.suffix](opened, arrays))
    except OSError as error:
        raise LMCError(f"{file}: cannot be written ({one_line(error)})") from None


def check_suffix(file: Path) -> None:
    """Raise ArgumentError unless the file ends in what can be written."""
    if file.suffix not in _WRITERS:
        raise ArgumentError(f"file={str(file)!r}: must end in one of {', '.join(_WRITERS)}")


def split_of(graph: Graph) -> NDArray[np.str_]:
    """(nodes,) the part of the split that each node is in: `"train"`, `"val"`, `"test"` or `"none"`.

    >>> split_of(Graph([[0], [1]], torch.ones(2, 1), [0, 1], [True, False])).tolist()
    ['train', 'none']
    """
    split = np.full(graph.num_nodes, "none", dtype="<U5")
    for name, mask in (("train", graph.train_mask), ("val", graph.val_mask), ("test", graph.test_mask)):
        split[mask.numpy()] = name
    return split


def _meaning(prediction: Tensor, task: Task) -> dict[str, Array]:
    """What the numbers say, by the task: (nodes,) or (nodes, out) each."""
    prediction = prediction.detach().cpu()
    # Half precision has too few digits for probabilities that add up to one.
    prediction = prediction if prediction.dtype == torch.float64 else prediction.float()
    if task == "regression":
        return {"value": prediction.numpy()}
    if task == "multiclass":
        probabilities = prediction.softmax(dim=1).float()
        return {"class": prediction.argmax(dim=1).numpy(), "probabilities": probabilities.numpy()}
    labels = (prediction > 0).to(torch.int8)
    return {"label": labels.numpy(), "probabilities": prediction.sigmoid().float().numpy()}


def _columns(arrays: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    """The columns of the table, each (nodes,)."""
    for name, array in arrays.items():
        if name in _PREFIX:
            yield from ((f"{_PREFIX[name]}_{i}", column) for i, column in enumerate(array.T))
        else:
            yield name, array


def _write_parquet(file: BinaryIO, arrays: dict[str, Array]) -> None:
    import pyarrow  # slow to import, and for this alone
    from pyarrow import parquet

    table = {name: pyarrow.array(np.ascontiguousarray(column)) for name, column in _columns(arrays)}
    parquet.write_table(pyarrow.table(table), file)


def _write_csv(file: BinaryIO, arrays: dict[str, Array]) -> None:
    columns = dict(_columns(arrays))
    file.write(",".join(columns).encode() + b"\n")
    row = ",".join(_csv_format(column) for column in columns.values()) + "\n"
    # By ranges of rows: Python's own numbers take many times the memory of the arrays.
    for start in range(0, len(arrays["node"]), _CSV_ROWS):
        part = [column[start : start + _CSV_ROWS].tolist() for column in columns.values()]
        file.write("".join(row % cells for cells in zip(*part, strict=True)).encode())


def _csv_format(column: Array) -> str:
    """With as many digits as it takes to read the same number back."""
    digits = 17 if column.dtype == np.float64 else 9
    return _CSV_FORMATS.get(column.dtype.kind, f"%.{digits}g")


_WRITERS: dict[str, Callable[[BinaryIO, dict[str, Array]], object]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npz": lambda opened, arrays: np.savez(opened, **arrays),  # type: ignore[arg-type]
}
