"""The processes that share a run, and what they say to each other. Here, one that talks to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Processes:
    """One process, or the part that all of several play: each calls the same in the same order.

    Attributes:
        rank: which of them this is, counted from 0. The first one writes files and shows progress.
        count: how many there are.

    >>> Processes().exchange(torch.arange(3), [3], [3]).tolist(), Processes().gather(torch.ones(2))
    ([0, 1, 2], [tensor([1., 1.])])
    >>> Processes().texts("here")
    ['here']
    """

    rank: int = 0
    count: int = 1

    def exchange(self, data: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """(sum of received,) what others have for this one, in their order.

        Args:
            data: (sum of sent,) what this one has for others, in their order.
            sent: how many entries for each.
            received: how many entries of each.
        """
        return data

    def start_exchange(self, data: Tensor, sent: list[int], received: list[int]) -> Callable[[], Tensor]:
        """Begin an `exchange` that goes on beside all else; what is returned waits for its end."""
        return lambda: data

    def gather(self, data: Tensor) -> list[Tensor]:
        """What every one has: tensors of the same shape and type."""
        return [data]

    def share(self, data: Tensor) -> Tensor:
        """What the first one has; the others give a tensor of the same shape and type."""
        return data

    def meet(self) -> None:
        """Wait until all are here, however long one of them has to do by itself."""

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """What is raised in this context is told to all."""
        yield

    # -- made of these -------------------------------------------------------------------------------

    def texts(self, text: str) -> list[str]:
        """What every one says."""
        return [bytes(each.tolist()).decode() for each in self._rows(text.encode())]

    def share_bytes(self, data: bytes) -> bytes:
        """What the first one has, whatever others give."""
        size = int(self.share(torch.tensor(len(data))))
        room = torch.zeros(size, dtype=torch.uint8)
        if self.rank == 0 and data:
            room = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return self.share(room).numpy().tobytes()

    def agree(self, answer: bool) -> bool:
        """What the first one says."""
        return bool(self.share(torch.tensor(answer)))

    def _rows(self, data: bytes) -> list[Tensor]:
        """(bytes,) of every one."""
        sizes = [int(each) for each in self.gather(torch.tensor(len(data)))]
        padded = torch.tensor([*data, *bytes(max(sizes) - len(data))], dtype=torch.uint8)
        return [each[:size] for each, size in zip(self.gather(padded), sizes, strict=True)]


ALONE = Processes()
