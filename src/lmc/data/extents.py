"""Arrays in extents: the rows of a cluster lie together and have a checksum.

Extents follow each other without gaps, so that the file is also one array which can be read through a map.
"""

from __future__ import annotations

import mmap
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
            offset += content.size

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
        needed = int(table[-1, 0] + table[-1, 1]) if len(table) else 0
        if size != needed:
            raise GraphError(f"{file}: has {size} bytes, not {needed}; prepare the graph anew")

    def read(self, cluster: int, rows: int) -> NDArray[Any]:
        """The rows of a cluster, so many."""
        content = np.empty(int(self._table[cluster, 1]), np.uint8)
        self._read(cluster, content)
        return content.view(self.form.dtype).reshape(rows, *self.form.row)

    def check(self) -> None:
        """Read all of it; GraphError where it is not what was written."""
        buffer = np.empty(int(self._table[:, 1].max(initial=0)), np.uint8)
        for cluster, size in enumerate(self._table[:, 1].tolist()):
            self._read(cluster, buffer[:size])

    def mapped(self, rows: int) -> NDArray[Any]:
        """All rows, so many, read through a map."""
        shape = (rows, *self.form.row)
        if not self._table[:, 1].any():  # there are no maps of nothing
            return np.empty(shape, self.form.dtype)
        content = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        return np.frombuffer(content, self.form.dtype).reshape(shape)

    def _read(self, cluster: int, content: NDArray[np.uint8]) -> None:
        offset, size, checksum = (int(each) for each in self._table[cluster])
        done = 0
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
