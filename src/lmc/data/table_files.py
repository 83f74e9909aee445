"""Tables of CSV and Parquet files, column by column; what is wrong names file, column and row."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmc.checks import counted
from lmc.errors import DatasetError
from lmc.files import one_line, regular

Naming = Callable[[list[str]], Sequence[str]]
"""From the names of all columns to those of some."""

NO_VALUE = ("na", "n/a", "#n/a", "<na>", "nan", "null", "none")
"""What programs write, in any case, where there is nothing."""
_NO_NUMBER = ["", "NaN", *(written for word in NO_VALUE for written in (word, word.upper(), word.title()))]
_NO_ID = ("NaN", "nan", "null")  # not NA or None, which are the names of a country and of people
_DELIMITERS = ",\t; "
_LONGEST_LINE = 1 << 24


class Table:
    """A file of named columns.

    Args:
        file: Parquet if it ends in `.parquet`, else CSV. A CSV may be compressed, its columns separated by
            commas, semicolons, tabs or spaces; lines that begin with `#` before all others are left out. Its
            first line names the columns, unless all of it are numbers. Columns without a name, such as an
            index of pandas, are left out.
        ids: the columns that hold ids, which are read as they are written.
        labels: those that hold labels, see `labels`.
    """

    def __init__(self, file: str | Path, ids: Naming, labels: Naming = lambda names: ()) -> None:
        import pyarrow  # slow to import, and for this alone

        self.file = Path(file)
        self.is_csv = self.file.suffix != ".parquet"
        try:
            path = regular(self.file)
            self._table = _csv(path, ids, labels) if self.is_csv else _parquet(path)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise _unreadable(self.file, error) from None
        self.id_names = list(ids(self._table.column_names))
        self._leave_out_nameless()
        self.names: list[str] = self._table.column_names
        twice = [name for place, name in enumerate(self.names) if name in self.names[:place]]
        if twice:
            raise DatasetError(f"{self.file}: column {twice[0]!r} is there twice")

    def column(self, name: str) -> Any:
        """A pyarrow array; of text without spaces around it, and null where it is empty."""
        import pyarrow
        from pyarrow import compute

        column = self._table.column(name)
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        column = column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column
        if not is_text(column.type):
            return column
        text = column.cast(pyarrow.large_string())
        if self.is_csv:  # a quote after a space is not seen as one
            text = compute.replace_substring_regex(text, r'^\s+"(.*)"\s*$', r"\1")
        broken = compute.match_substring(text, "\n").fill_null(False)
        if self.is_csv and compute.any(broken).as_py():
            row = int(np.asarray(broken).argmax()) + 1
            raise self.wrong(name, f"row {row} goes on in the next line: a quote is not closed there")
        text = compute.utf8_trim_whitespace(text)
        return _null_where(compute.equal(text, ""), text)

    def labels(self, name: str, as_numbers: bool) -> Any:
        """A pyarrow array of labels, null where there is none, also where a word of `NO_VALUE` says so.

        A column of a CSV is one of numbers if all of it are, as in `Table.ids` unless `as_numbers`: 007 is a
        name, and -1 no label; true and false are names too. In Parquet, text stays text.
        """
        import pyarrow
        from pyarrow import compute

        text = self.column(name)
        if not is_text(text.type):
            is_name = pyarrow.types.is_boolean(text.type) and not as_numbers
            return text.cast(pyarrow.large_string()) if is_name else text
        is_word = compute.is_in(compute.utf8_lower(text), pyarrow.array(NO_VALUE, pyarrow.large_string()))
        if found := compute.sum(is_word).as_py():
            word, text = text.filter(is_word)[0].as_py(), _null_where(is_word, text)
            rule = "unlabelled; a class that is called so needs another name"
            warnings.warn(
                f"{self.file}: column {name!r} has {counted(found, 'label')} such as {word!r}: {rule}",
                stacklevel=4,
            )
        if not self.is_csv:
            return text
        kinds = (pyarrow.int64(), pyarrow.float64(), *([pyarrow.bool_()] if as_numbers else []))
        for kind in kinds:
            try:
                values = text.cast(kind)
            except pyarrow.ArrowInvalid:
                continue
            if kind != pyarrow.int64() or as_numbers or _is_written_as(values, text):
                return values
            return _null_where(compute.equal(text, "-1"), text)
        if any(map(_has_decimal_comma, text.drop_null().slice(0, 1).to_pylist())):
            rule = "so labels are taken as names of classes; numbers need a decimal point"
            warnings.warn(f"{self.file}: column {name!r} {first_text(text)}: {rule}", stacklevel=4)
        return text

    def ids(self, name: str) -> Any:
        """A pyarrow array of ids, none missing: int64 where all are written as integers are, or strings."""
        import pyarrow
        from pyarrow import compute

        column = self.column(name)
        if self.is_csv and is_text(column.type):
            missing = compute.is_in(column, pyarrow.array(_NO_ID, pyarrow.large_string()))
            column = _null_where(missing, column)
        self._require_all(name, column, "every row needs an id")
        if pyarrow.types.is_integer(column.type) or len(column) == 0:
            return self.cast(name, column, "int64")
        if pyarrow.types.is_floating(column.type):  # as pandas writes integers that were beside a gap once
            return self.cast(name, column, "int64")
        if not is_text(column.type):
            raise self.wrong(name, f"holds {column.type}: ids must be integers or strings")
        try:
            numbers = column.cast(pyarrow.int64())
        except pyarrow.ArrowInvalid:
            return column
        return numbers if _is_written_as(numbers, column) else column

    def ids_if_any(self, name: str) -> Any:
        """As `ids`, if each is there once; None where they are none, or have a decimal point."""
        from pyarrow import types

        kind = self.column(name).type
        if not (types.is_integer(kind) or is_text(kind)):
            return None
        try:
            column = self.ids(name)
        except DatasetError:
            return None
        return column if 0 < len(column) == len(column.unique()) else None

    def cast(self, name: str, column: Any, kind: str) -> Any:
        """A pyarrow array of another type, of values of a column."""
        import pyarrow

        try:
            return column.cast(kind)
        except pyarrow.ArrowInvalid as error:
            raise self.wrong(name, f"holds {column.type}: must fit into {kind} ({one_line(error)})") from None

    def numbers(self, name: str) -> NDArray[Any]:
        """(rows,) or, of a column of lists, (rows, width); none missing."""

        column = self.column(name)
        self._require_all(name, column, "numbers must not be missing; write some, as pandas' fillna(0) does")
        if len(column) == 0:
            return np.zeros(0)
        kind, width = column.type, None
        if is_list(kind):
            rows, column = len(column), column.flatten()
            width, left = divmod(len(column), max(1, rows))
            if left or column.null_count:
                raise self.wrong(name, "holds lists of different lengths, or with empty places")
        if not is_number(column.type):
            what = first_text(column) if is_text(kind) else f"holds {kind}"
            raise self.wrong(name, f"{what}: must be numbers, with a decimal point")
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            place = int(np.isfinite(values).argmin())
            row = place // (width or 1) + 1
            rule = "numbers must be finite; write others, as pandas' replace does"
            raise DatasetError(f"{self.file}: column {name!r}, row {row} is {values[place]}: {rule}")
        return values if width is None else values.reshape(-1, width)

    def wrong(self, name: str, why: str) -> DatasetError:
        """The error of a column."""
        return DatasetError(f"{self.file}: column {name!r} {why}")

    def _leave_out_nameless(self) -> None:
        nameless = [
            (place, column)
            for place, (name, column) in enumerate(
                zip(self._table.column_names, self._table.columns, strict=True)
            )
            if is_nameless(name) and name not in self.id_names
        ]
        if any(column.null_count < len(column) for _, column in nameless):  # not where lines end with a comma
            warnings.warn(f"{self.file}: a column without a name is left out", stacklevel=4)
        places = {place for place, _ in nameless}
        self._table = self._table.select([i for i in range(self._table.num_columns) if i not in places])

    def _require_all(self, name: str, column: Any, rule: str) -> None:
        if column.null_count:
            row = int(np.asarray(column.is_null()).argmax())
            raise DatasetError(f"{self.file}: column {name!r}, row {row + 1} is empty: {rule}")


def is_number(kind: Any) -> bool:
    """Whether a type of pyarrow is one of numbers."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def is_list(kind: Any) -> bool:
    """Whether a type of pyarrow is one of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether a type of pyarrow is one of strings."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def first_text(column: Any) -> str:
    """Where a column of text holds something other than a number, and what."""
    texts = column.to_pylist()
    row = next((row for row, each in enumerate(texts) if each is not None and not writes_number(each)), 0)
    hint = ", with a decimal comma" if _has_decimal_comma(texts[row]) else ""
    return f"holds text, in row {row + 1} {texts[row]!r}{hint}"


def _has_decimal_comma(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+,\d+", text) is not None


def is_nameless(name: str) -> bool:
    """Whether a column has no name, or the one that pandas gives to such columns."""
    return re.fullmatch(r"(Unnamed: \d+|__index_level_\d+__)?", name) is not None


def is_place(name: str) -> bool:
    """Whether it is no name of a column but its place, in a CSV whose first line are numbers."""
    return re.fullmatch(r"column \d+", name) is not None


def _null_where(mask: Any, column: Any) -> Any:
    import pyarrow
    from pyarrow import compute

    return compute.if_else(mask.fill_null(False), pyarrow.scalar(None, column.type), column)


def _is_written_as(numbers: Any, text: Any) -> bool:
    """Whether these integers are written like this: 007 is no number."""
    return bool(numbers.cast(text.type).equals(text))


def _parquet(file: Path) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(file).read()


def _csv(file: Path, ids: Naming, labels: Naming) -> Any:
    import pyarrow
    from pyarrow import csv as arrow_csv

    names, *options = _csv_options(file)
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys([*ids(names), *labels(names)], pyarrow.string()), null_values=_NO_NUMBER
    )
    return arrow_csv.read_csv(str(file), *options, convert)


def _csv_options(file: Path) -> tuple[list[str], Any, Any]:
    """The names of the columns, and how the file is to be read and parsed."""
    from pyarrow import csv as arrow_csv

    before, first = _first_line(file)
    delimiter = next((each for each in _DELIMITERS if each in first), ",")
    spaced = csv.reader([first], delimiter=delimiter, skipinitialspace=delimiter != " ")
    names = [name.strip() for name in next(spaced)]
    headless = any(names) and all(name == "" or writes_number(name) for name in names)
    if headless:  # two spaces have a column between them that has no name either
        names = [
            "" if delimiter == " " and name == "" else f"column {place}"
            for place, name in enumerate(names, start=1)
        ]
    read = arrow_csv.ReadOptions(column_names=names, skip_rows=before + (not headless))
    return names, read, arrow_csv.ParseOptions(delimiter=delimiter)


BYTES_OF_A_ROW = 12
"""Of a CSV with two numbers a row, about."""


def columns_in_pieces(file: Path, chosen: Naming) -> tuple[int, Iterator[list[NDArray[np.int64]]]]:
    """About how many rows a table has; and pieces of it: of each some columns, which hold whole numbers.

    Args:
        file: Parquet if it ends in `.parquet`, else CSV, as for `Table`.
        chosen: which columns, of all names.
    """
    import pyarrow
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    def numbers(batches: Any) -> Iterator[list[NDArray[np.int64]]]:
        try:
            for batch in batches:
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    if not pyarrow.types.is_integer(column.type) or column.null_count:
                        raise DatasetError(
                            f"{file}: column {name!r} must hold whole numbers, one in each row"
                        )
                yield [column.to_numpy().astype(np.int64) for column in batch.columns]
        except (pyarrow.ArrowException, OSError) as error:
            raise _unreadable(file, error) from None

    try:
        path = regular(file)
        if file.suffix == ".parquet":
            opened = parquet.ParquetFile(path)
            batches = opened.iter_batches(1 << 18, columns=list(chosen(opened.schema_arrow.names)))
            return opened.metadata.num_rows, numbers(batches)
        names, *options = _csv_options(path)
        ends = list(chosen(names))
        types = dict.fromkeys(ends, pyarrow.int64())
        convert = arrow_csv.ConvertOptions(column_types=types, include_columns=ends)
        return path.stat().st_size // BYTES_OF_A_ROW, numbers(
            arrow_csv.open_csv(str(path), *options, convert)
        )
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> DatasetError:
    remedy = "; save it as UTF-8" if "utf-8" in str(error).lower() else ""
    return DatasetError(f"{file}: not a table that can be read ({one_line(error)}){remedy}")


def _first_line(file: Path) -> tuple[int, str]:
    """The first line that is neither empty nor a comment, and how many are before it."""
    import pyarrow

    with pyarrow.input_stream(str(file), compression="detect") as opened:
        lines = io.TextIOWrapper(opened, encoding="utf-8-sig")
        before = 0
        while line := lines.readline(_LONGEST_LINE):
            if line.strip() and not line.startswith("#"):
                return before, line.rstrip("\r\n")
            before += 1
    raise ValueError("it has no lines")


def writes_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
