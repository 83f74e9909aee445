"""Functions of each node's own vector: what comes before, between and after the convolutions."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from lmc.nn.fixed_order import linear
from lmc.nn.module_context import running_on
from lmc.nn.rows import Rows


class NodeWise(nn.Module, ABC):
    """A function of each node's own vector, which knows which nodes its rows belong to."""

    @abstractmethod
    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, in) to (rows, out)."""

    @property
    def is_identity(self) -> bool:
        """Whether, as it is now, it gives back what it takes."""
        return False


class Identity(NodeWise):
    """In the place of an encoder or a head that a model does not have."""

    is_identity = True

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, width), unchanged."""
        return z


class Chain(NodeWise):
    """Node-wise parts, one after the other."""

    def __init__(self, *parts: NodeWise) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, in) to (rows, out)."""
        for place, part in enumerate(self.parts):
            z = part(z, rows.within(place))
        return z


class NodeWiseModule(NodeWise):
    """A module of a user or of PyG that works node by node."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, in) to (rows, out)."""
        with running_on(self.module, rows):
            out: Tensor = self.module(z.clone())  # it may work in place
            return out


class Linear(nn.Linear, NodeWise):
    """z Wᵀ + b, with Glorot's initial weights and a zero bias, as PyG's convolutions have."""

    def reset_parameters(self) -> None:
        """Draw the initial weights."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, z: Tensor, rows: Rows | None = None) -> Tensor:
        """(rows, in) to (rows, out)."""
        return linear(z, self.weight, self.bias)
