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
    """So many frames of memory, each with one extent at a time.

    An extent that is in a frame is read and written there: it is the same as in the file, or newer. What has
    changed is written to the file in the background, and only then may its frame be given to another extent:
    of those that nobody expects, to the one that was used last, since a training goes through all of them in
    turns, and what was used last is needed last.

    One thread uses it, by `visit`; another may `expect`.

    Args:
        file: what is kept here.
        frame_bytes: of a frame, at least those of the largest extent.
        frames: how many there are.
        workers: who reads and writes.

    Attributes:
        memory: all frames.
        frame_of: (extents,) the frame of each, or -1.
    """

    def __init__(self, file: ExtentFile, frame_bytes: int, frames: int, workers: Executor) -> None:
        self._file, self._workers, self._frame_bytes = file, workers, frame_bytes
        self.memory = mmap.mmap(-1, frames * frame_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = memoryview(self.memory)
        self.frame_of: Extents = np.full(len(file.sizes), _NONE)
        self._extent_of: Extents = np.full(frames, _NONE)
        self._flags: Flags = np.zeros((6, frames), dtype=np.bool_)
        self._is_in_use, self._is_changing, self._is_loading, self._is_writing = self._flags[:4]
        self._has_changed, self._is_queued = self._flags[4:]
        # Where there are more extents than frames, those that pass through leave most of the others in place.
        self._most_new = max(1, frames // 4)
        self._used, self._clock = np.zeros(frames, dtype=np.int64), 0
        # What the step under way and the one to come will read; older expectations were in vain.
        self._expected: deque[Flags] = deque(maxlen=2)
        self._ahead: deque[int] = deque()
        self._event = threading.Condition()
        self._failure: RunError | None = None

    # -- for the thread that uses it -------------------------------------------------------------------

    def visit(self, extents: Extents, use: Callable[[Extents], None], new: Flags | None = None) -> None:
        """Have `use` called with some of the extents at a time, which are then in frames, until it had all.

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
                frames = self.frame_of[here]
                self._is_changing[frames] = changes
                while (self._is_loading | (self._is_writing & changes))[frames].any():
                    self._event.wait()
                self._check()
            use(here)
            with self._event:
                self._is_in_use[frames] = self._is_changing[frames] = False
                self._clock += 1
                self._used[frames] = self._clock
                if changes:
                    self._write_behind(frames)
                else:
                    self._fulfil(here)
                self._load_ahead()
            left = np.setdiff1d(left, here, assume_unique=True)

    def finish(self) -> None:
        """Wait until all that has changed is in the file."""
        with self._event:
            while (self._has_changed | self._is_writing).any() and self._failure is None:
                self._event.wait()
            self._check()

    def forget(self) -> None:
        """Be as empty as at first; what has changed is lost."""
        with self._event:
            self._has_changed[:] = False
            while (self._is_loading | self._is_writing | self._is_queued).any():
                self._event.wait()
            self._flags[:] = False
            self.frame_of[:] = self._extent_of[:] = _NONE
            self._expected.clear()
            self._ahead.clear()
            self._failure = None

    def _bring(self, extents: Extents, unread: set[int]) -> Extents:
        """Those of the extents that have a frame, or are given one now, and keep it until they were used."""
        self._check()
        frames = self.frame_of[extents]
        self._is_in_use[frames[frames >= 0]] = True
        for extent in extents[frames < 0][: self._most_new].tolist():
            frame = self._room(at_once=True)
            if frame is None:
                break
            self._give(frame, extent)
            self._is_in_use[frame] = True
            if extent not in unread:
                self._read_behind(frame)
        return extents[self.frame_of[extents] >= 0]

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
        coming = np.zeros(len(self.frame_of), dtype=np.bool_)
        coming[extents] = True
        with self._event:
            self._expected.append(coming)
            self._ahead.extend(extents.tolist())
            self._load_ahead()

    # -- with the lock held -----------------------------------------------------------------------------

    def _load_ahead(self) -> None:
        while self._ahead and self._failure is None:
            extent = self._ahead[0]
            if self.frame_of[extent] < 0 and any(expected[extent] for expected in self._expected):
                frame = self._room(at_once=False)
                if frame is None:
                    return
                self._give(frame, extent)
                self._read_behind(frame)
            self._ahead.popleft()

    def _room(self, at_once: bool) -> int | None:
        """A frame that may be given away; None for none. At once: even one whose extent is expected."""
        free = ~(self._is_in_use | self._is_loading | self._is_writing | self._has_changed)
        if (empty := free & (self._extent_of < 0)).any():
            return int(empty.argmax())
        unexpected = free.copy()
        for expected in self._expected:
            unexpected &= ~expected[self._extent_of]
        if unexpected.any() or at_once:
            free = unexpected if unexpected.any() else free
            return int(np.where(free, self._used, _NONE).argmax()) if free.any() else None
        return None

    def _give(self, frame: int, extent: int) -> None:
        if (before := self._extent_of[frame]) >= 0:
            self.frame_of[before] = _NONE
        self._extent_of[frame], self.frame_of[extent] = extent, frame

    def _read_behind(self, frame: int) -> None:
        self._is_loading[frame] = True
        self._workers.submit(self._read, frame)

    def _write_behind(self, frames: Extents) -> None:
        self._has_changed[frames] = True
        for frame in frames[~self._is_queued[frames]].tolist():
            self._is_queued[frame] = True
            self._workers.submit(self._write, frame)

    # -- for workers ------------------------------------------------------------------------------------

    def _read(self, frame: int) -> None:
        extent = int(self._extent_of[frame])
        failure = _failure_of(lambda: self._file.read(extent, self._content(frame, extent)))
        with self._event:
            self._is_loading[frame] = False
            self._failure = failure or self._failure
            self._event.notify_all()

    def _write(self, frame: int) -> None:
        with self._event:
            self._is_queued[frame] = False
            self._event.notify_all()
            if self._is_changing[frame] or not self._has_changed[frame]:  # it will be queued again
                return
            self._has_changed[frame], self._is_writing[frame] = False, True
        extent = int(self._extent_of[frame])
        failure = _failure_of(lambda: self._file.write(extent, self._content(frame, extent)))
        with self._event:
            self._is_writing[frame] = False
            self._failure = failure or self._failure
            self._event.notify_all()

    def _content(self, frame: int, extent: int) -> memoryview:
        start = frame * self._frame_bytes
        return self._bytes[start : start + int(self._file.sizes[extent])]


def _failure_of(work: Callable[[], None]) -> RunError | None:
    try:
        work()
    except RunError as error:
        return error
    return None
