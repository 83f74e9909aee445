"""PyG's ClusterGCNConv, whose aggregation is linear."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lmc.data.derived_norms import Averaged, Looped, WithDiagonal
from lmc.nn.hooks import is_linear, is_plain
from lmc.nn.linear_convolutions import ReadConvolution, adds_up, averages
from lmc.nn.node_wise import NodeWise


class ClusterGCNConvLayer(ReadConvolution):
    """z = A h W + b + h U, with A = D^-1 (A + I) and its diagonal once more, `diag_lambda` times."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__(conv, message)
        mean = Averaged(Looped("plain sum") if conv.add_self_loops else "plain sum")
        enhanced = WithDiagonal(mean, conv.diag_lambda)
        self.aggregation = Averaged(enhanced) if conv.aggr == "mean" else enhanced

    @staticmethod
    def fits(conv: Any) -> bool:
        """Whether it adds up, or averages, and what it makes of the sum is linear."""
        from torch_geometric.nn import ClusterGCNConv

        return (
            is_plain(conv, ClusterGCNConv) and (adds_up(conv) or averages(conv)) and is_linear(conv.lin_out)
        )

    def called(self) -> list[nn.Module]:
        """Both maps."""
        return [self.conv.lin_out, self.conv.lin_root]

    def update(self, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        z: Tensor = self.conv.lin_out(aggregated) + self.conv.lin_root(own)
        return z
