"""MVS-GNN (Cong et al., 2020): nodes with large gradients are drawn more often, and count less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lmc import checks
from lmc.batching.minimal_variance import importance_of, minimal_variance_chances, systematic_draw
from lmc.batching.samplers import BatchOptions, Sampler
from lmc.batching.targets import CandidateSampler, TargetBatch
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.device import on_host
from lmc.estimators.estimator import Reference
from lmc.estimators.exact import exact_values
from lmc.estimators.history_estimator import HistoryEstimator
from lmc.estimators.loss_reference import gradients_of_losses
from lmc.nn.model import LinearLayer
from lmc.precision import Precision

Importance = Literal["gradients", "uniform"]


@dataclass
class MVSGNN(HistoryEstimator):
    """Training nodes are drawn with the chances π that leave the least variance; their losses count 1 / π.

        π_i = min(1, |g_i| / μ), Σπ = batch_size

    where g_i is the gradient of node i's own loss by the last map; a tenth of |g| is the mean of all instead,
    so that no weight is large. `bind`, whatever its `init` is, and then every so many steps compute norms
    and embeddings of all nodes, by an exact pass forward over the graph. At the steps between, Ĥ = H̄ and
    V̂ = 0 outside of what is drawn, as in `GAS`. A batch of your own is not drawn from: it is a step of `GAS`.

    Args:
        batch_size: nodes of a step; all training nodes, where there are no more.
        every: steps from one pass over the graph to the next; None for as many as an epoch has.
        importance: `"gradients"`, or `"uniform"` for equal chances, to compare with.
        precision: of histories and computation, see `Precision`.

    Attributes:
        chances: (training nodes,) π as it is now.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = MVSGNN(batch_size=20)
    >>> result = lmc.fit(graph, lmc.GCN(graph.num_features, 16, graph.num_classes), estimator, epochs=2)
    >>> float(estimator.chances.sum().round(6))
    20.0
    """

    batch_size: int = 1024
    every: int | None = None
    importance: Importance = "gradients"
    precision: Precision = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole_number("batch_size", self.batch_size, 1)
        if self.every is not None:
            checks.whole_number("every", self.every, 1)
        checks.one_of("importance", self.importance, Importance)

    def check_batches(self, options: BatchOptions) -> None:
        """It needs no clusters."""

    def make_sampler(self, graph: Graph, options: BatchOptions) -> Sampler:
        """All training nodes, to draw from."""
        return CandidateSampler(graph, self._steps(graph), options.seed)

    def _steps(self, graph: Graph) -> int:
        """Of an epoch: as many as visit each training node once, on average."""
        return -(-int(graph.train_mask.sum()) // self.batch_size)

    # -- a pass over the graph ---------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything but an exact pass at the parameters as they are."""
        self._targets = self.graph.train_mask.nonzero()[:, 0]
        self._take_norms(torch.ones(len(self._targets), dtype=torch.float64))
        self._init = "exact"  # whatever was asked for: there is nothing to draw by before
        super().reset()

    def fill_exactly(self) -> None:
        """Write the embeddings of all nodes, and how large the gradients of training nodes are."""
        whole = self.placement.batch(self.whole)
        step = self.step_on(whole, self.halo_policy(whole))
        watch = self._see if self.importance == "gradients" else None
        exact_values(replace(step, watch=watch), backward=False)

    def _see(self, whole: Batch, v: Tensor, received: Tensor) -> None:
        """|g_i|² = |v|² (|r|² + 1), of v ⊗ r and v, the gradients of a map and its bias; else |v|²."""
        squares = on_host(v)[self._targets].double().square().sum(1)
        if isinstance(self.model.layers[-1], LinearLayer):
            squares *= 1 + on_host(received)[self._targets].double().square().sum(1)
        self._take_norms(squares.sqrt())

    def _take_norms(self, norms: Tensor) -> None:
        self._norms = norms
        self.chances: NDArray[np.float64] = minimal_variance_chances(
            importance_of(norms.numpy()), self.batch_size
        )

    # -- steps between -----------------------------------------------------------------------------

    def prepare(self, batch: Batch) -> None:
        """Build what a step will read of a batch of a user's own; others are drawn when their step comes."""
        if not isinstance(batch, TargetBatch):
            super().prepare(batch)

    def estimate_on(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The gradient of the weighted losses of what is drawn, along messages among these."""
        if not isinstance(batch, TargetBatch):
            return super().estimate_on(batch)
        every = self.every or self._steps(self.graph)
        if self._step > 0 and self._step % every == 0 and not self.is_frozen:
            self.refill()
        weights = self.loss_weights(batch)
        assert weights is not None
        places = weights.nonzero()[:, 0]
        drawn = self.placement.batch(Batch.of_known(self.graph, batch.nodes[places], batch.scale))
        step, counted = self.step_on(drawn, self.halo_policy(drawn)), self.placement.put(weights[places])
        loss, gradients = replace(step, loss=lambda *given: counted * self.loss(*given)).run()
        return self.normalized(batch, loss, gradients.of)

    def loss_weights(self, batch: Batch) -> Tensor | None:
        """(nodes,) how much each loss counts: 1 / π over the scale if it is drawn, else 0.

        Those of a user's own batch are as they are.
        """
        if not isinstance(batch, TargetBatch):
            return batch.weights
        drawn = systematic_draw(self.chances, *batch.address)
        weights = np.zeros_like(self.chances)
        weights[drawn] = 1 / (batch.scale * self.chances[drawn])
        return torch.from_numpy(weights).to(self.placement.dtype)

    def references(self) -> Reference:
        """The gradient of the same weighted losses with all messages; its mean over draws is the gradient."""
        return gradients_of_losses(self, self.loss_weights)

    # -- its state ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The step, every history, and the norms of gradients."""
        return super().state_dict() | {"norms": self._norms}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken, by an estimator bound in the same way."""
        super().load_state_dict(state)
        self._take_norms(state["norms"].clone())
