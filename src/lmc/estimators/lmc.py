"""LMC: local message compensation, forward and backward (section 5, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lmc import checks
from lmc.data.batch import Batch
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Precision
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.history_estimator import HistoricalHalo, HistoryEstimator
from lmc.nn.model import Model

Score = Literal["x^2", "2x-x^2", "x", "1", "sin"]

SCORES: dict[Score, Callable[[Tensor], Tensor]] = {
    "x^2": torch.square,
    "2x-x^2": lambda x: 2 * x - x.square(),
    "x": torch.clone,
    "1": torch.ones_like,
    "sin": torch.sin,
}


@dataclass
class LMC(HistoryEstimator):
    """Convex mixes of historical and incomplete up-to-date values, for embeddings and their derivatives.

        Ĥ = (1 - β) H̄ + β H̃,  V̂ = (1 - β) V̄ + β Ṽ,  β = alpha score(x)

    where x is the share of a halo node's neighbours that are in the batch or the halo.

    Args:
        alpha: in [0, 1]. At 0 the halo needs no computation of its own.
        score: `"x^2"`, `"2x-x^2"`, `"x"`, `"1"` or `"sin"`.
        compensate_forward: whether embeddings are mixed (C_f); if not, they are historical.
        compensate_backward: whether derivatives come from the halo (C_b); if not, they are dropped, as in
            GAS.
        precision: of the histories, `"full"` (the features' type) or `"half"`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = LMC(alpha=0.4, score="2x-x^2")
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    alpha: float = 0.4
    score: Score = "2x-x^2"
    compensate_forward: bool = True
    compensate_backward: bool = True
    precision: Precision = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= checks.real("alpha", self.alpha) <= 1:
            raise ArgumentError(f"alpha={self.alpha}: must be in [0, 1]")
        checks.one_of("score", self.score, Score)
        for name in ("compensate_forward", "compensate_backward"):
            checks.truth(name, getattr(self, name))

    def remembered(self, model: Model) -> tuple[range, range]:
        """Embeddings up to the last layer, where the halo's own losses begin; auxiliaries before it.

        Auxiliaries of the first layer serve what comes before its aggregation: without parameters there,
        nothing would read them. Parameters that are frozen count, since they may be thawed.
        """
        if not self.compensate_backward:
            return super().remembered(model)
        depth = len(model.layers)
        return range(1, depth + 1), range(1 if model.parameters_before_first else 2, depth)

    def halo_policy(self, batch: Batch) -> HaloPolicy:
        """Mixes by the β of this batch."""
        return MixedHalo(self, batch)

    def prepare(self, batch: Batch) -> None:
        """Build what a step will read, of halo rows too where their values are mixed."""
        self.model.prepare(batch, halo=self.alpha > 0)
        if self.alpha > 0:
            _ = batch.local_degree

    def beta(self, batch: Batch) -> Tensor:
        """(halo, 1) how much of the up-to-date value each halo node takes (appendix A.4)."""
        share = batch.local_degree.to(self.placement.dtype) / batch.global_degree
        return self.alpha * SCORES[self.score](share)[:, None]


class MixedHalo(HistoricalHalo):
    """Equations (9) and (12) at one step."""

    def __init__(self, estimator: LMC, batch: Batch) -> None:
        super().__init__(estimator, batch)
        mixes = estimator.alpha > 0
        self._beta = estimator.beta(batch) if mixes else None
        self.incomplete_from = "reach" if mixes and estimator.compensate_forward else None
        self.reads_losses = estimator.compensate_backward
        self.revisits = mixes and estimator.compensate_backward

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) eq. (9)."""
        historical = super().embeddings(layer, z, None)
        if self._beta is None or incomplete is None:
            return historical
        return (1 - self._beta) * historical + self._beta * incomplete

    def auxiliaries(self, layer: int, incomplete: Callable[[], Tensor]) -> Tensor | None:
        """(halo, width) eq. (12); at the last layer, the derivatives of the halo's own losses."""
        if not self.reads_losses:
            return None
        if layer not in self._auxiliaries:
            return incomplete()
        historical = self.historical(self._auxiliaries, layer)
        if self._beta is None:
            return historical
        return (1 - self._beta) * historical + self._beta * incomplete()
