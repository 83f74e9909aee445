"""Arrays in extents: the rows of a cluster lie together, from a page's beginning, and have a checksum."""

from __future__ import annotations

import os
import weakref
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmc.errors import GraphError
from lmc.files import one_line, write_synced

PAGE = 4096
"""Bytes; every extent begins at a multiple of it, as direct reads of a disk do."""


class Form(NamedTuple):
    """What is known of an array beside its extents.

    Attributes:
        dtype: of its numbers, such as `<f4`.
        row: the shape of one of its rows; () for numbers.
    """

    dtype: str
    row: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.row, dtype=np.int64))


def next_page(offset: int) -> int:
    """The first beginning of a page that is not before an offset.

    >>> next_page(0), next_page(1), next_page(2**40 + 4096)
    (0, 4096, 1099511631872)
    """
    return -(-offset // PAGE) * PAGE


def write_extents(file: Path, clusters: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    """Write the rows of clusters, one after the other.

    Returns:
        (clusters, 3) int64: the offset of each extent, its bytes, and their checksum.
    """
    table: list[tuple[int, int, int]] = []

    def write(opened: Any) -> None:
        offset = 0
        for rows in clusters:
            content = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
            opened.write(content.data)
            table.append((offset, content.size, zlib.crc32(content.data)))
            end = offset + content.size
            offset = next_page(end)
            opened.write(bytes(offset - end))

    write_synced(file, write)
    return np.array(table, dtype=np.int64).reshape(-1, 3)


class Extents:
    """An array that was written in extents, read one by one; what is read is compared with its checksum.

    Args:
        file: what `write_extents` wrote.
        table: what it returned.
        form: of the array.
    """

    def __init__(self, file: Path, table: NDArray[np.int64], form: Form) -> None:
        self._path, self._table, self.form = file, table, form
        try:
            self._file = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            size = os.fstat(self._file).st_size
        except OSError as error:
            raise GraphError(f"{file}: cannot be read ({one_line(error)})") from None
        weakref.finalize(self, os.close, self._file)
        needed = next_page(int(table[-1, 0] + table[-1, 1])) if len(table) else 0
        if size != needed:
            raise GraphError(f"{file}: has {size} bytes, not {needed}; prepare the graph anew")

    def read(self, cluster: int, rows: int) -> NDArray[Any]:
        """The rows of a cluster, so many."""
        offset, size, checksum = (int(each) for each in self._table[cluster])
        content, done = np.empty(size, np.uint8), 0
        try:
            while done < size:
                # One call reads at most 2 GB.
                got = os.preadv(self._file, [content[done:].data], offset + done)
                if got == 0:
                    raise GraphError(f"{self._path}: ends in the rows of cluster {cluster}")
                done += got
        except OSError as error:
            raise GraphError(f"{self._path}: cannot be read ({one_line(error)})") from None
        if zlib.crc32(content.data) != checksum:
            raise GraphError(
                f"{self._path}: the rows of cluster {cluster} are not those that were written; "
                "prepare the graph anew"
            )
        return content.view(self.form.dtype).reshape(rows, *self.form.row)
