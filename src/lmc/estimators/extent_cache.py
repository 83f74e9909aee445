"""Some extents of a file in memory: read ahead, written behind, and never seen older than they are."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from lmc.errors import RunError
from lmc.estimators.extent_file import ExtentFile

Extents = NDArray[np.int64]
Flags = NDArray[np.bool_]
_NONE = -1


class ExtentCache:
    """So many pages of memory; an extent that is here has some of them, anywhere.

    An extent that is here is read and written here: it is the same as in the file, or newer. What has changed
    is written to the file in the background, and only then may its pages be given to another extent. They are
    taken from those that nobody expects, and there from the one that was used last: a training goes through
    all of them in turns, and what was used last is needed last.

    One thread uses it, by `visit`; another may `expect`.

    Args:
        file: what is kept here.
        page_bytes: of a page.
        pages: how many there are; as many as the largest extent needs, where they are fewer.
        workers: who reads and writes.

    Attributes:
        memory: all pages.
        first_page: (extents + 1,) where each begins among the pages of all extents.
        page_of: (pages of all extents,) the page in memory, or -1.
    """

    def __init__(self, file: ExtentFile, page_bytes: int, pages: int, workers: Executor) -> None:
        self._file, self._workers, self._page_bytes = file, workers, page_bytes
        counts = -(-file.sizes // page_bytes)
        self.first_page: Extents = np.concatenate([[0], np.cumsum(counts)])
        self.page_of: Extents = np.full(int(counts.sum()), _NONE)
        pages = min(max(pages, int(counts.max())), len(self.page_of))
        self.memory = mmap.mmap(-1, pages * page_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = memoryview(self.memory)
        self._free = list(range(pages))
        self._most_new = max(1, pages // 4)  # pages that extents pass through, while others stay
        self._flags: Flags = np.zeros((7, len(counts)), dtype=np.bool_)
        self._is_here, self._is_in_use, self._is_changing, self._is_loading = self._flags[:4]
        self._is_writing, self._has_changed, self._is_queued = self._flags[4:]
        self._used, self._clock = np.zeros(len(counts), dtype=np.int64), 0
        # What the step under way and the one to come will read; older expectations were in vain.
        self._expected: deque[Flags] = deque(maxlen=2)
        self._ahead: deque[int] = deque()
        self._event = threading.Condition()
        self._failure: RunError | None = None

    # -- for the thread that uses it -------------------------------------------------------------------

    def visit(self, extents: Extents, use: Callable[[Extents], None], new: Flags | None = None) -> None:
        """Have `use` called with some of the extents at a time, which are then here, until it had all.

        Args:
            extents: distinct.
            use: reads or writes them in `memory`.
            new: (extents,) where `use` writes: whether it writes all of one, which then need not be read.
        """
        changes = new is not None
        unread = set() if new is None else set(extents[new].tolist())
        left = extents
        while len(left):
            with self._event:
                while len(here := self._bring(left, unread)) == 0:
                    self._event.wait()
                self._is_in_use[here], self._is_changing[here] = True, changes
                while (self._is_loading | (self._is_writing & changes))[here].any():
                    self._event.wait()
                self._check()
            use(here)
            with self._event:
                self._is_in_use[here] = self._is_changing[here] = False
                self._clock += 1
                self._used[here] = self._clock
                if changes:
                    self._write_behind(here)
                else:
                    self._fulfil(here)
                self._load_ahead()
            left = np.setdiff1d(left, here, assume_unique=True)

    def holds(self, extents: Extents) -> Flags:
        """(extents,) which are here; of others the file has the last that was written."""
        with self._event:
            self._check()
            found: Flags = self._is_here[extents]
            return found

    def finish(self) -> None:
        """Wait until all that has changed is in the file."""
        with self._event:
            while (self._has_changed | self._is_writing).any() and self._failure is None:
                self._event.wait()
            self._check()

    def rest(self) -> None:
        """Wait until nothing is being written, nor about to be."""
        with self._event:
            while (self._is_queued | self._is_writing).any():
                self._event.wait()

    def forget(self) -> None:
        """Be as empty as at first; what has changed is lost."""
        with self._event:
            self._has_changed[:] = False
            while (self._is_loading | self._is_writing | self._is_queued).any():
                self._event.wait()
            self._free += self.page_of[self.page_of >= 0].tolist()
            self.page_of[:], self._flags[:] = _NONE, False
            self._expected.clear()
            self._ahead.clear()
            self._failure = None

    def _bring(self, extents: Extents, unread: set[int]) -> Extents:
        """Those that are here, before they make room for others; where none is, some that are given room."""
        self._check()
        here: Extents = extents[self._is_here[extents]]
        if len(here):
            return here
        brought: list[int] = []
        pages = 0
        for extent in extents.tolist():
            pages += self._num_pages(extent)
            if (brought and pages > self._most_new) or not self._give_room(extent, at_once=True):
                break
            self._is_in_use[extent] = True
            brought.append(extent)
            if extent not in unread:
                self._read_behind(extent)
        return np.array(brought, dtype=np.int64)

    def _fulfil(self, extents: Extents) -> None:
        for expected in self._expected:
            was_expected = expected[extents]
            expected[extents[was_expected]] = False
            extents = extents[~was_expected]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- for the thread that knows what comes -----------------------------------------------------------

    def expect(self, extents: Extents) -> None:
        """Keep these until they are visited, and read those that are not here as soon as there is room."""
        coming = np.zeros(len(self._used), dtype=np.bool_)
        coming[extents] = True
        with self._event:
            self._expected.append(coming)
            self._ahead.extend(extents.tolist())
            self._load_ahead()

    # -- with the lock held -----------------------------------------------------------------------------

    def _load_ahead(self) -> None:
        while self._ahead and self._failure is None:
            extent = self._ahead[0]
            if not self._is_here[extent] and any(expected[extent] for expected in self._expected):
                if not self._give_room(extent, at_once=False):
                    return
                self._read_behind(extent)
            self._ahead.popleft()

    def _give_room(self, extent: int, at_once: bool) -> bool:
        """Give an extent its pages, if there are enough. At once: even of others that are expected."""
        needed = self._num_pages(extent)
        while len(self._free) < needed:
            idle = self._is_here & ~(
                self._is_in_use | self._is_loading | self._is_writing | self._has_changed
            )
            unexpected = idle.copy()
            for expected in self._expected:
                unexpected &= ~expected
            if not unexpected.any() and at_once:
                unexpected = idle
            if not unexpected.any():
                return False
            self._take_room(int(np.where(unexpected, self._used, _NONE).argmax()))
        self.page_of[self._pages(extent)] = [self._free.pop() for _ in range(needed)]
        self._is_here[extent] = True
        return True

    def _take_room(self, extent: int) -> None:
        self._free += self.page_of[self._pages(extent)].tolist()
        self.page_of[self._pages(extent)] = _NONE
        self._is_here[extent] = False

    def _pages(self, extent: int) -> slice:
        return slice(int(self.first_page[extent]), int(self.first_page[extent + 1]))

    def _num_pages(self, extent: int) -> int:
        return int(self.first_page[extent + 1] - self.first_page[extent])

    def _read_behind(self, extent: int) -> None:
        self._is_loading[extent] = True
        self._workers.submit(self._read, extent)

    def _write_behind(self, extents: Extents) -> None:
        self._has_changed[extents] = True
        for extent in extents[~self._is_queued[extents]].tolist():
            self._is_queued[extent] = True
            self._workers.submit(self._write, extent)

    # -- for workers ------------------------------------------------------------------------------------

    def _read(self, extent: int) -> None:
        failure = _failure_of(lambda: self._file.read(extent, self._buffers(extent)))
        with self._event:
            self._is_loading[extent] = False
            self._failure = failure or self._failure
            self._event.notify_all()

    def _write(self, extent: int) -> None:
        with self._event:
            self._is_queued[extent] = False
            self._event.notify_all()
            if self._is_changing[extent] or not self._has_changed[extent]:  # it will be queued again
                return
            self._has_changed[extent], self._is_writing[extent] = False, True
        failure = _failure_of(lambda: self._file.write(extent, self._buffers(extent)))
        with self._event:
            self._is_writing[extent] = False
            self._failure = failure or self._failure
            self._event.notify_all()

    def _buffers(self, extent: int) -> list[memoryview]:
        """All bytes of an extent, in order; pages that follow each other are one buffer."""
        pages = self.page_of[self._pages(extent)]
        runs = np.split(pages, (np.diff(pages) != 1).nonzero()[0] + 1)
        left, buffers = int(self._file.sizes[extent]), []
        for run in runs:
            start, size = int(run[0]) * self._page_bytes, min(left, len(run) * self._page_bytes)
            buffers.append(self._bytes[start : start + size])
            left -= size
        return buffers


def _failure_of(work: Callable[[], None]) -> RunError | None:
    try:
        work()
    except RunError as error:
        return error
    return None
