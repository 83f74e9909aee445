"""What estimators share that draw some of the messages, layer by layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from lmc import checks
from lmc.batching.samplers import BatchOptions, Sampler
from lmc.batching.targets import TargetBatch, TargetSampler
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.data.sampled import SampledBlock
from lmc.device import copied
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator, LayerSizes, Reference
from lmc.estimators.loss_reference import gradients_of_losses
from lmc.estimators.sampled_step import SampledStep
from lmc.nn.model import LinearLayer, Model
from lmc.sparse import CSR

Address = tuple[int, ...]
"""What draws depend on: (seed, epoch, step), or (seed, step) for a batch of a user's own."""


class TargetEstimator(Estimator):
    """An estimator whose batches are groups of training nodes."""

    batch_size: int

    def check_batches(self, options: BatchOptions) -> None:
        """It needs no clusters."""

    def make_sampler(self, graph: Graph, options: BatchOptions) -> Sampler:
        """Groups of training nodes."""
        return TargetSampler(graph, self.batch_size, options.seed)


class SampledEstimator(TargetEstimator):
    """An estimator that draws messages for each step anew: blocks, in the background where there is one.

    A subclass says what is drawn: `draw`.
    """

    _ahead: WeakKeyDictionary[Batch, Sequence[SampledBlock]]

    @abstractmethod
    def draw(self, batch: Batch, address: Address) -> Sequence[SampledBlock]:
        """A block for each layer, from the first to the last, whose nodes are those of the batch."""

    def loss_weights(self, batch: Batch) -> Tensor | None:
        """(nodes,) how much each loss of a batch counts, besides its scale; None for all alike."""
        return batch.weights

    @abstractmethod
    def expected_sizes(self, graph: Graph, model: Model) -> list[LayerSizes]:
        """What a step has in each layer, the last layer first, at nodes of the mean degree."""

    def reset(self) -> None:
        """Forget what was drawn ahead."""
        super().reset()
        self._ahead = WeakKeyDictionary()

    def prepare_graph(self) -> None:
        """What draws read of the graph."""
        _ = self.senders
        super().prepare_graph()

    def prepare(self, batch: Batch) -> None:
        """Draw, and build all that the step will read; not where draws depend on the steps made so far."""
        if isinstance(batch, TargetBatch):
            blocks = self.draw(batch, batch.address)
            there = [self.placement.batch(block, ahead=True) for block in blocks]
            for layer, block in zip(self.model.layers, there, strict=True):
                layer.prepare(block, halo=False)
            if there[0] is not blocks[0]:
                _ = there[-1].y, there[-1].train_mask
                self.placement.fetch(there[0], self.graph.x, "members")
            self._ahead[batch] = blocks

    def estimate_on(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The estimate of what was drawn ahead, or is drawn now."""
        blocks = self._ahead.get(batch) if self.is_frozen else self._ahead.pop(batch, None)
        if blocks is None:
            address = batch.address if isinstance(batch, TargetBatch) else (self._seed, self._step)
            blocks = self.draw(batch, address)
        return self.normalized(batch, *self.step_over(blocks, self.loss_weights(batch)).run())

    def references(self) -> Reference:
        """The gradient of a batch's own losses, with all messages."""
        return gradients_of_losses(self, self.loss_weights)

    def step_over(self, blocks: Sequence[SampledBlock], weights: Tensor | None) -> SampledStep:
        """The step itself, not yet run."""
        address, here = (self._seed, self._step), self.placement
        placed = [here.batch(block) for block in blocks]
        weights = None if weights is None else copied(weights, here.device)
        return SampledStep(self.model, placed, weights, self.loss, address, here)

    @property
    def senders(self) -> CSR:
        """(nodes, nodes) from whom each node may hear, itself not among them."""
        both_ways = any(layer.both_ways for layer in self.model.layers)
        return self.graph.neighbours if both_ways else self.graph.sources


def check_numbers(name: str, given: Any, least: int) -> None:
    """Raise ArgumentError unless it is None, or a list of one number or more, each `least` or more."""
    if given is None:
        return
    numbers = checks.sequence(name, given)
    if len(numbers) == 0:
        raise ArgumentError(f"{name}=[]: must be a number for each layer, or for the last ones")
    for place, each in enumerate(numbers):
        checks.whole_number(f"{name}[{place}]", each, least)


def per_layer(name: str, given: Sequence[int] | None, usual: Sequence[int], model: Model) -> list[int]:
    """A number for each layer, the last layer first; the last number also for those that have none.

    Args:
        name: of the option.
        given: what was asked for; None for what is usual.
        usual: what is usual: as many of them as there are layers.
        model: whose layers; fewer than there are numbers given are an ArgumentError.
    """
    depth = len(model.layers)
    if given is not None and len(given) > depth:
        rule = f"the model has {depth} layer{'s' * (depth > 1)}; give as many numbers, or fewer"
        raise ArgumentError(f"{name}={list(given)}: {rule}")
    numbers = list(usual if given is None else given)
    return (numbers + numbers[-1:] * depth)[:depth]


def mean_degree(graph: Graph) -> int:
    """How many neighbours a node hears, itself among them, on average; rounded up."""
    return 1 + -(-graph.sources.num_entries // graph.num_nodes)


def linear_layers(method: str, model: Model) -> list[LinearLayer]:
    """The model's layers, if each adds up its messages; else ArgumentError."""
    for place, layer in enumerate(model.layers):
        if not isinstance(layer, LinearLayer):
            rule = f"{method} needs sums of messages, and layers.{place} does more with them than add up"
            raise ArgumentError(f"model: {rule}; NeighborSampling and GraphSAINT take it")
    return [layer for layer in model.layers if isinstance(layer, LinearLayer)]
