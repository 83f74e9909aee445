"""ClusterGCN (Chiang et al., 2019): the batch as if there were nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from lmc.data.batch import Batch
from lmc.estimators.estimator import Estimator


@dataclass
class ClusterGCN(Estimator):
    """Messages from outside are dropped, and the adjacency is normalised within the batch.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = ClusterGCN()
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    def prepare_graph(self) -> None:
        """Nothing: a step reads its own subgraph alone."""

    def trained_on(self, batch: Batch) -> Batch:
        """The subgraph of the batch: there is no halo."""
        return batch.induced
