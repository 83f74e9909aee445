"""The processes that share a run, and what they say to each other. Here, one that talks to itself."""

from __future__ import annotations

from torch import Tensor


class Processes:
    """One process, or the part that all of several play: each calls the same in the same order.

    Attributes:
        rank: which of them this is, counted from 0.
        count: how many there are.

    >>> import torch
    >>> Processes().exchange(torch.arange(3), [3], [3]).tolist(), Processes().gather(torch.ones(2))
    ([0, 1, 2], [tensor([1., 1.])])
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

    def gather(self, data: Tensor) -> list[Tensor]:
        """What every one has: tensors of the same shape and type."""
        return [data]

    def share(self, data: Tensor) -> Tensor:
        """What the first one has; the others give a tensor of the same shape and type."""
        return data

    def agree(self, answer: bool) -> bool:
        """What the first one says."""
        return answer


ALONE = Processes()
