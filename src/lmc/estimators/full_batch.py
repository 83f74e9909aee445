"""FullBatch: gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from lmc.data.batch import Batch
from lmc.estimators.estimator import Estimator
from lmc.estimators.step import NoHalo, Outside


@dataclass
class FullBatch(Estimator):
    """The gradient itself, over all nodes, whichever batch it is asked for.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = FullBatch()
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(100)))
    """

    needs_parts = False

    def scene(self, batch: Batch) -> tuple[Batch, Outside]:
        """Everything is inside."""
        return self.whole, NoHalo()
