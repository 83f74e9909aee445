"""What estimators with histories share."""

from __future__ import annotations

import torch
from torch import Tensor

from lmc import checks
from lmc.data.batch import Batch
from lmc.device import HOST
from lmc.estimators.estimator import Estimator, Kept
from lmc.estimators.exact import exact_values
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.history import History, MemoryHistory, Remembered
from lmc.estimators.host_history import HostHistory
from lmc.nn.dropout import without_dropout
from lmc.nn.model import LayerWidths, Model
from lmc.nn.module_context import untouched_statistics
from lmc.precision import Precision


class HistoryEstimator(Estimator):
    """An estimator that remembers values of nodes from when they were last in a batch.

    Attributes:
        embeddings: H̄ˡ by layer l, or the sums that it is made of.
        auxiliaries: V̄ˡ by layer l, or the sums that it is made of.
        nodes: which nodes have a place in them.
    """

    precision: Precision
    nodes: Remembered
    embeddings: dict[int, History]
    auxiliaries: dict[int, History]

    def __post_init__(self) -> None:
        checks.one_of("precision", self.precision, Precision)

    def remembered(self, model: Model, widths: list[LayerWidths]) -> Kept:
        """Embeddings alone."""
        return Kept({layer: widths[layer - 1].boundary for layer in range(1, len(widths))}, {})

    def halo_policy(self, batch: Batch) -> HaloPolicy:
        """Historical embeddings, and no derivatives."""
        return HistoricalHalo(self, batch)

    def prepare(self, batch: Batch) -> None:
        """Build all that a step will read of a batch, and have histories expect it."""
        super().prepare(batch)
        self.expect(batch)

    def read_in(self, batch: Batch) -> Tensor:
        """(any,) the nodes whose histories a step reads."""
        return self.trained_on(batch).halo

    def expect(self, batch: Batch) -> None:
        """Tell histories what will be read of them soon."""
        places = self.nodes.places(self.read_in(batch), batch.shard)
        for history in self.stores.values():
            history.expect(places)

    def reset(self) -> None:
        """Forget all histories, or fill them anew by an exact pass, as `bind` was told."""
        super().reset()
        dtype = self.placement.remembered
        outside = self._outside
        self.nodes = outside if isinstance(outside, Remembered) else Remembered(self.graph.num_nodes, outside)
        count, make = len(self.nodes), self._make_here
        kept = self.remembered(self.model, self._widths)
        self.embeddings = {layer: make(count, width, dtype) for layer, width in kept.embeddings.items()}
        self.auxiliaries = {layer: make(count, width, dtype) for layer, width in kept.auxiliaries.items()}
        if self._init == "exact":
            self.refill()

    def _make_here(self, count: int, width: int, dtype: torch.dtype) -> History:
        """A history that steps on their device read and write."""
        device, make = self.placement.device, self._make_history
        if device == HOST:
            return make(count, width, dtype)
        if make is MemoryHistory and self.placement.remembers_here:
            return MemoryHistory(count, width, dtype, device)
        return HostHistory(make(count, width, dtype), device)

    def refill(self) -> None:
        """`fill_exactly`, with nothing dropped and no trace in the model."""
        with untouched_statistics(self.model), without_dropout(self.model):
            self.fill_exactly()

    def fill_exactly(self) -> None:
        """Write what every history would have of all nodes."""
        whole = self.placement.batch(self.whole)
        step = self.step_on(whole, self.halo_policy(whole))
        exact_values(step, backward=bool(self.auxiliaries))

    def state_dict(self) -> dict[str, Tensor]:
        """The step and every history."""
        return super().state_dict() | {name: history.snapshot() for name, history in self.stores.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken, by an estimator bound in the same way."""
        super().load_state_dict(state)
        for name, history in self.stores.items():
            history.restore(state[name])

    @property
    def stores(self) -> dict[str, History]:
        """Every history by its name."""
        embeddings = {f"embeddings.{layer}": history for layer, history in self.embeddings.items()}
        auxiliaries = {f"auxiliaries.{layer}": history for layer, history in self.auxiliaries.items()}
        return embeddings | auxiliaries


class HistoricalHalo(HaloPolicy):
    """Ĥ = H̄, V̂ = 0; the batch's own values are written, unless the estimator is frozen.

    Args:
        estimator: whose histories.
        batch: whose halo.
    """

    def __init__(self, estimator: HistoryEstimator, batch: Batch) -> None:
        self._placement, self._writes = estimator.placement, not estimator.is_frozen
        self._inside = estimator.nodes.places(batch.nodes, batch.shard)
        self._halo = estimator.nodes.halo_places(batch.halo, batch.shard)
        self._embeddings, self._auxiliaries = estimator.embeddings, estimator.auxiliaries

    def historical(self, histories: dict[int, History], layer: int) -> Tensor:
        """(halo, width) as each node was when it was last written."""
        return self._placement.put(histories[layer].pull(self._halo))

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) H̄ˡ."""
        return self.historical(self._embeddings, layer)

    def keep_embeddings(self, layer: int, z: Tensor, z_halo: Tensor | None) -> None:
        """Write the batch's rows."""
        self.write(self._embeddings, layer, self._inside, z)

    def keep_auxiliaries(self, layer: int, v: Tensor) -> None:
        """Write the batch's rows."""
        self.write(self._auxiliaries, layer, self._inside, v)

    def write(self, histories: dict[int, History], layer: int, places: Tensor, values: Tensor) -> None:
        """Write (places, width), where this layer is remembered."""
        if layer in histories and self._writes:
            histories[layer].push(places, values)
