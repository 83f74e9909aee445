"""A graph from tables of edges, features, labels and splits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from lmc import checks
from lmc.array_files import handed_over
from lmc.checks import counted
from lmc.data import rules
from lmc.data.advice import looks_like_classes
from lmc.data.edges import in_both_directions
from lmc.data.graph import Graph
from lmc.data.nodes import classes_of_text
from lmc.data.rules import TO_NUMBERS, Task
from lmc.data.splits import ROLE_OF, Role, random_split
from lmc.data.table_files import (
    NO_VALUE,
    Table,
    first_text,
    is_nameless,
    is_number,
    is_place,
    is_text,
)
from lmc.data.table_ids import ENDS, ID, LABEL, SHOWN, SPLIT, TYPE, WEIGHT, Ids
from lmc.errors import DatasetError, EntryError


def read_tables(
    edges: str | Path,
    features: str | Path | None = None,
    labels: str | Path | None = None,
    splits: str | Path | None = None,
    *,
    undirected: bool = False,
    task: Task | None = None,
) -> Graph:
    """A graph from CSV or Parquet files, by ids that are integers or strings.

    - `edges`: a row per edge. Its ends are in the columns source and target (or src and dst, from and to), or
      in the first two; weights are in a column weight, if there is one, and types, integers from 0,
      in a column edge_type. An edge that is there twice is two.
    - `features`: a row per node, its id in a column id (or node, node_id), or in the first; if another
      may have them as well, that is an error. All other columns are numbers, or lists of numbers. The nodes
      of the graph are these, in this order. Without features they are those of the edges and labels, in
      order.
    - `labels`: a row per labelled node, its id as before. A column label (or y, class, target), or else all
      others: integers are classes. So is text, also a date or true and false, in alphabetical order, and so
      are codes, integers that do not count 0, 1, 2, ... without a gap, or of which one has zeros before
      it (01234); `graph.class_names` has them. Several
      columns of zeros and ones are several labels; else they are targets of a regression. What is empty is
      unlabelled, and so is NA, nan, null or None, which a warning counts. Of several columns with such a name
      the first is taken; a warning names those left out.
    - `splits`: a row per node, its id as before; train, val or test in a column split, or in the second; or
      columns train, val and test of zeros and ones. A column split may be one of `labels` too. Without it
      60 % of the labelled nodes train, 20 % validate and 20 % test, at random and always the same ones.

    `graph.id` has the ids, unless they are the nodes' own numbers.

    Args:
        edges: a file; Parquet if it ends in `.parquet`, else CSV, perhaps compressed.
        features: a file, or None.
        labels: a file, or None.
        splits: a file, or None.
        undirected: whether every edge goes both ways, with the same weight: rows from a to b and from b to a
            are one edge, given twice, with the larger weight.
        task: the labels' kind; None takes it from their type and shape.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     edges, labels = Path(folder) / "edges.csv", Path(folder) / "labels.csv"
    ...     _ = edges.write_text("source,target\\nann,bob\\nbob,eve\\n")
    ...     _ = labels.write_text("id,label\\nann,cat\\neve,ant\\n")
    ...     graph = read_tables(edges, labels=labels, undirected=True)
    >>> graph.id.tolist(), graph.y.tolist(), graph.class_names
    (['ann', 'bob', 'eve'], [1, -1, 0], ('ant', 'cat'))
    """
    files = {"edges": edges, "features": features, "labels": labels, "splits": splits}
    for name, file in files.items():
        if file is not None:
            checks.path(name, file)
    edge_table = Table(edges, ends_of)
    features_table, splits_table = (None if file is None else Table(file, _id) for file in (features, splits))
    labels_table = None if labels is None else Table(labels, _id, _label_names)
    of_nodes = [table for table in (features_table, labels_table, splits_table) if table is not None]
    ids = Ids([edge_table, *of_nodes], features_table)
    if len(edge_table.id_names) < 2:
        raise DatasetError(f"{edge_table.file}: has 1 column: an edge has a source and a target")
    source, target = (ids.places(edge_table, name) for name in edge_table.id_names)
    if len(source) == 0:
        warnings.warn(f"{edge_table.file}: has names of columns, and no edges", stacklevel=2)
    weight, kind = _weight_and_type(edge_table)
    if undirected:
        source, target, weight, kind = in_both_directions(source, target, weight, len(ids), kind)
    y, class_names = None, None
    if labels_table is not None:
        is_both = features_table is not None and labels_table.file.samefile(features_table.file)
        y, class_names = _labels(labels_table, ids, task, labels_table.names if is_both else ())
        if task is None and y.dtype.kind == "f" and y.ndim == 1:
            _advise_classes(labels_table, y)
            task = "regression"
    elif features_table is None:  # edges alone would not say how many nodes there are
        y = np.full(len(ids), -1)
    if splits_table is None and labels_table is not None and _named(labels_table.names, SPLIT):
        splits_table = labels_table
    masks: dict[str, Any] = {}
    if splits_table is not None:
        masks = _masks(splits_table, ids)
        if labels_table is not None and y is not None:
            _say_unlabelled(splits_table, masks, y)
    elif labels_table is not None and y is not None:
        masks = _random_masks(y)
    x, feature_names = None, None
    if features_table is not None:
        if labels_table is not None:
            _say_labels_among_features(features_table, labels_table)
        told = _told_elsewhere(features_table, labels_table, splits_table)
        x, feature_names = _features(features_table, told)
    about: dict[str, Any] = {"id": ids.names, "class_names": class_names, "feature_names": feature_names}
    ends, x = handed_over(np.stack([source, target])), handed_over(x)
    try:
        return Graph(ends, x, y, edge_weight=weight, edge_type=kind, task=task, **about, **masks)
    except EntryError as error:
        raise _in_table(error, edge_table, labels_table, ids) from None


def _in_table(error: EntryError, edges: Table, labels: Table | None, ids: Ids) -> Exception:
    """The same error by the file, column and row that its array is of."""
    if error.array == "edge_type":
        return edges.wrong(_named(edges.names, TYPE)[0], f"has {error.why}")
    if error.array != "y" or labels is None:
        return error
    row = int(np.flatnonzero(ids.places(labels, labels.id_names[0]) == error.place[0])[0])
    column = _label_names(labels.names)[error.place[1] if len(error.place) > 1 else 0]
    return DatasetError(f"{labels.file}: column {column!r}, row {row + 1} is {error.why}")


def ends_of(names: list[str]) -> list[str]:
    """The columns of a table of edges that hold their ends."""
    lower = {name.lower(): name for name in names}
    called = [[lower[end] for end in ends] for ends in ENDS if all(end in lower for end in ends)]
    return called[0] if called else [name for name in names if not is_nameless(name)][:2]


def _id(names: list[str]) -> list[str]:
    return (_named(names, ID) or names)[:1]


def _label_names(names: list[str]) -> list[str]:
    """The column of that name; or else all that hold neither ids nor a split."""
    others = [
        name for name in names if name not in (*_id(names), *_named(names, SPLIT)) and not is_nameless(name)
    ]
    return _named(others, LABEL)[:1] or others


def _named(names: Sequence[str], called: Sequence[str]) -> list[str]:
    """The columns that have one of these names."""
    return [name for name in names if name.lower() in called]


def _others(table: Table) -> list[str]:
    """The columns that hold no ids."""
    return _some(table, [name for name in table.names if name not in table.id_names])


def _some(table: Table, names: list[str]) -> list[str]:
    if not names:
        raise DatasetError(f"{table.file}: has no column besides {', '.join(table.names)}")
    return names


def _weight_and_type(table: Table) -> list[NDArray[Any] | None]:
    found = [_named(table.names, names)[:1] for names in (WEIGHT, TYPE)]
    _say_left_out(table, [*table.id_names, *found[0], *found[1]])
    for name in found[1]:
        if is_text(table.column(name).type):
            raise table.wrong(name, f"holds text: types must be integers from 0; {TO_NUMBERS}")
    weight, kind = (table.numbers(names[0]) if names else None for names in found)
    return [None if weight is None else weight.astype(np.float32), kind]


def _say_left_out(table: Table, read: Sequence[str]) -> None:
    """Warn of columns that are not read."""
    unread = [repr(name) for name in table.names if name not in read]
    if unread:
        shown = ", ".join(unread[:SHOWN]) + (f" and {more} more" if (more := len(unread) - SHOWN) > 0 else "")
        which = f"column {shown} is" if len(unread) == 1 else f"columns {shown} are"
        known = ", ".join(name or "one without a name" for name in read)
        warnings.warn(f"{table.file}: {which} left out; read are {known}", stacklevel=4)


def _say_labels_among_features(features: Table, labels: Table) -> None:
    """Warn of features that are called like labels, where these are in another file."""
    if not labels.file.samefile(features.file):
        for name in _named(features.names, LABEL):
            rule = "leave it out if it says what is to be predicted"
            warnings.warn(f"{features.file}: {name!r} is read as a feature; {rule}", stacklevel=3)


def _told_elsewhere(features: Table, labels: Table | None, splits: Table | None) -> list[str]:
    """The columns of a table of features that are labels, or a split, by the same file; warned of."""
    told: list[str] = []
    if labels is not None and labels.file.samefile(features.file):
        told += _named(labels.names, LABEL)[:1]
        if not told:
            rule = f"one of its columns must be called {LABEL[0]}"
            raise DatasetError(f"{features.file}: holds features and labels; {rule}")
    if splits is not None and splits.file.samefile(features.file):
        told += _named(splits.names, SPLIT)[:1]
    if told:
        which = ", ".join(map(repr, told))
        line = f"{features.file}: {which}, read as label or split, is no feature"
        warnings.warn(line, stacklevel=3)
    return told


def _features(table: Table, told: Sequence[str] = ()) -> tuple[NDArray[np.float32], list[str] | None]:
    """(nodes, features) of the table's own rows, and their names, if it has any."""
    names = _some(table, [name for name in _others(table) if name not in told])
    columns = [table.numbers(name) for name in names]
    widths = [1 if column.ndim == 1 else column.shape[1] for column in columns]
    x, start = np.empty((len(columns[0]), sum(widths)), dtype=np.float32), 0
    for column, width in zip(columns, widths, strict=True):
        x[:, start : start + width] = column.reshape(len(x), width)
        start += width
    if any(map(is_place, names)):
        return x, None
    named = zip(names, columns, strict=True)
    return x, [each for name, column in named for each in _names_of(name, column)]


