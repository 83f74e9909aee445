"""What estimators share that draw some of the messages, layer by layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from lmc import checks
from lmc.batching.samplers import BatchOptions, Sampler
from lmc.batching.targets import TargetBatch, TargetSampler
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.data.sampled import SampledBlock
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator
from lmc.estimators.sampled_step import SampledStep
from lmc.nn.model import LinearLayer, Model
from lmc.sparse import CSR

Address = tuple[int, ...]
"""What draws depend on: (seed, epoch, step), or (seed, step) for a batch of a user's own."""


class Drawn(NamedTuple):
    """What a step runs on.

    Attributes:
        blocks: a block for each layer, from the first to the last.
        weights: (nodes of the last block,) how much each loss counts; None where all count the same.
    """

    blocks: Sequence[SampledBlock]
    weights: Tensor | None = None


class SampledEstimator(Estimator):
    """An estimator that draws messages for each step anew: blocks, in the background where there is one.

    A subclass says what is drawn: `draw`.
    """

    batch_size: int
    _ahead: WeakKeyDictionary[Batch, Drawn]

    @abstractmethod
    def draw(self, batch: Batch, address: Address) -> Drawn:
        """What a step on a batch runs on."""

    def check_batches(self, options: BatchOptions) -> None:
        """It needs no clusters."""

    def make_sampler(self, graph: Graph, options: BatchOptions) -> Sampler:
        """Groups of training nodes."""
        return TargetSampler(graph, self.batch_size, options.seed)

    def reset(self) -> None:
        """Forget what was drawn ahead."""
        super().reset()
        self._ahead = WeakKeyDictionary()

    def prepare_graph(self) -> None:
        """What draws read of the graph."""
        _ = self.senders
        super().prepare_graph()

    def prepare(self, batch: Batch) -> None:
        """Draw, and build all that the step will read."""
        drawn = self.draw(batch, self._address(batch))
        for layer, block in zip(self.model.layers, drawn.blocks, strict=True):
            layer.prepare(block, halo=False)
        self._ahead[batch] = drawn

    def estimate_on(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The estimate of what was drawn ahead, or is drawn now."""
        drawn = self._ahead.pop(batch, None) or self.draw(batch, self._address(batch))
        return self.normalized(batch, *self.step_over(drawn).run())

    def step_over(self, drawn: Drawn) -> SampledStep:
        """The step itself, not yet run."""
        return SampledStep(self.model, *drawn, self.loss, (self._seed, self._step), self.placement)

    def _address(self, batch: Batch) -> Address:
        if isinstance(batch, TargetBatch) and batch.address:
            return batch.address
        return (self._seed, self._step)

    @property
    def senders(self) -> CSR:
        """(nodes, nodes) from whom each node may hear, itself not among them."""
        both_ways = any(layer.both_ways for layer in self.model.layers)
        return self.graph.neighbours if both_ways else self.graph.sources


def per_layer(name: str, given: Sequence[int], least: int, model: Model) -> list[int]:
    """A number for each layer, from the first to the last; ArgumentError where it is not so."""
    numbers = [checks.whole_number(f"{name}[{place}]", each, least) for place, each in enumerate(given)]
    if len(numbers) != len(model.layers):
        rule = f"the model has {len(model.layers)} layers; give a number for each"
        raise ArgumentError(f"{name}={list(given)}: {rule}")
    return numbers


def linear_layers(method: str, model: Model) -> list[LinearLayer]:
    """The model's layers, if each adds up its messages; else ArgumentError."""
    for place, layer in enumerate(model.layers):
        if not isinstance(layer, LinearLayer):
            rule = f"{method} needs sums of messages, and layers.{place} does more with them than add up"
            raise ArgumentError(f"model: {rule}; NeighborSampling and GraphSAINT take it")
    return [layer for layer in model.layers if isinstance(layer, LinearLayer)]
