"""How many bytes of tensors live at most while something is computed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class _Live(TorchDispatchMode):
    """Sees every tensor that is made, and when the last one that shares its memory goes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in tree_flatten(result)[0]:
            if isinstance(each, Tensor):
                self._count(each.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place in self._seen or size == 0:
            return
        self._seen.add(place)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, place, size)

    def _gone(self, place: int, size: int) -> None:
        self._seen.discard(place)
        self.now -= size


def most_live_bytes(compute: Callable[[], object]) -> int:
    """Of the tensors that are made in it, the most that lived at a time; those from before are not counted.

    >>> most_live_bytes(lambda: torch.ones(1000) + torch.ones(1000))
    12000
    """
    live = _Live()
    with live:
        compute()
    return live.most