def _names_of(name: str, column: NDArray[Any]) -> list[str]:
    """One for numbers; for lists of numbers one per place in them."""
    return [name] if column.ndim == 1 else [f"{name}[{place}]" for place in range(column.shape[1])]


def _labels(
    table: Table, ids: Ids, task: Task | None, read_too: Sequence[str] = ()
) -> tuple[NDArray[Any], list[str] | None]:
    """(nodes,) or (nodes, columns) labels, and the names of classes that are text."""
    from pyarrow import types

    names = _some(table, _label_names(table.names))
    _say_left_out(table, [*table.id_names, *names, *_named(table.names, SPLIT), *read_too])
    if len(names) > 1 and task == "multiclass":
        columns_are = f"labels are in {len(names)} columns, {', '.join(names[:SHOWN])}"
        raise DatasetError(f"{table.file}: {columns_are}; multiclass wants one, called label")
    as_numbers = len(names) > 1 or task in ("regression", "multilabel")
    columns = [table.labels(name, as_numbers) for name in names]
    text = [is_text(column.type) for column in columns]
    for name, column, is_of_text in zip(names, columns, text, strict=True):
        if not (is_number(column.type) or types.is_null(column.type) or (is_of_text and len(columns) == 1)):
            raise table.wrong(name, f"holds {column.type}: labels must be numbers, or text in one column")
    class_names = None
    if text[0]:
        if task in ("regression", "multilabel"):
            raise table.wrong(names[0], f"{first_text(columns[0])}: {task} wants numbers")
        values, class_names = classes_of_text(columns[0].to_pylist())
    elif len(columns) == 1 and not types.is_floating(columns[0].type) and task != "regression":
        values = table.cast(names[0], columns[0], "int64").fill_null(-1).to_numpy(zero_copy_only=False)
        if task in (None, "multiclass"):
            values, class_names = _without_gaps(table, names[0], values)
    else:
        numbers = [
            np.asarray(table.cast(name, column, "float64").to_numpy(zero_copy_only=False))
            for name, column in zip(names, columns, strict=True)
        ]
        values = numbers[0] if len(numbers) == 1 else np.stack(numbers, axis=1)
        if task == "multiclass" and values.ndim == 1 and bool((np.nan_to_num(values) % 1 == 0).all()):
            whole = np.nan_to_num(values, nan=-1).astype(np.int64)  # as pandas writes integers with gaps
            values, class_names = _without_gaps(table, names[0], whole)
        if values.ndim == 2 and (task or rules.task_of(torch.from_numpy(values))) == "multilabel":
            class_names = names
    y = np.full((len(ids), *values.shape[1:]), np.nan if values.dtype.kind == "f" else -1, values.dtype)
    y[ids.places(table, table.id_names[0])] = values
    return y, class_names


