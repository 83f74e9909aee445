"""Convex mixes of what is historical and what is new but incomplete: of values, or of their sums."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from lmc.data.batch import Batch
from lmc.estimators.beta import Beta, FoundBeta
from lmc.estimators.halo import OfRows, some_of
from lmc.estimators.history import History
from lmc.estimators.history_estimator import HistoricalHalo
from lmc.estimators.placement import in_full

if TYPE_CHECKING:
    from lmc.estimators.lmc import LMC


class MixedHalo(HistoricalHalo):
    """What both mixes share: (1 - β) historical + β incomplete, with the β of each halo row's share x.

    Args:
        estimator: whose histories and β.
        batch: whose halo.
    """

    follows_back = False

    def __init__(self, estimator: LMC, batch: Batch) -> None:
        super().__init__(estimator, batch)
        self._batch, self._last = batch, len(estimator.model.layers)
        self._forward, self._backward = estimator.forward_beta, estimator.backward_beta
        self.reads_losses = estimator.compensate_backward

    def mixed(
        self, betas: dict[int, Beta], histories: dict[int, History], layer: int, incomplete: OfRows
    ) -> Tensor:
        """(halo, width) of one layer; what is not remembered is complete."""
        if layer not in histories:
            return incomplete(None)
        historical = self.historical(histories, layer)
        if layer not in betas:
            return historical
        beta = betas[layer](self._batch.local_share)
        if layer == self._last:  # whose rows are read by their losses alone
            beta = beta * self._batch.train_mask[self._batch.num_nodes :, None]
        rows, beta = beta[:, 0].nonzero()[:, 0], self._placement.put(beta)
        if len(rows) == 0:
            return historical
        if len(rows) == len(beta):
            return historical.lerp_(incomplete(None), beta)
        historical[rows] = historical[rows].lerp_(incomplete(rows), beta[rows])
        return historical


class MixedValues(MixedHalo):
    """Equations (9) and (12) at one step."""

    def __init__(self, estimator: LMC, batch: Batch) -> None:
        super().__init__(estimator, batch)
        self.incomplete_from = "reach" if self._forward else None
        self.revisits = bool(self._backward) and self.reads_losses

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) eq. (9)."""
        if incomplete is None:
            return self.historical(self._embeddings, layer)
        return self.mixed(self._forward, self._embeddings, layer, partial(some_of, incomplete))

    def auxiliaries(self, layer: int, incomplete: Callable[[], Tensor]) -> Tensor | None:
        """(halo, width) eq. (12); at the last layer, the derivatives of the halo's own losses."""
        if not self.reads_losses:
            return None
        return self.mixed(self._backward, self._auxiliaries, layer, lambda rows: some_of(incomplete(), rows))


class MixedSums(MixedHalo):
    """Equations (9) and (12) one linear map earlier, where messages are added up.

    Ĥ = update((1 - β) R̄ + β R̃), with what a halo row has received when it was last in a batch, R̄, and what
    it receives now from its neighbours in reach, R̃; V̂ in the same way, of what comes back. The maps that
    follow, and the derivatives of the non-linearity, are then those of now for all of it. The sums of the
    features, where the first layer has them, are known.
    """

    exact_first = True
    incomplete_from = "reach"

    def __init__(self, estimator: LMC, batch: Batch) -> None:
        super().__init__(estimator, batch)
        self.revisits = self.reads_losses and bool(self._auxiliaries)
        self._learns = batch.num_halo > 0
        if not self._writes:  # a frozen estimate finds β as any other, and forgets it
            self._forward, self._backward = deepcopy(self._forward), deepcopy(self._backward)

    # -- the halo --------------------------------------------------------------------------------------

    def received(self, layer: int, incomplete: OfRows) -> Tensor:
        """(halo, width) the sums that H̃ˡ is made of, mixed."""
        return self.mixed(self._forward, self._embeddings, layer, incomplete)

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) Ĥˡ: what was made of mixed sums."""
        assert incomplete is not None
        return incomplete

    def returned(self, layer: int, incomplete: OfRows) -> Tensor:
        """(halo, width) the sums that Ṽˡ is made of, mixed."""
        return self.mixed(self._backward, self._auxiliaries, layer, incomplete)

    def auxiliaries(self, layer: int, incomplete: Callable[[], Tensor]) -> Tensor | None:
        """(halo, width) V̂ˡ: what was made of mixed sums."""
        return incomplete() if self.reads_losses else None

    # -- the batch -------------------------------------------------------------------------------------

    def keep_embeddings(self, layer: int, z: Tensor, z_halo: Tensor | None) -> None:
        """Nothing: sums are kept in their place."""

    def keep_auxiliaries(self, layer: int, v: Tensor) -> None:
        """Nothing: sums are kept in their place."""

    def keep_received(self, layer: int, received: Tensor, from_batch: Callable[[], Tensor]) -> None:
        """Write the batch's rows; some of them tell how far to trust what was written before."""
        self._keep(self._forward, self._embeddings, layer, received, from_batch)

    def keep_returned(self, layer: int, returned: Tensor, from_batch: Callable[[], Tensor]) -> None:
        """The same of what has come back."""
        self._keep(self._backward, self._auxiliaries, layer, returned, from_batch)

    def _keep(
        self,
        betas: dict[int, Beta],
        histories: dict[int, History],
        layer: int,
        sums: Tensor,
        from_batch: Callable[[], Tensor],
    ) -> None:
        beta = betas.get(layer)
        if layer in histories and self._learns and isinstance(beta, FoundBeta):
            rows, share = self._batch.telling
            places = self._inside[self._batch.host.telling.rows]
            # Each has a place, in batches of the clusters that the estimator was bound for.
            if len(rows) > 0 and bool((places >= 0).all()):
                old = in_full(histories[layer].pull(places))
                beta.learn(share, in_full(sums[rows]), old, in_full(from_batch()))
        self.write(histories, layer, self._inside, sums)
