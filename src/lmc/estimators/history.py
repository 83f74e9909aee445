"""Where historical values live."""

from __future__ import annotations

import torch
from torch import Tensor

from lmc import kernels


class History:
    """One vector per node, as it was when the node was last written; zero before that.

    >>> history = History(3, 2, torch.float16)
    >>> history.push(torch.tensor([1]), torch.ones(1, 2))
    >>> history.pull(torch.tensor([0, 1]), torch.float32).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, num_nodes: int, width: int, dtype: torch.dtype) -> None:
        self.values = torch.zeros(num_nodes, width, dtype=dtype)

    def pull(self, nodes: Tensor, dtype: torch.dtype) -> Tensor:
        """(nodes, width) what was last written, in the type of the computation."""
        return self.values.index_select(0, nodes).to(dtype)

    def push(self, nodes: Tensor, values: Tensor) -> None:
        """Write (nodes, width); what is too large for the type of storage becomes its largest number."""
        if self.values.dtype != values.dtype:
            limit = torch.finfo(self.values.dtype).max
            values = values.clamp(-limit, limit).to(self.values.dtype)
        kernels.kernels_for(self.values).put_rows(nodes, values, self.values)
