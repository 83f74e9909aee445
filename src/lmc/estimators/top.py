"""TOP: what comes from outside is a linear function of what is inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data.batch import Batch
from lmc.device import on_host
from lmc.estimators.basis import orthonormal, random_bases, random_combinations
from lmc.estimators.estimator import Kept
from lmc.estimators.history_estimator import HistoricalHalo, HistoryEstimator
from lmc.estimators.low_rank import LowRank, pieces
from lmc.estimators.sampled import linear_layers
from lmc.estimators.step import first_messages_are_features
from lmc.nn.inference import evaluating
from lmc.nn.model import LayerWidths, Model
from lmc.nn.module_context import training_mode, without_autocast
from lmc.nn.rows import Rows
from lmc.precision import Precision

Basis = Literal["random", "history"]
Bases = dict[int, Tensor]
"""(nodes, rank) Q of the messages, by layer, counted from 1."""


class Maps(NamedTuple):
    """What stands in for the halo of a batch, by layer, and the bases that it was made by."""

    of: dict[int, LowRank]
    by: Bases


@dataclass
class TOP(HistoryEstimator):
    """Messages from outside are a linear function of those inside, and derivatives flow back through it.

    With a basis Q of how a layer's messages vary over nodes, m ≈ Q c, those of the halo are R m_B, with
    R = Q_halo pinv(Q_B), and a batch receives (A_BB + A_B,halo R) m_B. R is never formed: A_B,halo R is of
    low rank, and made in the background. A step is one on the batch alone, with two thin products more in
    each direction. It is exact, at any parameters, where the messages are in the span of the basis. The
    sums of a first layer that adds up the features are always exact.

    Args:
        rank: columns of a basis. Where messages have fewer, those of several random models are added.
        basis: `"random"`: messages of the model as it is at `bind`, most often untrained. `"history"`: so at
            first; then, each time that steps have seen as many nodes as the graph has, messages of the
            embeddings that nodes had when they were last in a batch, as many columns as those have at most.
        precision: of bases, histories and computation, see `Precision`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = TOP(rank=16)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    rank: int = 64
    basis: Basis = "random"
    precision: Precision = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole_number("rank", self.rank, 1)
        checks.one_of("basis", self.basis, Basis)

    def remembered(self, model: Model, widths: list[LayerWidths]) -> Kept:
        """A basis for each layer whose messages are not the features; embeddings, if those are refreshed."""
        linear_layers(type(self).__name__, model)
        with training_mode(model):  # in which features may be dropped
            first = 2 if first_messages_are_features(model) else 1
        embeddings = super().remembered(model, widths).embeddings if self.basis == "history" else {}
        return Kept(embeddings, {}, dict.fromkeys(range(first, len(widths) + 1), self.rank))

    def reset(self) -> None:
        """Forget all histories; bases are those of the model as it is."""
        self._outside = None  # rows of the batch are read, too
        super().reset()
        kept = self.remembered(self.model, self._widths)
        self._message_widths = {place: self._widths[place - 1].message for place in kept.bases}
        found = random_bases(self.model, self.graph, self._message_widths, self.rank, self._seed)
        self._take({place: self._stored(basis) for place, basis in found.items()}, visited=0)

    def _take(self, bases: Bases, visited: int) -> None:
        """Go on with these bases: a new object, by which maps made before are known."""
        self.bases, self._visited = bases, visited
        self._ahead: WeakKeyDictionary[Batch, Maps] = WeakKeyDictionary()

    def _stored(self, basis: Tensor) -> Tensor:
        """As histories are, but with 16 bits at least: its entries are few, and many rows depend on each."""
        remembered = self.placement.remembered
        return basis.to(remembered if remembered.is_floating_point else torch.float16)

    def fill_exactly(self) -> None:
        """Write what every history would have of all nodes, where there are histories."""
        if self.embeddings:
            super().fill_exactly()

    # -- a step ---------------------------------------------------------------------------------------

    def trained_on(self, batch: Batch) -> Batch:
        """The batch without its halo."""
        return batch.alone

    def prepare(self, batch: Batch) -> None:
        """Build the blocks of the batch, and what stands in for its halo."""
        super().prepare(batch)
        self._ahead[batch] = self._maps(batch)

    def _maps(self, batch: Batch) -> Maps:
        """A_B,halo R by layer: of the whole graph, nothing is left outside."""
        bases, found = self.bases, dict[int, LowRank]()  # a step may put others in their place meanwhile
        for place, layer in enumerate(linear_layers(type(self).__name__, self.model), start=1):
            if place in bases and batch.num_halo > 0:
                block = batch.block(layer.aggregation)
                outside = block.keep(block.indices >= batch.num_nodes)
                with without_autocast():
                    found[place] = LowRank.fitted(outside, bases[place], batch.nodes, batch.halo)
        return Maps({place: each.on(self.placement.device) for place, each in found.items()}, bases)

    def halo_policy(self, batch: Batch) -> LinearHalo:
        """That of a batch with nothing outside."""
        return LinearHalo(self, batch, {})

    def estimate_on(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The estimate of a batch of this graph, by the bases of this step; after it, there may be others."""
        maps = self._ahead.get(batch)
        if maps is None or maps.by is not self.bases:
            maps = self._ahead[batch] = self._maps(batch)
        alone = self.placement.batch(batch.alone)
        found = self.estimate_with(alone, LinearHalo(self, alone, maps.of))
        if not self.is_frozen and self.basis == "history":
            self._visited += batch.num_nodes
            if self._visited >= self.graph.num_nodes:
                self._take(self._historical_bases(), visited=0)
        return found

    # -- bases of histories ---------------------------------------------------------------------------

    def _historical_bases(self) -> Bases:
        """Of the messages that historical embeddings give, with nothing dropped."""
        found, dtype = Bases(), self.graph.x.dtype
        with evaluating(self.model), torch.no_grad(), without_autocast(self.placement.device):
            for place, width in self._message_widths.items():
                combined = random_combinations(width, self.rank, dtype, self._seed, place, 0)
                columns = torch.cat(
                    [on_host(self._message(place, part)) @ combined for part in pieces(self.graph.num_nodes)]
                )
                found[place] = self._stored(orthonormal(columns))
        return found

    def _message(self, place: int, part: slice) -> Tensor:
        """(part, width) what consecutive nodes send in a layer."""
        nodes = torch.arange(part.start, part.stop)
        rows = Rows(nodes, (0,), inside=False)
        if place == 1:
            z = self.model.encoder(self.graph.x[part].to(self.placement.device), rows)
        else:
            z = self.embeddings[place - 1].pull(nodes).to(self.graph.x.dtype)
        message: Tensor = self.model.layers[place - 1].message(z, rows)
        return message

    # -- state ----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The step, every history, the bases, and how many nodes were visited since those were made."""
        bases = {f"bases.{place}": basis for place, basis in self.bases.items()}
        return super().state_dict() | bases | {"visited": torch.tensor(self._visited)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken, by an estimator bound in the same way."""
        super().load_state_dict(state)
        bases = {
            place: torch.empty_like(own).copy_(state[f"bases.{place}"]) for place, own in self.bases.items()
        }
        self._take(bases, int(state["visited"]))


class LinearHalo(HistoricalHalo):
    """There is no halo: what it sends is a function of what the batch sends.

    Args:
        estimator: whose histories are written.
        batch: without its halo.
        maps: A_B,halo R by layer.
    """

    def __init__(self, estimator: TOP, batch: Batch, maps: dict[int, LowRank]) -> None:
        super().__init__(estimator, batch)
        self._maps = maps

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(0, width): nothing."""
        return z[:0]

    def from_batch(self, layer: int) -> LowRank | None:
        """A_B,halo R."""
        return self._maps.get(layer)
