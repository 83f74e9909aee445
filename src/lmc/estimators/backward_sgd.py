"""BackwardSGD: exact values outside of the batch (section 4.2), the unbiased reference of Theorem 1."""

from __future__ import annotations

from dataclasses import dataclass

from lmc.data.batch import Batch
from lmc.estimators.estimator import Estimator
from lmc.estimators.exact import ExactHalo, exact_values
from lmc.estimators.halo import HaloPolicy
from lmc.nn.module_context import untouched_statistics


@dataclass
class BackwardSGD(Estimator):
    """The sum over batch rows of equations (6) and (7), at exact embeddings and auxiliary variables.

    Each step passes over the whole graph: a reference to measure others by, not a way to train. The estimate
    is unbiased (Theorem 1) for every convolution, linear or not, at the dropout masks of the step. Two
    things are not a node's own, and leave a bias: a batch norm in training mode, which normalises the
    batch by its own statistics, as for every estimator; and dropout within a convolution, as attention may
    have, which is drawn for each call.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = BackwardSGD()
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    @property
    def passes_over_graph(self) -> bool:
        """Whether each step reads the whole graph: for what is exact outside."""
        return True

    def halo_policy(self, batch: Batch) -> HaloPolicy:
        """The halo as it is, by a pass over the whole graph."""
        with untouched_statistics(self.model):
            values = exact_values(self.step_on(self.whole, HaloPolicy()))
        return ExactHalo(values, batch)
