"""Threads for loops that hold no lock: as many as torch has, asleep while there is nothing to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import torch

SMALL = 1 << 16  # entries below which one thread is done before others have woken up
PARTS = 4  # per thread, so that a thread that is held up does not hold up all


def over(rows: int, work: int, loop: Callable[..., None], *arguments: Any) -> None:
    """loop(start, stop, *arguments) over all rows, in parts; `work` is how many entries they have."""
    threads = torch.get_num_threads()
    if threads == 1 or work < SMALL:
        loop(0, rows, *arguments)
        return
    parts = min(rows, PARTS * threads)
    left = deque(pairwise(rows * part // parts for part in range(parts + 1)))

    def run() -> None:
        while left:
            try:
                part = left.popleft()
            except IndexError:  # another thread has taken the last
                return
            loop(*part, *arguments)

    helpers = [_pool(threads - 1).submit(run) for _ in range(threads - 1)]
    try:
        run()
    finally:
        for helper in helpers:
            helper.cancel() or helper.result()  # one that has not begun would find nothing left


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lmc-kernel")
