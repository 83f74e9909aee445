"""GraphFM-OB (Yu et al., 2022): historical embeddings with a momentum step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lmc import checks
from lmc.data.batch import Batch
from lmc.errors import ArgumentError
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.history_estimator import HistoricalHalo, HistoryEstimator
from lmc.precision import Precision


@dataclass
class GraphFM(HistoryEstimator):
    """Ĥ = (1 - momentum) H̄ + momentum H̃ for the halo, written back; V̂ = 0.

    H̃ is computed from the neighbours in the batch alone.

    Args:
        momentum: how far a step moves, in [0, 1]; 0 is GAS.
        precision: of histories and computation, see `Precision`.

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
        if not 0 <= checks.real("momentum", self.momentum) <= 1:
            raise ArgumentError(f"momentum={self.momentum}: must be in [0, 1]")

    @property
    def writes_halo(self) -> bool:
        """Moved embeddings are written back."""
        return True

    def halo_policy(self, batch: Batch) -> HaloPolicy:
        """Historical embeddings, moved."""
        return MovedHalo(self, batch)

    def prepare(self, batch: Batch) -> None:
        """Build what a step will read, of halo rows too."""
        self.prepare_there(batch, halo=True)
        self.expect(batch)


class MovedHalo(HistoricalHalo):
    """Historical embeddings, moved towards what the batch says of them, and written back."""

    incomplete_from = "batch"

    def __init__(self, estimator: GraphFM, batch: Batch) -> None:
        super().__init__(estimator, batch)
        self._momentum = estimator.momentum

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) (1 - momentum) H̄ + momentum H̃."""
        assert incomplete is not None
        return (1 - self._momentum) * super().embeddings(layer, z, None) + self._momentum * incomplete

    def keep_embeddings(self, layer: int, z: Tensor, z_halo: Tensor | None) -> None:
        """Write the batch's rows and the halo's."""
        super().keep_embeddings(layer, z, z_halo)
        if z_halo is not None:
            self.write(self._embeddings, layer, self._halo, z_halo)
