"""A history on the host, for steps on a device that has no room for it."""

from __future__ import annotations

import torch
from torch import Tensor

from lmc.device import copied, on_host
from lmc.estimators.history import History


class HostHistory:
    """Any history on the host, as steps on a device see it.

    What is pushed travels back while the step goes on, and is written before anything is read: a pull sees
    all that was pushed before it.

    Args:
        history: where values are kept.
        device: of the steps.

    >>> from lmc.estimators.history import MemoryHistory
    >>> history = HostHistory(MemoryHistory(3, 2, torch.float32), torch.device("cpu"))
    >>> history.push(torch.tensor([1]), torch.ones(1, 2))
    >>> history.pull(torch.tensor([0, 1])).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, history: History, device: torch.device) -> None:
        self._history, self._device = history, device
        self._on_the_way: tuple[Tensor, Tensor, torch.cuda.Event | None] | None = None

    def pull(self, places: Tensor) -> Tensor:
        """(places, width) what was last written, in the type of storage, on the device."""
        return copied(self._arrived().pull(places), self._device)

    def push(self, places: Tensor, values: Tensor) -> None:
        """Write (places, width); places, on the host, are distinct, and those below zero are left out."""
        self._arrived()
        if values.device.type != "cuda":
            self._on_the_way = places, on_host(values), None
            return
        rows = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        rows.copy_(values, non_blocking=True)
        self._on_the_way = places, rows, torch.cuda.current_stream(values.device).record_event()

    def expect(self, places: Tensor) -> None:
        """These will be read soon."""
        self._history.expect(places)

    def snapshot(self) -> Tensor:
        """(all places, width) everything."""
        return self._arrived().snapshot()

    def restore(self, values: Tensor) -> None:
        """Take the values of a snapshot."""
        self._arrived().restore(values)

    def _arrived(self) -> History:
        """The history, with all that was pushed."""
        if self._on_the_way is not None:
            places, rows, arrived = self._on_the_way
            if arrived is not None:
                arrived.synchronize()
            self._history.push(places, rows)
            self._on_the_way = None
        return self._history
