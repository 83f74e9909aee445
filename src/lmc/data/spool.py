"""Arrays that are put aside on disk in many buckets, to be taken back bucket by bucket."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lmc.tidying import tidying

Told = Callable[[str, int, int], object]
"""Is told what is done, how much of it is, and how much there is of it."""


class Spool:
    """Buckets of numbers of one type, each a file; what is added to a bucket comes back in that order.

    Args:
        folder: for the files.
        name: what they are called by.
        dtype: of the numbers.
    """

    def __init__(self, folder: Path, name: str, dtype: Any) -> None:
        self._folder, self._name, self._dtype = folder, name, np.dtype(dtype)
        self._files: dict[int, BinaryIO] = {}

    def add(self, bucket: int, array: NDArray[Any]) -> None:
        """Put an array at the end of a bucket."""
        if bucket not in self._files:
            self._files[bucket] = open(self._folder / f"{self._name}.{bucket}", "w+b")  # noqa: SIM115
        self._files[bucket].write(np.ascontiguousarray(array, dtype=self._dtype).data)

    def take(self, bucket: int) -> NDArray[Any]:
        """All that is in a bucket, in one dimension; it is empty afterwards."""
        file = self._files.pop(bucket, None)
        if file is None:
            return np.empty(0, self._dtype)
        with file:
            file.seek(0)
            content = np.fromfile(file, self._dtype)
        Path(file.name).unlink()
        return content


@contextmanager
def spool_folder(beside: Path) -> Iterator[Path]:
    """A hidden folder beside another, for what is put aside; removed at the end."""
    beside = beside.absolute()  # "." has no name
    folder = beside.parent / f".{beside.name}.{uuid.uuid4().hex}.partial"
    with tidying(lambda: shutil.rmtree(folder, ignore_errors=True)):
        folder.mkdir(parents=True)
        yield folder
