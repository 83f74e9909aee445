"""Ids in tables: what their columns are called, and which node an id is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmc.checks import counted
from lmc.data.splits import ROLE_OF
from lmc.data.table_files import Table, writes_number
from lmc.errors import DatasetError

# What columns are called, whatever their case; where none is called so, the first ones are taken.
ENDS = (("source", "target"), ("src", "dst"), ("from", "to"))
ID = ("id", "node", "node_id")
LABEL = ("label", "y", "class", "target")
WEIGHT = ("weight", "edge_weight")
TYPE = ("edge_type",)
SPLIT = ("split",)
NAMES = {*(end for ends in ENDS for end in ends), *ID, *LABEL, *WEIGHT, *TYPE, *SPLIT}
SHOWN = 5
"""How many columns a line names."""
LEAST_COLUMNS = 3
"""Of labels or splits: with fewer, the one that is not the ids is what they tell."""


def shown(name: str) -> str:
    """How a line names a column."""
    return f"column {name!r}" if name else "the column without a name"


class Ids:
    """Which node an id is."""

    def __init__(self, tables: Sequence[Table], features: Table | None) -> None:
        import pyarrow
        from pyarrow import compute

        columns = {(table, name): table.ids(name) for table in tables for name in table.id_names}
        if any(column.type != pyarrow.int64() for column in columns.values()):
            columns = {key: column.cast(pyarrow.large_string()) for key, column in columns.items()}
        self._columns, self._index_in = columns, compute.index_in
        for table in tables:
            self._require_names(table)
        ends = pyarrow.concat_arrays([columns[tables[0], name] for name in tables[0].id_names])
        if features is not None and len(ends) > 0:
            self._require_one(features, lambda column: compute.all(compute.is_in(ends, column)).as_py())
        nodes = ends if features is None else columns[features, features.id_names[0]]
        for table in tables[1:]:  # not the edges
            if table is not features and len(table.names) >= LEAST_COLUMNS:
                self._require_one(table, lambda column: compute.all(compute.is_in(column, nodes)).as_py())
            self._require_once(table, columns[table, table.id_names[0]])
        self._features = features
        if features is not None:
            self._known = columns[features, features.id_names[0]]
        else:
            self._known = compute.unique(pyarrow.concat_arrays(columns.values())).sort()
            for table in tables[1:]:
                self._say_new(table, columns[table, table.id_names[0]], ends)
        if len(self._known) == 0:
            raise DatasetError(f"{tables[0].file}: a graph needs a node or more")

    def __len__(self) -> int:
        return len(self._known)

    @property
    def names(self) -> NDArray[Any] | None:
        """(nodes,) the ids, or None where they are the numbers of the nodes."""
        ids: NDArray[Any] = self._known.to_numpy(zero_copy_only=False)
        return None if np.array_equal(ids, np.arange(len(ids))) else ids

    def places(self, table: Table, name: str) -> NDArray[np.int64]:
        """(rows,) the node of each row."""
        column = self._columns[table, name]
        places = self._index_in(column, self._known)
        if places.null_count:
            row = int(np.asarray(places.is_null()).argmax())
            assert self._features is not None  # without them every id is that of a node
            ids = f"{shown(self._features.id_names[0])} of {self._features.file}"
            rule = f"no node has this id; ids of nodes are in {ids}, the first is {self._known[0].as_py()!r}"
            place = f"{table.file}: {shown(name)}, row {row + 1}"
            raise DatasetError(f"{place} is {column[row].as_py()!r}: {rule}")
        numbers: NDArray[np.int64] = places.to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers

    def _require_names(self, table: Table) -> None:
        """Refuse ids in the place of names; where only one of two is an id, warn."""
        if not table.is_csv or any(name.lower() in NAMES for name in table.names):
            return
        ids = [name for name in table.id_names if writes_number(name) or self._is_id(name)]
        if ids:
            first = ",".join(table.names[:SHOWN])
            wanted = "source,target" if len(table.id_names) == 2 else "id,..."
            line = (
                f"{table.file}: its first line, {first}, is taken as names of columns, and {ids[0]!r} is an"
                f" id: put a line {wanted} above it, or in its place"
            )
            if len(ids) == len(table.id_names):
                raise DatasetError(line)
            warnings.warn(line, stacklevel=4)

    def _is_id(self, name: str) -> bool:
        from pyarrow import compute

        columns = (column.cast("large_string") for column in self._columns.values())
        return any(compute.any(compute.equal(column, name)).as_py() for column in columns)

    def _say_new(self, table: Table, column: Any, ends: Any) -> None:
        """Warn of ids that no edge has."""
        new = column.filter(self._index_in(column, ends).is_null())
        if len(new):
            which = f"{counted(len(new), 'id')} that no edge has, such as {new[0].as_py()!r}"
            rule = "a node without neighbours each"
            if len(new) == len(column):
                rule = f"all of column {table.id_names[0]!r}; call the column of ids id"
            warnings.warn(f"{table.file}: has {which}: {rule}", stacklevel=4)

    def _require_one(self, table: Table, may_be_ids: Callable[[Any], bool]) -> None:
        """Refuse ids that are known by the place of their column alone, if another may be the ids as well."""
        taken = table.id_names[0]
        if taken.lower() in ID:
            return
        kind = next(iter(self._columns.values())).type
        for name in table.names:
            if name == taken or name.lower() in NAMES or name.lower() in ROLE_OF:
                continue
            column = table.ids_if_any(name)
            if column is not None and may_be_ids(column.cast(kind)):
                which = f"{shown(taken)} or {shown(name)}"
                raise DatasetError(f"{table.file}: ids may be in {which}; rename the one that has them to id")

    @staticmethod
    def _require_once(table: Table, column: Any) -> None:
        counts = column.value_counts()
        often = np.asarray(counts.field("counts")) > 1
        if often.any():
            twice = counts.field("values")[int(often.argmax())].as_py()
            raise DatasetError(f"{table.file}: id {twice!r} is there twice: a row per node")
