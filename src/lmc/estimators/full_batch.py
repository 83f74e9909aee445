"""FullBatch: gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from lmc.batching.samplers import BatchOptions, Sampler, WholeGraph
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.estimators.estimator import Estimator, Reference


@dataclass
class FullBatch(Estimator):
    """The gradient itself, over all nodes, whichever batch it is asked for.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = FullBatch()
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(100)))
    """

    def check_batches(self, options: BatchOptions) -> None:
        """It needs no clusters."""

    def make_sampler(self, graph: Graph, options: BatchOptions) -> Sampler:
        """One batch of everything."""
        return WholeGraph(graph)

    def trained_on(self, batch: Batch) -> Batch:
        """Everything is inside."""
        return self.whole

    def references(self) -> Reference:
        """The gradient itself, of any batch: it has neither bias nor spread."""
        gradient = self.estimate_on(self.whole)[1]
        return lambda batch: gradient
