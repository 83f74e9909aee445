"""VR-GCN (Chen et al., 2018): few neighbours, with histories as control variates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

import torch
from torch import Tensor

from lmc import kernels
from lmc.data.normalization import Norm, normalize
from lmc.data.sampled import SampledBlock
from lmc.device import copied
from lmc.estimators.estimator import Kept
from lmc.estimators.history import History, Remembered
from lmc.estimators.history_estimator import HistoryEstimator
from lmc.estimators.neighbor_sampling import NeighborSampling
from lmc.estimators.sampled import linear_layers
from lmc.estimators.sampled_step import SampledStep
from lmc.estimators.step import first_messages_are_features
from lmc.nn.model import LayerWidths, Model
from lmc.nn.module_context import training_mode
from lmc.precision import Precision
from lmc.sparse import CSR


@dataclass(frozen=True, eq=False)
class ControlledBlock(SampledBlock):
    """A block whose sums are those of histories, and of what was drawn of the difference from them.

    Attributes:
        history: of what every node sends in this layer; None where that is the features.
        remembered: the places of nodes in it.
        writes: whether what is sent now is remembered.
    """

    history: History | None = field(kw_only=True)
    remembered: Remembered = field(kw_only=True)
    writes: bool = field(kw_only=True)

    def received_at(self, at: SampledBlock, norm: Norm, message: Tensor) -> Tensor:
        """(nodes, width) Σ_u Â_vu h̄_u + Σ_drawn Â_vu (h_u - h̄_u), each of the latter for as many as it is."""
        if self.history is None:
            return at.received_features(norm)
        before = self._before(self.members, self.history, message.dtype)
        found = self._sum_of_histories(norm, self.history, message.dtype)
        found = found + super().received_at(at, norm, message - before)
        if self.writes:
            self.history.push(self.remembered.places(self.members), message.detach())
        return found

    def _sum_of_histories(self, norm: Norm, history: History, dtype: torch.dtype) -> Tensor:
        """(nodes, width) Σ_u Â_vu h̄_u, over all neighbours."""
        rows = normalize(self.graph, norm).take(self.nodes)
        senders, places = kernels.kernels_for().number(self.nodes[:0], rows.indices.long())
        before = self._before(senders, history, dtype)
        among_senders = CSR(rows.indptr.long(), places, rows.values, len(senders), rows.stacked)
        return copied(among_senders, before.device).times(before, before[:0])

    def _before(self, nodes: Tensor, history: History, dtype: torch.dtype) -> Tensor:
        """(nodes, width) h̄."""
        return history.pull(self.remembered.halo_places(nodes)).to(dtype)


@dataclass
class VRGCN(NeighborSampling, HistoryEstimator):
    """Neighbour sampling of the difference between what nodes send and what they have sent before.

        (Â h)_v is estimated by Σ_u Â_vu h̄_u + d / k Σ_drawn Â_vu (h_u - h̄_u)

    It is unbiased whatever the histories h̄ are; where they are exact, so is the sum, whatever is drawn.

    Args:
        fanouts: neighbours of a node, by layer, the last layer first, the last number for all layers that
            remain. -1 for all neighbours. None for 2, 2, ...
        batch_size: targets of a step.
        precision: of histories and computation, see `Precision`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = VRGCN(fanouts=[2, 2], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    usual_fanouts: ClassVar[Sequence[int]] = (2, 2)

    fanouts: list[int] | None = None
    batch_size: int = 1024
    precision: Precision = "full"

    def __post_init__(self) -> None:
        NeighborSampling.__post_init__(self)
        HistoryEstimator.__post_init__(self)

    def remembered(self, model: Model, widths: list[LayerWidths]) -> Kept:
        """What every node sends in each layer, unless it is the features."""
        linear_layers(type(self).__name__, model)
        with training_mode(model):  # in which features may be dropped
            first = 2 if first_messages_are_features(model) else 1
        return Kept({place: widths[place - 1].message for place in range(first, len(widths) + 1)}, {})

    def fill_exactly(self) -> None:
        """A pass over the graph in which everybody hears everybody."""
        everyone = torch.arange(self.graph.num_nodes)
        block = SampledBlock.of_heard(self.graph, everyone, self.drawn_of(everyone, -1, ()))
        with torch.no_grad():
            self.step_over([block] * len(self.model.layers), None).prediction()

    def step_over(self, blocks: Sequence[SampledBlock], weights: Tensor | None) -> SampledStep:
        """The step, with blocks that know their histories."""
        controlled = [
            ControlledBlock(
                **{each.name: getattr(block, each.name) for each in fields(SampledBlock)},
                history=self.embeddings.get(place),
                remembered=self.nodes,
                writes=not self.is_frozen,
            )
            for place, block in enumerate(blocks, start=1)
        ]
        return super().step_over(controlled, weights)
