"""Node-wise parts that the built-in models are made of."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn import functional

from lmc.errors import ArgumentError
from lmc.nn.model import NodeWise
from lmc.nn.rows import Rows

NormKind = Literal["none", "batch", "layer"]


class BatchNorm(nn.BatchNorm1d, NodeWise):
    """Batch norm whose statistics are those of the rows of the call: batch and halo stay apart.

    Only batch rows move the running statistics. A single row has no variance; the running statistics
    serve it.
    """

    def forward(self, z: Tensor, rows: Rows) -> Tensor:  # type: ignore[override]
        """(rows, width) to (rows, width)."""
        if not self.training or len(z) < 2:
            return functional.batch_norm(
                z, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        if rows.inside:
            return super().forward(z)
        return functional.batch_norm(z, None, None, self.weight, self.bias, True, 0.0, self.eps)


class LayerNorm(nn.LayerNorm, NodeWise):
    """Layer norm, node by node."""

    def forward(self, z: Tensor, rows: Rows) -> Tensor:  # type: ignore[override]
        """(rows, width) to (rows, width)."""
        return super().forward(z)


class Dropout(NodeWise):
    """Dropout with masks that are a hash of (seed, step, place, node, column)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ArgumentError(f"dropout={p}: must be in [0, 1)")
        self.p = p

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, width) to (rows, width)."""
        if not self.training or self.p == 0:
            return z
        return z * rows.keep_mask(z.shape[1], self.p) / (1 - self.p)


class Chain(NodeWise):
    """Node-wise parts, one after the other."""

    def __init__(self, *parts: NodeWise) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, in) to (rows, out)."""
        for part in self.parts:
            z = part(z, rows)
        return z


class ReLU(NodeWise):
    """max(z, 0)."""

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, width) to (rows, width)."""
        return z.relu()


class Linear(nn.Linear, NodeWise):
    """z Wᵀ + b, with Glorot's initial weights and a zero bias, as PyG's convolutions have."""

    def reset_parameters(self) -> None:
        """Draw the initial weights."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, z: Tensor, rows: Rows | None = None) -> Tensor:
        """(rows, in) to (rows, out)."""
        return super().forward(z)


def activated(width: int, norm: NormKind, dropout: float) -> Chain:
    """Norm, ReLU and dropout: what stands between a boundary and the next product."""
    if norm not in get_args(NormKind):
        raise ArgumentError(f"norm={norm!r}: must be one of {', '.join(get_args(NormKind))}")
    norms: dict[str, list[NodeWise]] = {
        "none": [],
        "batch": [BatchNorm(width)],
        "layer": [LayerNorm(width)],
    }
    return Chain(*norms[norm], ReLU(), Dropout(dropout))