def _without_gaps(
    table: Table, name: str, values: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[str] | None]:
    """Classes; numbers that are not 0, 1, 2, ... without a gap are codes, which are names."""
    codes = np.unique(values[values >= 0])
    if np.array_equal(codes, np.arange(len(codes))) or values.min() < -1:
        return values, None
    shown = ", ".join(map(str, codes[:3])) + (", ..." if len(codes) > 3 else "")
    warnings.warn(
        f"{table.file}: column {name!r} has {counted(len(codes), 'code')} ({shown}) for classes:"
        " they are taken as names, and classes are numbered in their order",
        stacklevel=2,
    )
    return np.where(values < 0, -1, np.searchsorted(codes, values)), [str(code) for code in codes]


def _advise_classes(table: Table, y: NDArray[np.float64]) -> None:
    """Say so where targets of a regression look like classes."""
    if looks_like_classes(torch.from_numpy(y)):
        place = f"{table.file}: column {_label_names(table.names)[0]!r}"
        numbers = "whole numbers with a decimal point are taken as targets of a regression"
        advice = "--task multiclass (task='multiclass') makes them classes, --task regression keeps them"
        warnings.warn(f"{place}: {numbers}; {advice}", stacklevel=3)


def _say_unlabelled(table: Table, masks: dict[str, NDArray[np.bool_]], y: NDArray[Any]) -> None:
    """Warn of nodes that the split names and that have no label: they are in no part of it."""
    named = np.stack(list(masks.values())).any(axis=0)
    count, of = int((named & _unlabelled(y)).sum()), counted(int(named.sum()), "node")
    if count:
        line = f"{table.file}: {count:,} of {of} have no label, and are left out of the split"
        warnings.warn(line, stacklevel=3)


