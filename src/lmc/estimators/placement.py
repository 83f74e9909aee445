"""Placement: of which type, and on which device, a step computes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lmc.data.graph import Graph


class Placement(NamedTuple):
    """Where everything that a step takes from the graph or from histories ends up.

    Nothing else in a step names a type or a device.

    >>> here = Placement(torch.float64, torch.device("cpu"))
    >>> here.take(torch.eye(3), torch.tensor([2])).tolist()
    [[0.0, 0.0, 1.0]]
    """

    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(graph: Graph) -> Placement:
        """That of the graph's features."""
        return Placement(graph.x.dtype, graph.x.device)

    def take(self, source: Tensor, nodes: Tensor) -> Tensor:
        """(nodes, width) rows of (any, width)."""
        return self.put(source.index_select(0, nodes))

    def put(self, values: Tensor) -> Tensor:
        """The same values, here."""
        return values.to(self.device, self.dtype)
