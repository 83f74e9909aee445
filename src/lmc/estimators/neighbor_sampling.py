"""NeighborSampling (GraphSAGE; Hamilton et al., 2017): some neighbours of every node, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lmc import checks, hashed_random, kernels
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.data.sampled import SampledBlock
from lmc.errors import ArgumentError
from lmc.estimators.estimator import LayerSizes
from lmc.estimators.sampled import Address, SampledEstimator, check_numbers, mean_degree, per_layer
from lmc.nn.model import Model
from lmc.sparse import CSR


@dataclass
class NeighborSampling(SampledEstimator):
    """Targets are training nodes; at each layer a node hears itself and some of its neighbours.

    Those are drawn without replacement, and stand for all: sums are unbiased, means are means of those drawn.
    Layers that do more with messages than add them up, such as attention or a maximum, take those drawn as
    if there were no others, as in PyG.

    Args:
        fanouts: neighbours of a node, by layer, the last layer first, as in PyG: those of the targets, then
            those of their neighbours, and so on, the last number for all layers that remain. -1 for all
            neighbours. None for 25, 10, 10, ...
        batch_size: targets of a step.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = NeighborSampling(fanouts=[5, 5], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    usual_fanouts: ClassVar[Sequence[int]] = (25, 10)

    fanouts: list[int] | None = None
    batch_size: int = 1024

    def __post_init__(self) -> None:
        check_numbers("fanouts", self.fanouts, -1)
        if self.fanouts is not None and 0 in self.fanouts:
            raise ArgumentError(f"fanouts={self.fanouts}: each must be 1 or more, or -1 for all neighbours")
        checks.whole_number("batch_size", self.batch_size, 1)

    def prepare_graph(self) -> None:
        """How many neighbours each layer draws, and what draws read of the graph."""
        self._fanouts = per_layer("fanouts", self.fanouts, self.usual_fanouts, self.model)
        super().prepare_graph()

    def expected_sizes(self, graph: Graph, model: Model) -> list[LayerSizes]:
        """As if no two nodes had the same neighbours, up to the whole graph."""
        sizes, degree = list[LayerSizes](), mean_degree(graph)
        nodes = min(self.batch_size, int(graph.train_mask.sum()))
        for most in per_layer("fanouts", self.fanouts, self.usual_fanouts, model):
            messages = nodes * (degree if most < 0 else min(degree, most + 1))
            sizes.append(LayerSizes(nodes, min(graph.num_nodes, messages), messages))
            nodes = sizes[-1].members
        return sizes

    def draw(self, batch: Batch, address: Address) -> list[SampledBlock]:
        """A block for each layer, from the targets back."""
        blocks, nodes = list[SampledBlock](), batch.nodes
        for place, most in enumerate(self._fanouts):
            heard = self.drawn_of(nodes, most, (*address, place))
            blocks.insert(0, SampledBlock.of_heard(self.graph, nodes, heard))
            nodes = blocks[0].members
        return blocks

    def drawn_of(self, nodes: Tensor, most: int, address: Address) -> CSR:
        """(nodes, graph's nodes) each node and some of its neighbours, and how many those stand for."""
        senders, draw = self.senders, kernels.kernels_for().draw
        keys = hashed_random.bits(*address, nodes.numpy())
        offsets, columns, stand_for = draw(senders.indptr, senders.indices, nodes, keys, most)
        return CSR(offsets, columns, stand_for, senders.num_cols)
