"""Histories on disk, with as much of them in memory as they are given.

A history is a file of extents: the rows of one cluster each. A batch of clusters writes whole extents, which
therefore need not be read before; its halo reads those of other clusters.
"""

from __future__ import annotations

import math
import threading
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.estimators.extent_cache import ExtentCache, Extents
from lmc.estimators.extent_file import ALIGNMENT, ExtentFile
from lmc.estimators.halo import some_of
from lmc.estimators.stored_rows import rows_of

THREADS = 2
"""That read and write."""
ROWS = 1024
"""Of an extent, where no clusters are known."""
PAGE = 1 << 15
"""About the bytes of a page of the cache."""
BYTES_OF_A_READ = 2048
"""That reading a row on its own costs, in bytes of longer reads: half a page, since many are in memory."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Where places are.

    Attributes:
        extent: (places,) of each; -1 for those below zero.
        row: (places,) in its extent.
        extents: the distinct ones.
        counts: (extents,) places in each of them.
    """

    extent: Tensor
    row: Tensor
    extents: Extents
    counts: NDArray[np.int64]

    def within(self, extents: Extents) -> Tensor:
        """(any,) which of the places are in these extents."""
        order, starts = self._by_extent
        at = np.searchsorted(self.extents, extents)
        return torch.cat([order[starts[each] : starts[each + 1]] for each in at.tolist()])

    @cached_property
    def _by_extent(self) -> tuple[Tensor, list[int]]:
        """The places in the order of their extents, and where each of these begins among them."""
        left_out = len(self.extent) - int(self.counts.sum())
        starts = [left_out, *(left_out + self.counts.cumsum()).tolist()]
        return self.extent.argsort(stable=True), starts


