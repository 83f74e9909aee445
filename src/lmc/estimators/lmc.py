"""LMC: local message compensation, forward and backward (section 5, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from lmc import checks
from lmc.data.batch import Batch
from lmc.errors import ArgumentError
from lmc.estimators.estimator import HistoryEstimator, Precision
from lmc.estimators.linear_pass import LayerPass
from lmc.estimators.step import Outside

Score = Literal["x^2", "2x-x^2", "x", "1", "sin"]

SCORES: dict[Score, Callable[[Tensor], Tensor]] = {
    "x^2": torch.square,
    "2x-x^2": lambda x: 2 * x - x.square(),
    "x": torch.clone,
    "1": torch.ones_like,
    "sin": torch.sin,
}


class LMC(HistoryEstimator):
    """Convex mixes of historical and incomplete up-to-date values, for embeddings and their derivatives.

        Ĥ = (1 - β) H̄ + β H̃,  V̂ = (1 - β) V̄ + β Ṽ,  β = alpha score(x)

    where x is the share of a halo node's neighbours that are in the batch or the halo.

    Args:
        alpha: in [0, 1]. At 0 the halo needs no computation of its own.
        score: `"x^2"`, `"2x-x^2"`, `"x"`, `"1"` or `"sin"`.
        forward: whether embeddings are mixed (C_f); without, they are historical.
        backward: whether derivatives come from the halo (C_b); without, they are dropped, as in GAS.
        precision: of the histories, `"full"` (the features' type) or `"half"`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = LMC(alpha=0.4, score="2x-x^2")
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    # Not a dataclass like its peers: an option and the estimators' main method are both called `backward`.
    def __init__(
        self,
        alpha: float = 0.4,
        score: Score = "2x-x^2",
        forward: bool = True,
        backward: bool = True,
        precision: Precision = "full",
    ) -> None:
        if not 0 <= alpha <= 1:
            raise ArgumentError(f"alpha={alpha}: must be in [0, 1]")
        checks.one_of("score", score, Score)
        self.alpha, self.score, self.precision = alpha, score, precision
        super().__post_init__()
        self.compensate_forward, self.compensate_backward = forward, backward

    def __repr__(self) -> str:
        switches = f"forward={self.compensate_forward}, backward={self.compensate_backward}"
        return f"LMC(alpha={self.alpha}, score={self.score!r}, {switches}, precision={self.precision!r})"

    def remembered(self, depth: int) -> tuple[range, range]:
        """Embeddings up to the last layer, where the halo's own losses begin; auxiliaries before it."""
        if not self.compensate_backward:
            return super().remembered(depth)
        return range(1, depth + 1), range(1, depth)

    @property
    def revisits_halo(self) -> bool:  # type: ignore[override]
        """Whether the halo's derivatives are mixed with up-to-date ones."""
        return self.compensate_backward and self.alpha > 0

    def scene(self, batch: Batch) -> tuple[Batch, Outside]:
        """The batch as it is; the halo as mixed by its β."""
        if self.alpha > 0:
            self._beta = self.beta(batch)
        return super().scene(batch)

    def beta(self, batch: Batch) -> Tensor:
        """(halo, 1) how much of the up-to-date value each halo node takes (appendix A.4)."""
        share = batch.local_degree.to(self.graph.x.dtype) / batch.global_degree
        return self.alpha * SCORES[self.score](share)[:, None]

    def halo_embeddings(self, layer: int, at: LayerPass) -> Tensor:
        """(halo, width) eq. (9)."""
        history = super().halo_embeddings(layer, at)
        if self.alpha == 0 or not self.compensate_forward:
            return history
        return (1 - self._beta) * history + self._beta * at.halo_update.value

    def halo_auxiliaries(self, layer: int, halo: Tensor, up_to_date: Callable[[], Tensor]) -> Tensor | None:
        """(halo, width) eq. (12); at the last layer, the derivative of the halo's own losses."""
        if not self.compensate_backward:
            return None
        if layer not in self.auxiliaries:
            return up_to_date()
        history = self.auxiliaries[layer].pull(halo, self.graph.x.dtype)
        if self.alpha == 0:
            return history
        return (1 - self._beta) * history + self._beta * up_to_date()
