"""Predictions as a table on disk: parquet, csv or npz."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.data.ids import nodes_with, some_nodes
from lmc.data.rules import Task
from lmc.data.table_ids import ID
from lmc.errors import ArgumentError, DatasetError, GraphError, LMCError
from lmc.files import one_line, read_text_bytes, write_atomically

Array = NDArray[Any]
Pieces = Iterator[dict[str, Array]]
"""Consecutive rows of the table, (rows,) or (rows, out) each."""

# The name of a column for each column of a matrix; what is not here is one column under its own name.
_PREFIX = {"label": "label", "value": "value", "probabilities": "p"}

ROWS_AT_ONCE = 1 << 15
"""Of a table; a row group of Parquet. Python's own numbers, for CSV, take many times the memory of arrays."""
_QUOTE = '"'
_SPECIAL = {_QUOTE, ",", "\n", "\r"}
_CSV_FORMATS = {"i": "%d", "U": "%s"}


def write_predictions(
    file: str | Path,
    graph: Graph,
    prediction: Tensor,
    task: Task | None = None,
    nodes: Any = None,
    class_names: Sequence[str] | None = None,
) -> None:
    """Write a table with one row per node, in the graph's own order or that of `nodes`; whole or not at all.

    The columns are `node`; `id`, where the graph has original ids; `split` (`"train"`, `"val"`, `"test"` or
    `"none"`); and, by the task,

    - multiclass: `class`, the most likely one, `class_name`, where classes have names, and `p_0` .., the
      softmax of the logits;
    - multilabel: `label_0` .., 1 where the logit is positive, and `p_0` .., the sigmoid of the logits;
    - regression: `value_0` ...

    Where each class has a name of its own, it takes the place of the number: `p_cat`, `label_cat`.
    Probabilities are float32, and every number reads back as it was. In an `.npz`, columns that are
    numbered here are one array (nodes, out): `probabilities`, `label` and `value`.

    Args:
        file: ends in `.parquet`, `.csv` or `.npz`; a file that is there already is replaced, and folders that
            are missing are made.
        graph: the graph, for its order, its ids and its split.
        prediction: (nodes, out) logits or values, as from `lmc.predict`.
        task: what the predictions mean: the kind of labels that the model was trained on; None for that of
            the graph.
        nodes: (any,) the nodes that rows are of, or their mask, as given to `lmc.predict`; None for all.
        class_names: one per class, or label; None for those of the graph.

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
    file = checks.path("file", file)
    check_graph(graph)
    check_suffix(file)
    task = graph.task if task is None else task
    checks.one_of("task", task, Task)
    wanted = None if nodes is None else some_nodes(graph, nodes).numpy()
    count = graph.num_nodes if wanted is None else len(wanted)
    _check_matrix(prediction, count)
    names = graph.class_names if class_names is None else class_names

    def arrays(start: int) -> dict[str, Array]:
        """Of some rows."""
        stop = min(start + ROWS_AT_ONCE, count)
        node = np.arange(start, stop) if wanted is None else wanted[start:stop]
        named = {} if graph.id is None else {"id": graph.id[node]}
        meaning = _meaning(prediction[start:stop], task)
        found = {"node": node, **named, "split": split_of(graph, node), **meaning}
        return _with_names(found, names) if task == "multiclass" and names is not None else found

    pieces = map(arrays, range(0, count, ROWS_AT_ONCE))
    endings = _endings(prediction.shape[1], None if task == "regression" else names)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, lambda opened: _WRITERS[file.suffix](opened, pieces, endings))
    except OSError as error:
        raise LMCError(f"{file}: cannot be written ({one_line(error)})") from None


def _with_names(arrays: dict[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """With the names of the classes, which go before the probabilities; a class beyond them has none."""
    classes, probabilities = arrays["class"], arrays.pop("probabilities")
    known = np.array([*names, *[""] * (probabilities.shape[1] - len(names))])
    return {**arrays, "class_name": known[classes], "probabilities": probabilities}


def _endings(width: int, names: Sequence[str] | None) -> list[str]:
    """How the names of a matrix's columns end: with its class, where each has a name of its own."""
    if names is not None and len(names) == len(set(names)) == width:
        return list(names)
    return [str(place) for place in range(width)]


def probabilities(prediction: Tensor, task: Task = "multiclass") -> Tensor:
    """(nodes, out) of (nodes, out) logits: of each class (`"multiclass"`), or of each label (`"multilabel"`).

    >>> probabilities(torch.tensor([[0.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """
    if checks.one_of("task", task, Task) == "regression":
        raise ArgumentError("task='regression': values have no probabilities")
    _check_matrix(prediction)
    return prediction.softmax(dim=1) if task == "multiclass" else prediction.sigmoid()


