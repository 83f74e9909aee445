"""NeighborSampling (GraphSAGE; Hamilton et al., 2017): some neighbours of every node, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lmc import checks, hashed_random, kernels
from lmc.data.batch import Batch
from lmc.data.sampled import SampledBlock
from lmc.estimators.sampled import Address, Drawn, SampledEstimator, per_layer
from lmc.sparse import CSR


@dataclass
class NeighborSampling(SampledEstimator):
    """Targets are training nodes; at each layer a node hears itself and some of its neighbours.

    Those are drawn without replacement, and stand for all: sums are unbiased, means are means of those drawn.
    Layers that do more with messages than add them up, such as attention or a maximum, take those drawn as
    if there were no others, as in PyG.

    Args:
        fanouts: neighbours of a node, by layer, the last layer first, as in PyG: those of the targets, then
            those of their neighbours, and so on. -1 for all.
        batch_size: targets of a step.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = NeighborSampling(fanouts=[5, 5], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    fanouts: Sequence[int] = (25, 10)
    batch_size: int = 1024

    def __post_init__(self) -> None:
        checks.whole_number("batch_size", self.batch_size, 1)

    def draw(self, batch: Batch, address: Address) -> Drawn:
        """A block for each layer, from the targets back."""
        blocks, nodes = list[SampledBlock](), batch.nodes
        for place, most in enumerate(per_layer("fanouts", self.fanouts, -1, self.model)):
            heard = self.drawn_of(nodes, most, (*address, place))
            blocks.insert(0, SampledBlock.of_heard(self.graph, nodes, heard))
            nodes = blocks[0].members
        return Drawn(blocks)

    def drawn_of(self, nodes: Tensor, most: int, address: Address) -> CSR:
        """(nodes, graph's nodes) each node and some of its neighbours, and how many those stand for."""
        senders, draw = self.senders, kernels.kernels_for().draw
        keys = hashed_random.bits(*address, nodes.numpy())
        return CSR(*draw(senders.indptr, senders.indices, nodes, keys, most), senders.num_cols)
