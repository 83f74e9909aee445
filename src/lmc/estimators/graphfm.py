"""GraphFM-OB (Yu et al., 2022): historical embeddings with a momentum step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lmc.errors import ArgumentError
from lmc.estimators.estimator import HistoryEstimator, Precision
from lmc.estimators.linear_pass import LayerPass


@dataclass
class GraphFM(HistoryEstimator):
    """Ĥ = (1 - momentum) H̄ + momentum H̃ for the halo, written back; V̂ = 0.

    H̃ is computed from the neighbours in the batch alone.

    Args:
        momentum: how far a step moves, in [0, 1]; 0 is GAS.
        precision: of the histories, `"full"` (the features' type) or `"half"`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = GraphFM(momentum=0.3)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    momentum: float = 0.3
    precision: Precision = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum <= 1:
            raise ArgumentError(f"momentum={self.momentum}: must be in [0, 1]")

    def halo_embeddings(self, layer: int, at: LayerPass) -> Tensor:
        """(halo, width) the historical embeddings, moved towards what the batch says of them."""
        history = super().halo_embeddings(layer, at)
        moved = (1 - self.momentum) * history + self.momentum * at.incomplete_from_batch()
        self._keep(self.embeddings, layer, at.batch.halo, moved)
        return moved
