"""The next batch, made in the background while the current one trains."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lmc import checks
from lmc.errors import ArgumentError

Item = TypeVar("Item")


def prefetch(items: Iterable[Item], prepare: Callable[[Item], object] | None = None) -> Iterator[Item]:
    """The same items, the next one made in a background thread while the current one is used.

    The first is made by the thread that asks for it, which has to wait anyway: it may have to compile
    kernels, and a busy machine leaves hardly any time to a thread that steps aside.

    Args:
        items: such as `lmc.batches(...)`.
        prepare: called with each item in the background, such as `estimator.prepare`, which builds all that
            a step will read of a batch.

    >>> list(prefetch("abc"))
    ['a', 'b', 'c']
    """
    if not isinstance(items, Iterable):
        raise ArgumentError(f"items={checks.shown(items)}: must be batches, such as of lmc.batches(...)")
    source, end = iter(items), object()

    def following() -> Item | object:
        item = next(source, end)
        if prepare is not None and item is not end:
            prepare(item)  # type: ignore[arg-type]
        return item

    name = "lmc-prefetch"
    with ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_step_aside) as background:
        item = following()
        while item is not end:
            coming = background.submit(following)
            yield item  # type: ignore[misc]
            item = coming.result()


def _step_aside() -> None:
    """Let others go first: a step waits for the last of its threads. Not always: others may never rest."""
    if sys.platform.startswith("linux"):  # elsewhere, the priority would be that of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
