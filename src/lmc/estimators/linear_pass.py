"""A linear layer at one step: equations (8) and (10) forward, (7), (11) and (13) backward."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from lmc.estimators.layer_pass import LayerPass
from lmc.estimators.vjp import Computed, ParameterGradients
from lmc.nn.model import LinearLayer
from lmc.sparse import CSR


class LinearPass(LayerPass):
    """A layer whose aggregation is linear; see `LayerPass`.

    Args:
        layer: the layer.
        constant: whether messages are the features, whose sums never change.
        given: as for `LayerPass`.
    """

    layer: LinearLayer
    halo_update: Computed | None = None

    def __init__(self, layer: LinearLayer, *given: Any, constant: bool = False, **options: Any) -> None:
        super().__init__(layer, *given, **options)
        self.constant = constant

    def receive(self) -> Tensor:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""
        if self.constant:
            received = self.batch.received_features(self.layer.aggregation)
        else:
            received = self._aggregated(self.batch.block(self.layer.aggregation))
        own = received[:, :0]
        if self.layer.reads_own:
            assert self.message is not None
            own = self.message.value
        self.update = Computed(self.layer.update, received, own, self.initial)
        return self.update.value

    def receive_halo(self, neighbours: Literal["reach", "batch"]) -> Tensor:
        """(halo, width) eq. (10): H̃ˡ, incomplete; from the batch alone, not even from the node itself."""
        if self.keep_halo and neighbours == "reach":
            return self._received_by_halo().value
        block = self.batch.halo_block(self.layer.aggregation)
        if neighbours == "batch":
            block = block.keep(block.indices < self.batch.num_nodes)
        with torch.no_grad():
            return self.layer.update(self._aggregated(block), self.sent_by_halo, self.initial_halo)

    def _received_by_halo(self) -> Computed:
        """The halo's update; made once, when its values are mixed or when it first sends derivatives."""
        if self.halo_update is None:
            received = self._aggregated(self.batch.halo_block(self.layer.aggregation))
            self.halo_update = Computed(self.layer.update, received, self.sent_by_halo, self.initial_halo)
        return self.halo_update

    def _aggregated(self, block: CSR) -> Tensor:
        assert self.message is not None
        return block.times(self.message.value, self.sent_by_halo)

    def backward(
        self, v: Tensor, v_halo: Tensor, gradients: ParameterGradients, from_head: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(batch, width) eq. (11): V̄ˡ⁻¹, and the derivative at `initial`; eq. (7) into `gradients`.

        `update` is affine in what is received, with one matrix for all rows: the derivatives of batch and
        halo are added up first, and go through it as batch rows.
        """
        at_own, at_initial = self.collect(v, gradients)
        arriving = self.batch.transposed_block(self.layer.aggregation).times(v, v_halo)
        (at_message,) = self.update.vjp(arriving, self.update.inputs[0])
        return self.message_backward(gradients, at_message, at_own, from_head), at_initial

    def collect(self, v: Tensor, gradients: ParameterGradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to parameters, to their messages and to `initial`."""
        _, own, initial = self.update.inputs
        at_own, at_initial = gradients.vjp(self.update, v, self.layer.parameters(), own, initial)
        return at_own, at_initial

    def backward_halo(self, v: Tensor, v_halo: Tensor, from_head: Tensor | None = None) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""
        arriving = self.batch.transposed_halo_block(self.layer.aggregation).times(v, v_halo)
        by_halo = self._received_by_halo()
        (at_message,) = by_halo.vjp(arriving, by_halo.inputs[0])
        (at_own,) = by_halo.vjp(v_halo, by_halo.inputs[1])
        return self.halo_message_backward(at_message, at_own, from_head)
