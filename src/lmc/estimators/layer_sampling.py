"""Layer-wise sampling: a few nodes for a layer, heard by all that have them for neighbours.

FastGCN (Chen et al., 2018) draws them from all nodes, LADIES (Zou et al., 2019) from the neighbours of the
layer above.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from lmc import checks, hashed_random
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.data.normalization import normalize
from lmc.data.sampled import SampledBlock, heard_among
from lmc.errors import ArgumentError
from lmc.estimators.estimator import LayerSizes
from lmc.estimators.sampled import (
    Address,
    SampledEstimator,
    check_numbers,
    linear_layers,
    mean_degree,
    per_layer,
)
from lmc.nn.model import Model
from lmc.sparse import CSR


@dataclass
class LayerSampling(SampledEstimator):
    """What both methods share: blocks from the targets back, each with nodes of its own."""

    usual_sizes: ClassVar[Sequence[int]] = (512, 512)

    sizes: list[int] | None = None
    batch_size: int = 512

    def __post_init__(self) -> None:
        check_numbers("sizes", self.sizes, 1)
        checks.whole_number("batch_size", self.batch_size, 1)

    def prepare_graph(self) -> None:
        """The matrix of each layer and how many nodes it draws, the last layer first."""
        name = type(self).__name__
        sizes = per_layer("sizes", self.sizes, self.usual_sizes, self.model)
        layers = linear_layers(name, self.model)
        matrices = [normalize(self.graph, layer.aggregation) for layer in reversed(layers)]
        for matrix in matrices:
            self.check_matrix(name, matrix)
        self._drawn_by = list(zip(matrices, sizes, strict=True))
        super().prepare_graph()

    def check_matrix(self, name: str, matrix: CSR) -> None:
        """Raise ArgumentError for a matrix of messages that it cannot draw by."""
        if matrix.stacked > 1:
            raise ArgumentError(f"model: {name} has no draws by type of edges; NeighborSampling takes it")

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

    def expected_sizes(self, graph: Graph, model: Model) -> list[LayerSizes]:
        """As if all that is drawn were heard, up to the mean degree."""
        sizes, degree = list[LayerSizes](), mean_degree(graph)
        nodes = min(self.batch_size, int(graph.train_mask.sum()))
        for size in per_layer("sizes", self.sizes, self.usual_sizes, model):
            members = min(graph.num_nodes, nodes + size)
            sizes.append(LayerSizes(nodes, members, nodes * min(degree, members)))
            nodes = members
        return sizes

    def draw(self, batch: Batch, address: Address) -> list[SampledBlock]:
        """A block for each layer, from the targets back."""
        blocks, nodes = list[SampledBlock](), batch.nodes
        for place, (matrix, size) in enumerate(self._drawn_by):
            heard = self.heard_by(nodes, matrix, size, (*address, place))
            blocks.insert(0, SampledBlock.of_heard(self.graph, nodes, heard))
            nodes = blocks[0].members
        return blocks


@dataclass
class FastGCN(LayerSampling):
    """Nodes of a layer are drawn independently of each other, by the squared norms of their columns.

        (Â h)_v is estimated by 1 / t Σ_j Â_{v u_j} h_{u_j} / q(u_j),  q(u) ∝ ‖Â_{·u}‖²,  j = 1 .. t

    Args:
        sizes: t, nodes drawn for each layer, the last layer first, the last number for all layers that
            remain; a node that is drawn twice counts twice. None for 400, 400, ...
        batch_size: targets of a step.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = FastGCN(sizes=[40, 40], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    usual_sizes: ClassVar[Sequence[int]] = (400, 400)

    def prepare_graph(self) -> None:
        """The chances of nodes, too."""
        super().prepare_graph()
        self._norms = {matrix: squared_norms(matrix) for matrix, _ in self._drawn_by}

    def heard_by(self, nodes: Tensor, matrix: CSR, size: int, address: Address) -> CSR:
        """Those drawn of all nodes."""
        norms = self._norms[matrix]
        drawn, times = drawn_by(norms.cumsum(0), size, address).unique(return_counts=True)  # type: ignore[no-untyped-call]
        return self._heard(nodes, drawn, times * norms.sum() / (size * norms[drawn]))


@dataclass
class LADIES(LayerSampling):
    """Nodes of a layer are drawn among those that the layer above hears; rows are made to add up to one.

        p(u) ∝ Σ_{v in the layer above} Â_{vu}²,  Â_{vu} / p(u), its rows divided by their sums

    Nodes are drawn without replacement, and those of the layer above are there in any case, as in the
    authors' code.

    Args:
        sizes: nodes drawn for each layer, the last layer first, the last number for all layers that remain.
            None for 512, 512, ...
        batch_size: targets of a step.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = LADIES(sizes=[40, 40], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    def check_matrix(self, name: str, matrix: CSR) -> None:
        """Rows with negative entries cannot be made to add up to one."""
        super().check_matrix(name, matrix)
        if matrix.values is not None and bool((matrix.values < 0).any()):
            rule = "has messages add up to one, and some of this model's count negatively"
            raise ArgumentError(f"model: {name} {rule}; NeighborSampling takes it")

    def heard_by(self, nodes: Tensor, matrix: CSR, size: int, address: Address) -> CSR:
        """Those drawn of the neighbours, and the nodes themselves."""
        candidates, chances = layer_chances(matrix, nodes)
        # The first to arrive, each at a rate of its chance, are those drawn one by one without replacement.
        waits = torch.from_numpy(-np.log(hashed_random.uniform(*address, candidates.numpy()))) / chances
        chosen = torch.isin(candidates, nodes)
        chosen[waits.topk(min(size, len(waits)), largest=False).indices] = True
        heard = self._heard(nodes, candidates[chosen], 1 / chances[chosen])
        sums = SampledBlock.of_heard(self.graph, nodes, heard).weighed(matrix).row_sums()
        sums[sums == 0] = 1.0  # of nodes that hear nothing
        assert heard.values is not None
        return heard.with_values(heard.values / sums[heard.row_ids()])


def layer_chances(matrix: CSR, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes that some nodes hear, in order, and (float64) LADIES' chance of each.

    >>> matrix = CSR(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 2]), torch.tensor([1.0, 2.0, 2.0]), 3)
    >>> [each.tolist() for each in layer_chances(matrix, torch.tensor([0]))]
    [[0, 2], [0.2, 0.8]]
    """
    rows = matrix.take(nodes)
    candidates, column = torch.unique(rows.indices.long(), return_inverse=True)
    norms = squared_norms(CSR(rows.indptr, column, rows.values, len(candidates)))
    there = norms > 0
    return candidates[there], norms[there] / norms.sum()


def drawn_by(until: Tensor, count: int, address: Address) -> Tensor:
    """(count,) numbers drawn with replacement, by chances whose sums up to and with each are `until`.

    None are drawn where all chances are zero.

    >>> drawn_by(torch.tensor([0.0, 1.0, 1.0]), 3, (0,)).tolist()
    [1, 1, 1]
    """
    if len(until) == 0 or until[-1] == 0:
        return torch.empty(0, dtype=torch.int64)
    at = torch.from_numpy(hashed_random.uniform(*address, np.arange(count))) * until[-1]
    below = torch.nextafter(until[-1], torch.zeros_like(until[-1]))  # whatever rounding does
    return torch.searchsorted(until, at.clamp(max=float(below)), right=True)


def squared_norms(matrix: CSR) -> Tensor:
    """(columns,) float64, of each column."""
    values = torch.ones(matrix.num_entries) if matrix.values is None else matrix.values
    norms = torch.zeros(matrix.num_cols, dtype=torch.float64)
    return norms.index_add_(0, matrix.indices, values.double().square())
