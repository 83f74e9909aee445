"""Precomputed: the network on rows that follows layers without anything to train, such as SIGN's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Kept, LayerSizes, Reference
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.sampled import TargetEstimator
from lmc.estimators.vjp import ParameterGradients
from lmc.malloc import trim_free_memory
from lmc.nn.model import LayerWidths, Model


@dataclass
class Precomputed(TargetEstimator):
    """The exact gradient of some training nodes, each a row that needs no other.

    zᴸ of every node, which no parameter changes, is computed once; a step takes the rows of its nodes, and
    runs the head on them. Edges are not read again.

    Args:
        batch_size: training nodes of a step.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = Precomputed(batch_size=20)
    >>> estimator.bind(lmc.SIGN(graph, hops=2, hidden=16), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    batch_size: int = 1024

    def __post_init__(self) -> None:
        checks.whole_number("batch_size", self.batch_size, 1)

    def remembered(self, model: Model, widths: list[LayerWidths]) -> Kept:
        """What each layer receives, once for all."""
        return Kept({place: width.received for place, width in enumerate(widths, start=1)}, {})

    def expected_sizes(self, graph: Graph, model: Model) -> list[LayerSizes]:
        """The rows of zᴸ; no messages, and nothing of the layers before."""
        rows = min(self.batch_size, int(graph.train_mask.sum()))
        return [LayerSizes(rows, 0, 0), *[LayerSizes(0, 0, 0)] * (len(model.layers) - 1)]

    def prepare_graph(self) -> None:
        """Compute zᴸ of every node."""
        parts = self.model.precomputed(self.graph)
        if parts is None:
            rule = "Precomputed needs layers without anything to train, such as those of lmc.SIGN"
            raise ArgumentError(f"model: {type(self.model.original).__name__}: {rule}")
        self._parts = parts
        trim_free_memory()

    def prepare(self, batch: Batch) -> None:
        """Nothing is built: a step takes rows. Those on their way to a device may go ahead."""
        there = self.placement.batch(batch, ahead=True)
        for part in self._parts if there is not batch else ():
            self.placement.fetch(there, part, "nodes")

    def estimate_on(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """Eq. (6): the head's derivatives, at rows of zᴸ."""
        step = self.step_on(batch, HaloPolicy())
        gradients = ParameterGradients(step.batch.weights)
        rows = (step.batch.rows_of(part, "nodes") for part in self._parts)
        z = torch.cat([self.placement.put(each) for each in rows], dim=1)
        losses = step.losses(z)
        gradients.vjp(losses, torch.ones_like(losses.value), self.model.head.parameters())
        return self.normalized(batch, step.weighted_sum(losses), gradients.of)

    def references(self) -> Reference:
        """The estimates themselves: they are exact for their rows."""
        return lambda batch: self.estimate_on(batch)[1]
