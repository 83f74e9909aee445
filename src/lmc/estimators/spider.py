"""Spider: an estimator made of an estimator, by what changed since the step before (section TOP-SPIDER)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.batching.samplers import BatchOptions, ClusterSampler, Sampler
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator, Init, Kept, LayerSizes, Reference
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.history import MakeHistory, MemoryHistory, Remembered
from lmc.estimators.losses import Loss
from lmc.nn.model import LayerWidths, Model
from lmc.nn.module_context import untouched_statistics
from lmc.precision import Precision

_INNER = "inner."


@dataclass
class Spider(Estimator):
    """Now and then the estimate of a large batch; between them it is brought up to date by small ones.

        g_k = ∇L(W_k, B_k)                                  where k is a multiple of `every`, on a large batch
        g_k = ∇L(W_k, B_k) - ∇L(W_{k-1}, B_k) + g_{k-1}      else, on a small one

    ∇L(W, B) is the estimate of `inner`, W_{k-1} what the parameters were at the call before: any optimizer
    may have moved them. Both estimates of a batch read the same histories, have the same dropout masks and
    the same draws; only the one at W_k leaves a trace. A step costs two of `inner`, in the memory of one.

    That holds for parameters that are trained at `bind`; of those thawed later, estimates are plain ones.

    Args:
        inner: whose estimates.
        every: q, calls from one large batch to the next; the first call is one.
        large: clusters in a large batch of `lmc.fit`; None for as many as `every` small ones have, or all
            there are. In a loop of your own a batch is as large as you make it.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = Spider(lmc.LMC(), every=10)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(100)))
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    inner: Estimator
    every: int = 10
    large: int | None = None

    def __post_init__(self) -> None:
        inner: Any = self.inner
        if not isinstance(inner, Estimator):
            rule = "must be an lmc.Estimator, such as lmc.LMC()"
            raise ArgumentError(f"inner={checks.shown(inner)}: {rule}")
        if isinstance(inner, Spider):
            raise ArgumentError("inner: is a Spider already; must be another estimator")
        checks.whole_number("every", self.every, 1)
        if self.large is not None:
            checks.whole_number("large", self.large, 1)
        self.precision = self.inner.precision

    # -- the estimate --------------------------------------------------------------------------------

    def estimate_on(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """g_k."""
        self.inner.watch = self.watch
        if self._step % self.every == 0:
            loss, estimate = self.inner.estimate(batch)
        else:
            before = self._at_previous_parameters(batch)  # first: histories are those before the step
            loss, now = self.inner.estimate(batch)
            estimate = now | {p: now[p] - before[p] + last for p, last in self._last.items() if p in now}
        if not self.is_frozen:
            for p, last in self._last.items():
                self._previous[p].copy_(p.detach())
                last.copy_(estimate[p]) if p in estimate else last.zero_()
        return loss, estimate

    def _at_previous_parameters(self, batch: Batch) -> dict[nn.Parameter, Tensor]:
        """∇L(W_{k-1}, B_k), which leaves no trace."""
        now = {p: p.data for p in self._previous}
        with self.inner.frozen(), untouched_statistics(self.model):
            try:
                for p, previous in self._previous.items():
                    p.data = previous
                return self.inner.estimate(batch)[1]
            finally:
                for p, current in now.items():
                    p.data = current

    # -- its state -----------------------------------------------------------------------------------

    def bind(
        self,
        model: Model,
        graph: Graph,
        init: Init = "zero",
        loss: Loss | None = None,
        seed: int = 0,
        histories: MakeHistory = MemoryHistory,
        outside: Tensor | Remembered | None = None,
        precision: Precision | None = None,
        device: str | torch.device | None = None,
        room: int | None = None,
    ) -> None:
        """Bind `inner`, and make room for W_{k-1} and g_{k-1}; see `Estimator.bind`."""
        self.inner.bind(model, graph, init, loss, seed, histories, outside, precision, device, room)
        self.model, self.graph = model, graph
        self.loss, self.placement = self.inner.loss, self.inner.placement
        self._times_changed = self.inner._times_changed
        self._begin()

    def reset(self) -> None:
        """Forget what was learned since `bind`, also by `inner`."""
        self.inner.reset()
        self._begin()

    def _begin(self) -> None:
        self._step = 0
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self._named = trained
        self._previous = {p: p.detach().clone() for p in trained.values()}
        self._last = {p: p.new_zeros(p.shape) for p in trained.values()}

    def state_dict(self) -> dict[str, Tensor]:
        """k, W_{k-1}, g_{k-1}, and the state of `inner`."""
        previous = {f"previous.{name}": self._previous[p] for name, p in self._named.items()}
        last = {f"estimate.{name}": self._last[p] for name, p in self._named.items()}
        inner = {_INNER + name: value for name, value in self.inner.state_dict().items()}
        return super().state_dict() | previous | last | inner

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken, by an estimator bound in the same way."""
        super().load_state_dict(state)
        for name, p in self._named.items():
            self._previous[p].copy_(state[f"previous.{name}"])
            self._last[p].copy_(state[f"estimate.{name}"])
        of_inner = {name: value for name, value in state.items() if name.startswith(_INNER)}
        self.inner.load_state_dict({name[len(_INNER) :]: value for name, value in of_inner.items()})

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Estimates in this context are what they would be outside of it, and leave no trace here."""
        with super().frozen(), self.inner.frozen():
            yield

    # -- its batches ---------------------------------------------------------------------------------

    def check_batches(self, options: BatchOptions) -> None:
        """Raise ArgumentError unless `inner` can work on batches of this kind, and there are large ones."""
        self.inner.check_batches(options)
        if self.large is not None and options.parts is not None and self.large > options.parts:
            raise ArgumentError(f"large={self.large}: must be at most parts={options.parts}")

    def make_sampler(self, graph: Graph, options: BatchOptions) -> Sampler:
        """That of `inner`, with large groups of clusters every now and then, where it has clusters."""
        sampler = self.inner.make_sampler(graph, options)
        if isinstance(sampler, ClusterSampler):
            sampler.enlarge(self.every, self.large)
        elif self.large is not None:
            rule = f"batches of {type(self.inner).__name__} are not made of clusters; leave it out"
            raise ArgumentError(f"large={self.large}: {rule}")
        return sampler

    # -- what is that of `inner` ---------------------------------------------------------------------

    @property
    def computes_halo(self) -> bool:
        """Whether halo rows are computed at a step, not only fetched."""
        return self.inner.computes_halo

    @property
    def passes_over_graph(self) -> bool:
        """Whether each step reads the whole graph, whatever its batch is."""
        return self.inner.passes_over_graph

    @property
    def whole(self) -> Batch:
        """The batch of all nodes, with all that was built for it."""
        return self.inner.whole

    def remembered(self, model: Model, widths: list[LayerWidths]) -> Kept:
        """What is kept of every node."""
        return self.inner.remembered(model, widths)

    def expected_sizes(self, graph: Graph, model: Model) -> list[LayerSizes] | None:
        """What a step has in each layer, the last layer first; None where each is one over a batch."""
        return self.inner.expected_sizes(graph, model)

    def prepare(self, batch: Batch) -> None:
        """Build all that a step will read of a batch."""
        self.inner.prepare(batch)

    def estimate_with(self, batch: Batch, halo: HaloPolicy) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The estimate with any policy, at the parameters as they are."""
        return self.inner.estimate_with(batch, halo)

    def references(self) -> Reference:
        """Of a batch, its exact estimate at the parameters as they are."""
        return self.inner.references()

    def found(self) -> dict[str, float]:
        """Numbers that the method has found by itself so far."""
        return self.inner.found()
