"""Threads for loops that hold no lock: as many as torch has, asleep while there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
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
    bounds = [rows * part // parts for part in range(parts + 1)]
    pool = _pool(threads)
    running = [pool.submit(loop, *bounds[part : part + 2], *arguments) for part in range(parts)]
    for part in running:
        part.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lmc-kernel")
