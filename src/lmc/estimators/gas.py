"""GAS (Fey et al., 2021): historical embeddings outside of the batch, and no way back."""

from __future__ import annotations

from dataclasses import dataclass

from lmc.estimators.history_estimator import HistoryEstimator
from lmc.precision import Precision


@dataclass
class GAS(HistoryEstimator):
    """Ĥ = H̄ for the halo, V̂ = 0.

    Args:
        precision: of histories and computation, see `Precision`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = GAS()
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    precision: Precision = "full"
