"""VR-GCN (Chen et al., 2018): few neighbours, with histories as control variates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.data.normalization import Norm, normalize, propagated
from lmc.data.sampled import SampledBlock
from lmc.estimators.estimator import Kept, Precision
from lmc.estimators.history import History
from lmc.estimators.history_estimator import HistoryEstimator
from lmc.estimators.neighbor_sampling import NeighborSampling
from lmc.estimators.sampled import Drawn, linear_layers
from lmc.estimators.sampled_step import SampledStep
from lmc.estimators.step import first_messages_are_features
from lmc.nn.model import LayerWidths, Model
from lmc.nn.module_context import training_mode


@dataclass(frozen=True, eq=False)
class ControlledBlock(SampledBlock):
    """A block whose sums are those of histories, and of what was drawn of the difference from them.

    Attributes:
        history: of what every node sends in this layer; None where that is the features.
        writes: whether what is sent now is remembered.
    """

    history: History | None = field(kw_only=True)
    writes: bool = field(kw_only=True)

    def received(self, norm: Norm, message: Tensor) -> Tensor:
        """(nodes, width) Σ_u Â_vu h̄_u + Σ_drawn Â_vu (h_u - h̄_u), each of the latter for as many as it is."""
        if self.history is None:
            return propagated(self.graph, norm).index_select(0, self.nodes)
        before = self.history.snapshot().to(message.dtype)
        of_all = normalize(self.graph, norm).take(self.nodes).times(before, before[:0])
        found = of_all + super().received(norm, message - before[self.members])
        if self.writes:
            self.history.push(self.members, message.detach())
        return found


@dataclass
class VRGCN(NeighborSampling, HistoryEstimator):
    """Neighbour sampling of the difference between what nodes send and what they have sent before.

        (Â h)_v is estimated by Σ_u Â_vu h̄_u + d / k Σ_drawn Â_vu (h_u - h̄_u)

    It is unbiased whatever the histories h̄ are; where they are exact, so is the sum, whatever is drawn.

    Args:
        fanouts: neighbours of a node, by layer, the last layer first; -1 for all.
        batch_size: targets of a step.
        precision: of the histories, `"full"` (the features' type) or `"half"`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = VRGCN(fanouts=[2, 2], batch_size=20)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(20), scale=5.0))
    """

    fanouts: Sequence[int] = (2, 2)
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
            self.step_over(Drawn([block] * len(self.model.layers))).prediction()

    def step_over(self, drawn: Drawn) -> SampledStep:
        """The step, with blocks that know their histories."""
        blocks = [
            ControlledBlock(
                *(getattr(block, each.name) for each in fields(Batch)),
                heard=block.heard,
                history=self.embeddings.get(place),
                writes=not self.is_frozen,
            )
            for place, block in enumerate(drawn.blocks, start=1)
        ]
        return super().step_over(Drawn(blocks, drawn.weights))
