"""How many bytes of tensors live at most while something is computed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

_LIFT = torch.ops.aten.lift_fresh.default
"""What an array that becomes a tensor goes through: its memory is new."""


class _Live(TorchDispatchMode):
    """Sees every tensor that is made, and when the last one that shares its memory goes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, kinds: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is not _LIFT:
            for given in _tensors((args, kwargs)):  # from before, if it is new here; views of it take nothing
                self._count(given.untyped_storage(), 0)
        result = function(*args, **(kwargs or {}))
        for made in _tensors(result):
            storage = made.untyped_storage()
            self._count(storage, storage.nbytes())
        return result

    def _count(self, storage: torch.UntypedStorage, size: int) -> None:
        place = storage._cdata
        if place in self._seen:
            return
        self._seen.add(place)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, place, size)

    def _gone(self, place: int, size: int) -> None:
        self._seen.discard(place)
        self.now -= size


def _tensors(of: Any) -> list[Tensor]:
    return [each for each in tree_flatten(of)[0] if isinstance(each, Tensor)]


def most_live_bytes(compute: Callable[[], object]) -> int:
    """Of the tensors that are made in it, the most that lived at a time; those from before are not counted.

    >>> most_live_bytes(lambda: torch.ones(1000) + torch.ones(1000))
    12000
    >>> most_live_bytes(lambda: torch.tensor([0.5, 1.5]))
    8
    >>> before = torch.ones(1000)
    >>> most_live_bytes(lambda: before[:10] + 1)
    40
    """
    live = _Live()
    with live:
        compute()
    return live.most
