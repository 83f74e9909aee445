"""Placement: of which type, and on which device, a step computes, and of which type it remembers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from lmc.data.graph import Graph
from lmc.kernels.plain import wide_type
from lmc.nn.module_context import computing_in
from lmc.precision import Precision, computed_type, remembered_type


def in_full(values: Tensor) -> Tensor:
    """The same values for what is not done in 16 bits, such as losses: float32, unless they are float64."""
    return values.to(wide_type(values))


class Placement(NamedTuple):
    """Where everything that a step takes from the graph or from histories ends up.

    Nothing else in a step names a type or a device.

    >>> here = Placement.of(Graph([[0], [1]], torch.eye(2)), "half")
    >>> here.take(torch.eye(3).double(), torch.tensor([2])), here.remembered
    (tensor([[0., 0., 1.]]), torch.float16)
    """

    dtype: torch.dtype
    device: torch.device
    remembered: torch.dtype

    @staticmethod
    def of(graph: Graph, precision: Precision) -> Placement:
        """On the device of the graph's features."""
        full, here = graph.x.dtype, graph.x.device
        return Placement(computed_type(precision, full), here, remembered_type(precision, full))

    def take(self, source: Tensor, nodes: Tensor) -> Tensor:
        """(nodes, width) rows of (any, width)."""
        return self.put(source.index_select(0, nodes))

    def put(self, values: Tensor) -> Tensor:
        """The same values, here."""
        return values.to(self.device, self.dtype)

    def computing(self) -> AbstractContextManager[None]:
        """In this context dense products are of this type."""
        return computing_in(self.dtype)