class DiskHistories:
    """Makes histories in a folder, which share threads and memory; see `MakeHistory`.

    They are new, in files that go with the process, until `settle` gives these their names, or a history is
    restored, which goes on with the file of its name.

    Args:
        folder: made with the first file.
        memory: bytes of histories that are held in memory.
        checkpoints: how many are kept: what they refer to is not written over.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     history = DiskHistories(Path(folder), memory=1 << 20)(3, 2, torch.float16)
    ...     history.push(torch.tensor([1]), torch.ones(1, 2))
    ...     history.pull(torch.tensor([0, 1])).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, folder: Path, memory: int, checkpoints: int = 1) -> None:
        self._folder, self._memory, self._slots = folder, memory, checkpoints + 1
        self._bounds: Tensor | None = None
        self._others: dict[int, Tensor] = {}
        self._made: weakref.WeakSet[DiskHistory] = weakref.WeakSet()
        self._number, self._is_settled = 0, False
        self._known: list[tuple[Tensor, Tensor, Spread]] = []
        self.lock = threading.Lock()
        self.workers = ThreadPoolExecutor(THREADS, thread_name_prefix="lmc-histories")

    def arrange(self, outside: Tensor | None, clusters: Tensor | None) -> Tensor | None:
        """(any,) the nodes that may be outside of a batch in the order of their clusters, an extent each."""
        self._bounds = None
        if outside is None or clusters is None:
            return outside
        of_cluster, order = clusters[outside].sort(stable=True)
        sizes = torch.unique_consecutive(of_cluster, return_counts=True)[1]
        self._bounds = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return outside[order]

    def __call__(self, num_places: int, width: int, dtype: torch.dtype) -> DiskHistory:
        """A new history, zero everywhere."""
        bounds = self._bounds
        if bounds is None or int(bounds[-1]) != num_places:
            bounds = torch.tensor([*range(0, num_places, ROWS), num_places])
            bounds = self._others.setdefault(num_places, bounds)
        self._number += 1
        path = self._folder / f"{self._number}.extents"
        history = DiskHistory(self, path, bounds, width, dtype, self._slots)
        if self._is_settled:
            history.settle()
        self._made.add(history)
        return history

    def rest(self) -> None:
        """Wait until no file is written to: another run may then go on with them."""
        for history in self._made:
            history.rest()

    def settle(self) -> None:
        """Give all files their names, and later ones at once."""
        self._is_settled = True
        for history in self._made:
            history.settle()

    def spread(self, places: Tensor, bounds: Tensor) -> Spread:
        """Where places are; a step asks for the same ones at every layer, so the last answers are kept."""
        for known, among, spread in self._known:
            if known is places and among is bounds:
                return spread
        spread = spread_of(places, bounds)
        self._known = [(places, bounds, spread), *self._known[:2]]
        return spread

    def keep(self) -> None:
        """Leave as it is what the last snapshots refer to: there is a checkpoint of them."""
        for history in self._made:
            history.file.keep()

    def memory_for(self, history: DiskHistory) -> int:
        """The bytes of all memory that a history may have: as large a share as it is of all histories."""
        return self._memory * history.nbytes // max(1, sum(each.nbytes for each in self._made))

    @property
    def read_bytes(self) -> int:
        """How many were read so far."""
        return sum(history.file.read_bytes for history in self._made)

    @property
    def written_bytes(self) -> int:
        """How many were written so far."""
        return sum(history.file.written_bytes for history in self._made)


class DiskHistory:
    """A history on disk; `DiskHistories` makes it.

    Args:
        owner: whose memory and threads it shares.
        path: of its file, once it has a name.
        bounds: (extents + 1,) where extents begin and end among all places.
        width: of a row.
        dtype: of storage.
        slots: how often the file has room for each extent.
    """

    def __init__(
        self, owner: DiskHistories, path: Path, bounds: Tensor, width: int, dtype: torch.dtype, slots: int
    ) -> None:
        self._owner, self._path, self._bounds, self._width = owner, path, bounds, width
        self._rows = rows_of(width, dtype)
        row_bytes = self._rows.entries * self._rows.dtype.itemsize
        self._sizes = bounds.diff()
        # A page of the cache has whole rows, and is made of whole pages of the system.
        self._page_rows = ALIGNMENT // math.gcd(row_bytes, ALIGNMENT)
        self._page_rows *= max(1, PAGE // (self._page_rows * row_bytes or PAGE))
        self._page_bytes = self._page_rows * row_bytes
        self.nbytes = int(bounds[-1]) * row_bytes
        unnamed = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        self.file = ExtentFile(unnamed, self._sizes.numpy() * row_bytes, slots)
        self._memory: ExtentCache | None = None

    @property
    def _cache(self) -> ExtentCache:
        """Made with its first use, when all histories are known that it shares memory with."""
        with self._owner.lock:
            if self._memory is None:
                pages = self._owner.memory_for(self) // self._page_bytes
                self._memory = ExtentCache(self.file, self._page_bytes, pages, self._owner.workers)
            return self._memory

    @cached_property
    def _stored(self) -> Tensor:
        """(pages times their rows, entries)."""
        return torch.frombuffer(self._cache.memory, dtype=self._rows.dtype).view(-1, self._rows.entries)

    # -- values ----------------------------------------------------------------------------------------

    def pull(self, places: Tensor) -> Tensor:
        """(places, width) what was last written, as exactly as it is stored."""
        spread = self._owner.spread(places, self._bounds)
        if len(spread.extents) == 0 or self._page_bytes == 0:
            nothing = torch.zeros(1, self._rows.entries, dtype=self._rows.dtype)
            return self._rows.take(nothing, torch.zeros_like(places))
        pulled: Tensor | None = None

        def found(some: Tensor | None, values: Tensor) -> None:
            """Of some places, None for all of them."""
            nonlocal pulled
            if some is None:
                pulled = values
                return
            if pulled is None:
                pulled = values.new_empty(len(places), self._width)
            pulled.index_copy_(0, some, values)

        def take(extents: Extents) -> None:
            some = None if len(extents) == len(spread.extents) else spread.within(extents)
            found(some, self._rows.take(self._stored, self._in_memory(spread, some)))

        alone = self._is_read_by_rows(spread) & ~self._cache.holds(spread.extents)
        if alone.any():
            some = None if alone.all() else spread.within(spread.extents[alone])
            found(some, self._from_file(spread, some))
        self._cache.visit(spread.extents[~alone], take)
        assert pulled is not None  # there are extents
        return pulled

    def push(self, places: Tensor, values: Tensor) -> None:
        """Write (places, width); places are distinct, and those below zero are left out."""
        spread = self._owner.spread(places, self._bounds)
        if len(spread.extents) == 0 or self._page_bytes == 0:
            return
        new = spread.counts == self._sizes.numpy()[spread.extents]

        def put(extents: Extents) -> None:
            some = None if len(extents) == len(spread.extents) else spread.within(extents)
            self._rows.put(self._in_memory(spread, some), some_of(values, some), self._stored)

        self._cache.visit(spread.extents, put, new)

    def expect(self, places: Tensor) -> None:
        """Read what will be pulled soon, in the background, as far as there is room."""
        spread = spread_of(places, self._bounds)
        extents = spread.extents[~self._is_read_by_rows(spread)]
        if len(extents) and self._page_bytes:
            self._cache.expect(extents)

    def _is_read_by_rows(self, spread: Spread) -> NDArray[np.bool_]:
        """(extents,) those of which so few rows are wanted that a page for each is less than all of them."""
        return spread.counts * BYTES_OF_A_READ < self.file.sizes[spread.extents]

    def _from_file(self, spread: Spread, some: Tensor | None) -> Tensor:
        """(places, width) of some places, None for all, each row by itself."""
        extent, row = (each if some is None else each[some] for each in (spread.extent, spread.row))
        stored = torch.empty(len(row), self._rows.entries, dtype=self._rows.dtype)
        self.file.read_rows(extent.numpy(), row.numpy(), stored.view(torch.uint8).numpy())
        return self._rows.values(stored)

    def _in_memory(self, spread: Spread, some: Tensor | None) -> Tensor:
        """(places,) the rows in `_stored` of some places, None for all; -1 for those that are left out."""
        extent, row = (each if some is None else each[some] for each in (spread.extent, spread.row))
        page = torch.from_numpy(self._cache.first_page)[extent] + row // self._page_rows
        page.clamp_(0, len(self._cache.page_of) - 1)  # of what is left out
        at = torch.from_numpy(self._cache.page_of)[page] * self._page_rows + row % self._page_rows
        return at.masked_fill_(extent < 0, -1)

    # -- checkpoints -----------------------------------------------------------------------------------

    def snapshot(self) -> Tensor:
        """(extents, 2) int64: where in the file each is now, and its checksum; the disk has confirmed all."""
        if self._memory is not None:
            self._memory.finish()
        return self.file.table()

    def restore(self, values: Tensor) -> None:
        """Go on from a snapshot, with the file of this name; DamagedHistoryError where that has changed."""
        if self._memory is not None:
            self._memory.forget()
        self.file.leave(self._path)
        self.file.take_table(values)

    def rest(self) -> None:
        """Wait until the file is not written to."""
        if self._memory is not None:
            self._memory.rest()

    def settle(self) -> None:
        """Give the file its name, now or when it appears."""
        self.file.name(self._path)


def spread_of(places: Tensor, bounds: Tensor) -> Spread:
    """Where places are, among extents that begin and end at `bounds`.

    >>> spread_of(torch.tensor([4, 0, 3]), torch.tensor([0, 2, 5])).row.tolist()
    [2, 0, 1]
    """
    extent = torch.searchsorted(bounds, places, right=True) - 1
    counts = torch.bincount(extent[extent >= 0], minlength=len(bounds) - 1).numpy()
    extents = counts.nonzero()[0]
    return Spread(extent, places - bounds[extent], extents, counts[extents])
