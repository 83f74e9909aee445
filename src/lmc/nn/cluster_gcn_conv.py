"""PyG's ClusterGCNConv, whose aggregation is linear."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lmc.data.derived_norms import Averaged, Looped, WithDiagonal
from lmc.nn.model import LinearLayer
from lmc.nn.node_wise import NodeWise


class ClusterGCNConvLayer(LinearLayer):
    """z = A h W + b + h U, with A = D^-1 (A + I) and its diagonal once more, `diag_lambda` times."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__()
        self.message, self.conv = message, conv
        mean = Averaged(Looped("plain sum") if conv.add_self_loops else "plain sum")
        enhanced = WithDiagonal(mean, conv.diag_lambda)
        self.aggregation = Averaged(enhanced) if conv.aggr == "mean" else enhanced

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        z: Tensor = self.conv.lin_out(aggregated) + self.conv.lin_root(own)
        return z