def _check_matrix(prediction: Any, nodes: int | None = None) -> None:
    """Raise ArgumentError unless it is a tensor with a row per node, of a column or more."""
    if not isinstance(prediction, Tensor):
        raise ArgumentError(
            f"prediction: {type(prediction).__name__} is not a tensor, such as of lmc.predict"
        )
    if prediction.ndim != 2 or prediction.shape[1] == 0 or nodes not in (None, len(prediction)):
        rule = f"must be ({nodes or 'nodes'}, out), a row per node"
        raise ArgumentError(f"prediction has shape {tuple(prediction.shape)}: {rule}")


def check_suffix(file: Path) -> None:
    """Raise ArgumentError unless the file ends in what can be written."""
    if file.suffix not in _WRITERS:
        raise ArgumentError(f"file={str(file)!r}: must end in one of {', '.join(_WRITERS)}")


def nodes_in_file(file: Path, graph: Graph) -> Tensor:
    """(any,) the nodes whose ids stand in a text file, one a line; empty lines are left out."""
    try:
        lines = read_text_bytes(file).decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{file}: cannot be read ({one_line(error)}); it must be a file of ids, one a line"
        ) from None
    ids: list[Any] = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise DatasetError(f"{file}: has no ids; one a line names a node")
    try:
        return nodes_with(graph, ids)
    except GraphError as error:
        names_ids = "; a line that names the column must go" if ids[0].lower() in ID else ""
        raise DatasetError(f"{file}: {error}{names_ids}") from None


def split_of(graph: Graph, nodes: NDArray[np.int64]) -> NDArray[np.str_]:
    """(nodes,) the part of the split that each node is in: `"train"`, `"val"`, `"test"` or `"none"`.

    >>> split_of(Graph([[0], [1]], torch.ones(2, 1), [0, 1], [True, False]), np.array([0, 1])).tolist()
    ['train', 'none']
    """
    split = np.full(len(nodes), "none", dtype="<U5")
    for name, mask in (("train", graph.train_mask), ("val", graph.val_mask), ("test", graph.test_mask)):
        split[mask.numpy()[nodes]] = name
    return split


def _meaning(prediction: Tensor, task: Task) -> dict[str, Array]:
    """What the numbers say, by the task: (nodes,) or (nodes, out) each."""
    prediction = prediction.detach().cpu()
    # Half precision has too few digits for probabilities that add up to one.
    prediction = prediction if prediction.dtype == torch.float64 else prediction.float()
    if task == "regression":
        return {"value": prediction.numpy()}
    likely = probabilities(prediction, task).float().numpy()
    if task == "multiclass":
        return {"class": prediction.argmax(dim=1).numpy(), "probabilities": likely}
    return {"label": (prediction > 0).to(torch.int8).numpy(), "probabilities": likely}


def _columns(arrays: dict[str, Array], endings: Sequence[str]) -> Iterator[tuple[str, Array]]:
    """The columns of the table, each (nodes,)."""
    for name, array in arrays.items():
        if name in _PREFIX:
            named = zip(endings, array.T, strict=True)
            yield from ((f"{_PREFIX[name]}_{ending}", column) for ending, column in named)
        else:
            yield name, array


def _write_parquet(file: BinaryIO, pieces: Pieces, endings: Sequence[str]) -> None:
    import pyarrow  # slow to import, and for this alone
    from pyarrow import parquet

    def table(arrays: dict[str, Array]) -> Any:
        columns = _columns(arrays, endings)
        return pyarrow.table({name: pyarrow.array(np.ascontiguousarray(column)) for name, column in columns})

    first = table(next(pieces))
    with parquet.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for arrays in pieces:
            writer.write_table(table(arrays))


def _write_csv(file: BinaryIO, pieces: Pieces, endings: Sequence[str]) -> None:
    for number, arrays in enumerate(pieces):
        columns = dict(_columns(arrays, endings))
        if number == 0:
            file.write(",".join(_cells(np.array(list(columns)))).encode() + b"\n")
        row = ",".join(_csv_format(column) for column in columns.values()) + "\n"
        cells = zip(*map(_cells, columns.values()), strict=True)
        file.write("".join(row % each for each in cells).encode())


def _write_npz(file: BinaryIO, pieces: Pieces, endings: Sequence[str]) -> None:
    every = list(pieces)
    np.savez(file, **{name: np.concatenate([arrays[name] for arrays in every]) for name in every[0]})  # type: ignore[arg-type]


def _cells(column: Array) -> list[Any]:
    """As Python's own values; text in quotes where it would not read back as it is."""
    if column.dtype.kind != "U":
        return list(column.tolist())
    cells = column.tolist()
    return [f'"{cell.replace(_QUOTE, _QUOTE * 2)}"' if _SPECIAL & {*cell} else cell for cell in cells]


def _csv_format(column: Array) -> str:
    """With as many digits as it takes to read the same number back."""
    digits = 17 if column.dtype == np.float64 else 9
    return _CSV_FORMATS.get(column.dtype.kind, f"%.{digits}g")


_WRITERS: dict[str, Callable[[BinaryIO, Pieces, Sequence[str]], object]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npz": _write_npz,
}
