"""LMC: local message compensation, forward and backward (section 5, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from lmc import checks
from lmc.data.batch import Batch
from lmc.device import on_host
from lmc.errors import ArgumentError
from lmc.estimators.beta import SCORES, Beta, FixedBeta, FoundBeta, Score
from lmc.estimators.estimator import Kept
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.history_estimator import HistoryEstimator
from lmc.estimators.mixed_halo import MixedSums, MixedValues
from lmc.estimators.step import first_messages_are_features
from lmc.nn.model import LayerWidths, Model
from lmc.nn.module_context import training_mode
from lmc.precision import Precision

Mix = Literal["values", "sums"]
MakeBeta = Callable[[], Beta]
PRIORS: tuple[Score, Score] = ("x^2", "2x^2")
"""β forward and backward before anything is found: the best of all fixed ones."""


@dataclass
class LMC(HistoryEstimator):
    """Convex mixes of historical and incomplete up-to-date values, for embeddings and their derivatives.

        Ĥ = (1 - β) H̄ + β H̃,  V̂ = (1 - β) V̄ + β Ṽ,  β = alpha score(x)

    where x is the share of a halo node's neighbours that are in the batch or the halo. With a number as
    `alpha` that is the paper's method. By default it goes beyond that in two ways: what is remembered and
    mixed are the sums of messages that values are made of, so that the parameters in every value are those
    of now (where the first layer adds up features, its sums are known and exact); and β is found by least
    squares from what batches show, layer by layer; `docs/method.md` says how.

    Args:
        alpha: in [0, 1], or `"auto"`: β is found. At 0 only history is taken.
        score: of a number `alpha`: `"x^2"`, `"2x^2"` (at most 1), `"2x-x^2"`, `"x"`, `"1"` or `"sin"`.
        backward_score: of derivatives; None for the same.
        compensate_forward: whether embeddings are mixed (C_f); if not, they are historical.
        compensate_backward: whether derivatives come from the halo (C_b); if not, they are dropped, as in
            GAS.
        precision: of histories and computation, see `Precision`.
        mix: of `"values"`, as in the paper, or of the `"sums"` they are made of; None for sums where β is
            found, for values where alpha is a number.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = LMC(alpha=0.4, score="2x-x^2")
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    alpha: float | Literal["auto"] = "auto"
    score: Score = "2x-x^2"
    compensate_forward: bool = True
    compensate_backward: bool = True
    precision: Precision = "full"
    backward_score: Score | None = None
    mix: Mix | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("score", self.score, Score)
        if self.backward_score is not None:
            checks.one_of("backward_score", self.backward_score, Score)
        if self.mix is not None:
            checks.one_of("mix", self.mix, Mix)
        alpha: Any = self.alpha
        if isinstance(alpha, str) and alpha == "auto":
            for name, default in (("score", "2x-x^2"), ("backward_score", None)):
                if (given := getattr(self, name)) != default:
                    raise ArgumentError(
                        f"{name}={given!r}: is of a number alpha; alpha='auto' finds β itself"
                    )
            if self.mix == "values":
                raise ArgumentError("mix='values': β is found for sums; alpha must be a number in [0, 1]")
        elif isinstance(alpha, str) or not 0 <= checks.real("alpha", alpha) <= 1:
            raise ArgumentError(f"alpha={checks.shown(alpha)}: must be in [0, 1] or 'auto'")
        for name in ("compensate_forward", "compensate_backward"):
            checks.truth(name, getattr(self, name))

    @property
    def mixes_sums(self) -> bool:
        """Whether histories are of sums."""
        return self.mix == "sums" or self.alpha == "auto"

    @property
    def computes_halo(self) -> bool:
        """Whether there is something to mix, or to make of sums."""
        return self.alpha != 0 or self.mixes_sums

    def remembered(self, model: Model, widths: list[LayerWidths]) -> Kept:
        """Embeddings up to the last layer, where the halo's own losses begin; auxiliaries before it.

        Auxiliaries of the first layer serve what comes before its aggregation: without parameters there,
        nothing would read them. Parameters that are frozen count, since they may be thawed.
        """
        depth, sums = len(widths), self.mixes_sums
        embeddings = range(1, depth + 1 if self.compensate_backward else depth)
        auxiliaries = range(
            1 if model.parameters_before_first else 2, depth if self.compensate_backward else 0
        )
        if not sums:
            return Kept(
                {layer: widths[layer - 1].boundary for layer in embeddings},
                {layer: widths[layer - 1].boundary for layer in auxiliaries},
            )
        with training_mode(model):  # in which features may be dropped
            known = 1 if first_messages_are_features(model) else 0
        return Kept(
            {layer: widths[layer - 1].received for layer in embeddings if layer > known},
            {layer: widths[layer].returned for layer in auxiliaries},
        )

    def reset(self) -> None:
        """Forget all histories, and the β that was found."""
        kept = self.remembered(self.model, self._widths)
        forward, backward = self._make_betas()
        mixes_forward = self.alpha != 0 and self.compensate_forward
        self.forward_beta = {layer: forward() for layer in kept.embeddings if mixes_forward}
        self.backward_beta = {layer: backward() for layer in kept.auxiliaries if self.alpha != 0}
        super().reset()

    def _make_betas(self) -> tuple[MakeBeta, MakeBeta]:
        """What makes the β of a layer, forward and backward."""
        if self.alpha == "auto":
            forward, backward = (partial(FoundBeta, SCORES[prior], self.placement.device) for prior in PRIORS)
            return forward, backward
        scores = SCORES[self.score], SCORES[self.backward_score or self.score]
        return partial(FixedBeta, self.alpha, scores[0]), partial(FixedBeta, self.alpha, scores[1])

    def halo_policy(self, batch: Batch) -> HaloPolicy:
        """Mixes by the β of this batch."""
        return MixedSums(self, batch) if self.mixes_sums else MixedValues(self, batch)

    def prepare(self, batch: Batch) -> None:
        """Build what a step will read, of halo rows too where their values are mixed."""
        there = self.prepare_there(batch, halo=self.alpha != 0)
        if self.alpha != 0:
            _ = there.local_share
        if self.alpha == "auto":
            self.model.prepare_telling(there)
        self.expect(batch)

    def read_in(self, batch: Batch) -> Tensor:
        """(any,) the nodes whose histories a step reads: where β is found, also of rows that tell of it."""
        if self.alpha != "auto":
            return batch.halo
        return torch.cat([batch.halo, batch.nodes[batch.telling.rows]])

    def state_dict(self) -> dict[str, Tensor]:
        """The step, every history, and what β was found from."""
        return super().state_dict() | {name: beta.sums for name, beta in self._found().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken, by an estimator bound in the same way."""
        super().load_state_dict(state)
        for name, beta in self._found().items():
            beta.sums.copy_(state[name])

    def learned(self) -> list[Tensor]:
        """What β was found from."""
        return [beta.sums for beta in self._found().values()]

    def found(self) -> dict[str, float]:
        """β forward and backward, on average over layers and tenths of x."""
        directions = {"forward": self.forward_beta, "backward": self.backward_beta}
        return {
            f"β {name}": float(on_host(torch.stack([beta.by_tenths for beta in found]).mean()))
            for name, betas in directions.items()
            if (found := [beta for beta in betas.values() if isinstance(beta, FoundBeta)])
        }

    def _found(self) -> dict[str, FoundBeta]:
        forward = {f"beta.forward.{layer}": beta for layer, beta in self.forward_beta.items()}
        backward = {f"beta.backward.{layer}": beta for layer, beta in self.backward_beta.items()}
        return {name: beta for name, beta in (forward | backward).items() if isinstance(beta, FoundBeta)}
