"""Layer-wise sampling: a few nodes for a layer, heard by all that have them for neighbours.

FastGCN (Chen et al., 2018) draws them from all nodes, LADIES (Zou et al., 2019) from the neighbours of the
layer above.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lmc import checks, hashed_random
from lmc.data.batch import Batch
from lmc.data.normalization import normalize
from lmc.data.sampled import SampledBlock, heard_among
from lmc.errors import ArgumentError
from lmc.estimators.sampled import Address, Drawn, SampledEstimator, linear_layers, per_layer
from lmc.sparse import CSR


@dataclass
class LayerSampling(SampledEstimator):
    """What both methods share: blocks from the targets back, each with nodes of its own."""

    sizes: Sequence[int] = (512, 512)
    batch_size: int = 512

    def __post_init__(self) -> None:
        checks.whole_number("batch_size", self.batch_size, 1)

    @abstractmethod
    def heard_by(self, nodes: Tensor, matrix: CSR, size: int, address: Address) -> CSR:
        """(nodes, graph's nodes) who is heard, and how many messages each stands for.

        Args:
            nodes: (any,) who hears.
            matrix: of the layer's aggregation.
            size: how many nodes are drawn for the layer.
            address: of the draw.
        """

    def _heard(self, nodes: Tensor, drawn: Tensor, stand_for: Tensor) -> CSR:
        """(nodes, graph's nodes) those of the drawn nodes, in order, that each hears."""
        heard = heard_among(self.senders, nodes, drawn)
        return heard.with_values(stand_for[torch.searchsorted(drawn, heard.indices)])

    def draw(self, batch: Batch, address: Address) -> Drawn:
        """A block for each layer, from the targets back."""
        sizes, name = per_layer("sizes", self.sizes, 1, self.model), type(self).__name__
        layers, blocks, nodes = linear_layers(name, self.model), list[SampledBlock](), batch.nodes
        for place, (layer, size) in enumerate(zip(reversed(layers), sizes, strict=True)):
            matrix = normalize(self.graph, layer.aggregation)
            if matrix.stacked > 1:
                raise ArgumentError(f"model: {name} has no draws by type of edges; NeighborSampling takes it")
            heard = self.heard_by(nodes, matrix, size, (*address, place))
            blocks.insert(0, SampledBlock.of_heard(self.graph, nodes, heard))
            nodes = blocks[0].members
        return Drawn(blocks)


@dataclass
class FastGCN(LayerSampling):
    """Nodes of a layer are drawn independently of each other, by the squared norms of their columns.

        (Â h)_v is estimated by 1 / t Σ_j Â_{v u_j} h_{u_j} / q(u_j),  q(u) ∝ ‖Â_{·u}‖²,  j = 1 .. t

    Args:
        sizes: t, nodes drawn for each layer, the last layer first; one that is drawn twice counts twice.
        batch_size: targets of a step.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = FastGCN(sizes=[40, 40], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    sizes: Sequence[int] = (400, 400)

    def reset(self) -> None:
        """Forget what was drawn ahead, and the chances of nodes."""
        super().reset()
        self._chances: dict[CSR, Tensor] = {}

    def heard_by(self, nodes: Tensor, matrix: CSR, size: int, address: Address) -> CSR:
        """Those drawn of all nodes."""
        if matrix not in self._chances:
            self._chances[matrix] = squared_norms(matrix)
        chances = self._chances[matrix]
        total = chances.cumsum(0)
        at = torch.from_numpy(uniform(*address, np.arange(size))) * total[-1]
        drawn, times = torch.searchsorted(total, at, right=True).unique(return_counts=True)
        return self._heard(nodes, drawn, times * total[-1] / (size * chances[drawn]))


@dataclass
class LADIES(LayerSampling):
    """Nodes of a layer are drawn among those that the layer above hears, by the squared norms of their columns
    in its rows; the rows of what is drawn are made to add up to one.

        p(u) ∝ Σ_{v in the layer above} Â_{vu}²,  Â_{vu} / p(u), its rows divided by their sums

    Nodes are drawn without replacement, and those of the layer above are there in any case, as in the authors'
    code.

    Args:
        sizes: nodes drawn for each layer, the last layer first.
        batch_size: targets of a step.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = LADIES(sizes=[40, 40], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    def heard_by(self, nodes: Tensor, matrix: CSR, size: int, address: Address) -> CSR:
        """Those drawn of the neighbours, and the nodes themselves."""
        candidates, chances = layer_chances(matrix, nodes)
        # The first to arrive, where each comes at a rate of its chance: drawn one by one, without replacement.
        waits = torch.from_numpy(-np.log(uniform(*address, candidates.numpy()))) / chances
        chosen = torch.isin(candidates, nodes)
        chosen[waits.topk(min(size, len(waits)), largest=False).indices] = True
        heard = self._heard(nodes, candidates[chosen], 1 / chances[chosen])
        sums = SampledBlock.of_heard(self.graph, nodes, heard).weighed(matrix).row_sums()
        assert heard.values is not None
        return heard.with_values(heard.values / sums[heard.row_ids()])


def layer_chances(matrix: CSR, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes that some nodes hear, in order, and (float64) LADIES' chance of each.

    >>> matrix = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 2]), torch.tensor([1.0, 2.0, 2.0]), 3)
    >>> [each.tolist() for each in layer_chances(matrix, torch.tensor([0]))]
    [[0, 2], [0.2, 0.8]]
    """
    rows = matrix.take(nodes)
    candidates, column = rows.indices.long().unique(return_inverse=True)
    norms = squared_norms(CSR(rows.indptr, column, rows.values, len(candidates)))
    there = norms > 0
    return candidates[there], norms[there] / norms.sum()


def squared_norms(matrix: CSR) -> Tensor:
    """(columns,) float64, of each column."""
    values = torch.ones(matrix.num_entries) if matrix.values is None else matrix.values
    norms = torch.zeros(matrix.num_cols, dtype=torch.float64)
    return norms.index_add_(0, matrix.indices, values.double().square())


def uniform(*address: ArrayLike) -> NDArray[np.float64]:
    """Numbers between 0 and 1, neither of them, at these addresses."""
    found: NDArray[np.float64] = ((hashed_random.bits(*address) >> np.uint64(11)) + 0.5) * 2.0**-53
    return found