def _unlabelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """(nodes,) whether nothing is known of a node."""
    missing = np.isnan(y) if y.dtype.kind == "f" else y == -1
    return np.asarray(missing.reshape(len(y), -1).all(axis=1))


def _random_masks(y: NDArray[Any]) -> dict[str, Any]:
    """A random split of the labelled nodes."""
    labelled = np.flatnonzero(~_unlabelled(y))
    masks = {}
    for name, chosen in random_split(len(labelled)).items():
        masks[name] = np.zeros(len(y), dtype=np.bool_)
        masks[name][labelled] = chosen
    return masks


def _masks(table: Table, ids: Ids) -> dict[str, NDArray[np.bool_]]:
    """A mask per part of the split."""
    names = _named(table.names, SPLIT) or _others(table)
    nodes = ids.places(table, table.id_names[0])
    if len(names) > 1 and all(name.lower() in ROLE_OF for name in names):
        return _masks_of_columns(table, names, nodes, len(ids))
    if len(names) > 1:
        which = ", ".join(map(repr, names[1:]))
        warnings.warn(f"{table.file}: holds several splits: {names[0]!r} is taken, not {which}", stacklevel=4)
    name = names[0]
    masks = {f"{role}_mask": np.zeros(len(ids), dtype=np.bool_) for role in get_args(Role)}
    parts = table.column(name).to_pylist()
    for row, (node, part) in enumerate(zip(nodes, parts, strict=True), start=1):
        if part is None or str(part).lower() in NO_VALUE:
            continue
        role = ROLE_OF.get(str(part).lower())
        if role is None:
            rule = f"must be one of {', '.join(get_args(Role))}, or empty"
            raise DatasetError(f"{table.file}: column {name!r}, row {row} is {part!r}: {rule}")
        masks[f"{role}_mask"][node] = True
    return masks


def _masks_of_columns(
    table: Table, names: Sequence[str], nodes: NDArray[np.int64], count: int
) -> dict[str, NDArray[np.bool_]]:
    """A mask per part of the split, of columns of zeros and ones that are called like the parts."""
    masks = {f"{role}_mask": np.zeros(count, dtype=np.bool_) for role in get_args(Role)}
    for name in names:
        values = table.numbers(name)
        if not np.isin(values, (0, 1)).all():
            raise table.wrong(name, "must hold zeros and ones: whether a node is in this part of the split")
        masks[f"{ROLE_OF[name.lower()]}_mask"][nodes] = values == 1
    in_two = np.stack(list(masks.values()))[:, nodes].sum(axis=0) > 1
    if in_two.any():
        which = f"row {int(in_two.argmax()) + 1} is in two of {', '.join(names)}"
        raise DatasetError(f"{table.file}: {which}; a node is in one at most")
    return masks
