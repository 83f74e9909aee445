"""Tables of CSV and Parquet files, column by column; what is wrong names file, column and row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmc.errors import DatasetError
from lmc.files import one_line, regular

_EMPTY = ["", "NaN", "nan", "null"]
_DELIMITERS = ",\t; "
_HEAD = 1 << 16
"""Bytes in which a CSV shows its header."""


class Table:
    """A file of named columns.

    Args:
        file: Parquet if it ends in `.parquet`, else CSV. A CSV may be compressed, its columns separated by
            commas, semicolons, tabs or spaces; lines that begin with `#` before all others are left out. Its
            first line names the columns, unless all of it are numbers.
        ids: from the names of the columns to those that hold ids, which are read as they are written.
    """

    def __init__(self, file: str | Path, ids: Callable[[list[str]], Sequence[str]]) -> None:
        import pyarrow  # slow to import, and for this alone

        self.file = Path(file)
        try:
            read = _parquet if self.file.suffix == ".parquet" else _csv
            self._table = read(regular(self.file), ids)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{self.file}: not a table that can be read ({one_line(error)})") from None
        self.names: list[str] = self._table.column_names
        twice = [name for place, name in enumerate(self.names) if name in self.names[:place]]
        if twice:
            raise DatasetError(f"{self.file}: column {twice[0]!r} is there twice")
        self.id_names = list(ids(self.names))

    def column(self, name: str) -> Any:
        """A pyarrow array."""
        import pyarrow

        column = self._table.column(name)
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        return column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column

    def ids(self, name: str) -> Any:
        """A pyarrow array of ids, none missing: int64 where all are written as integers are, or strings."""
        import pyarrow

        column = self.column(name)
        self._require_all(name, column, "every row needs an id")
        if pyarrow.types.is_integer(column.type) or len(column) == 0:
            return self.cast(name, "int64")
        if not is_text(column.type):
            raise self.wrong(name, f"holds {column.type}: ids must be integers or strings")
        text = column.cast(pyarrow.large_string())
        try:
            numbers = text.cast(pyarrow.int64())
        except pyarrow.ArrowInvalid:
            return text
        return numbers if numbers.cast(pyarrow.large_string()).equals(text) else text  # 007 is no number

    def cast(self, name: str, kind: str) -> Any:
        """A pyarrow array of another type."""
        import pyarrow

        column = self.column(name)
        try:
            return column.cast(kind)
        except pyarrow.ArrowInvalid as error:
            raise self.wrong(name, f"holds {column.type}: must fit into {kind} ({one_line(error)})") from None

    def numbers(self, name: str) -> NDArray[Any]:
        """(rows,) or, of a column of lists, (rows, width); none missing."""
        import pyarrow

        column = self.column(name)
        self._require_all(name, column, "numbers must not be missing")
        if len(column) == 0:
            return np.zeros(0)
        kind, width = column.type, None
        if (
            pyarrow.types.is_list(kind)
            or pyarrow.types.is_large_list(kind)
            or pyarrow.types.is_fixed_size_list(kind)
        ):
            rows, column = len(column), column.flatten()
            width, left = divmod(len(column), max(1, rows))
            if left or column.null_count:
                raise self.wrong(name, "holds lists of different lengths, or with empty places")
        if not is_number(column.type):
            what = first_text(column) if is_text(kind) else f"holds {kind}"
            raise self.wrong(name, f"{what}: must be numbers")
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values if width is None else values.reshape(-1, width)

    def wrong(self, name: str, why: str) -> DatasetError:
        """The error of a column."""
        return DatasetError(f"{self.file}: column {name!r} {why}")

    def _require_all(self, name: str, column: Any, rule: str) -> None:
        if column.null_count:
            row = int(np.asarray(column.is_null()).argmax())
            raise DatasetError(f"{self.file}: column {name!r}, row {row + 1} is empty: {rule}")


def is_number(kind: Any) -> bool:
    """Whether a type of pyarrow is one of numbers."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def is_text(kind: Any) -> bool:
    """Whether a type of pyarrow is one of strings."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def first_text(column: Any) -> str:
    """Where a column of text holds something other than a number, and what."""
    texts = column.to_pylist()
    row = next((row for row, each in enumerate(texts) if each is not None and not writes_number(each)), 0)
    return f"holds text, in row {row + 1} {texts[row]!r}"


def _parquet(file: Path, ids: Callable[[list[str]], Sequence[str]]) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(file).read()


def _csv(file: Path, ids: Callable[[list[str]], Sequence[str]]) -> Any:
    import pyarrow
    from pyarrow import csv as arrow_csv

    with pyarrow.input_stream(str(file), compression="detect") as opened:
        lines = opened.read(_HEAD).decode("utf-8-sig", errors="replace").splitlines()
    comments = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if comments == len(lines):
        raise ValueError("it has no lines")
    first = lines[comments]
    delimiter = next((each for each in _DELIMITERS if each in first), ",")
    names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    headless = all(map(writes_number, names))
    if headless:
        names = [f"column {place}" for place in range(1, len(names) + 1)]
    return arrow_csv.read_csv(
        str(file),
        arrow_csv.ReadOptions(column_names=names, skip_rows=comments + (not headless)),
        arrow_csv.ParseOptions(delimiter=delimiter),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(ids(names), pyarrow.string()),
            null_values=_EMPTY,
            strings_can_be_null=True,
        ),
    )


def writes_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
