"""A layer whose messages cannot be added up first, such as attention or a maximum, at one step.

Batch rows and halo rows are targets of two calls. The first is that of equations (8) and (7): what a
parameter gets, it gets from batch rows. The second is there for the derivatives that halo rows send to their
neighbours (equations 11 and 13), at what they receive from within reach; no parameter is asked for in it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lmc.estimators.linear_pass import LayerPass, Sides
from lmc.estimators.vjp import Gradients, Traced
from lmc.nn.convolution import ConvolutionLayer


class ConvolutionPass(LayerPass):
    """A convolution at one step; see `LayerPass`."""

    layer: ConvolutionLayer  # type: ignore[assignment]

    def __init__(self, layer: ConvolutionLayer, *given: Any) -> None:
        super().__init__(layer, *given)  # type: ignore[arg-type]
        self.revisits_halo = True  # its messages are inputs of both calls

    @cached_property
    def update(self) -> Traced:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""

        def received(own: Tensor, others: Tensor, initial: Tensor) -> Tensor:
            return self.layer.receive(self.batch.edges, own, others, initial, self.rows[0])

        return Traced(received, self.message.value, self.halo_message.value, self.initial.batch)

    @cached_property
    def halo_update(self) -> Traced:
        """(halo, width) eq. (10): H̃ˡ, incomplete, from the neighbours in reach."""

        def received(own: Tensor, others: Tensor, initial: Tensor) -> Tensor:
            return self.layer.receive(self.batch.halo_edges, own, others, initial, self.rows[1])

        return Traced(received, self.halo_message.value, self.message.value, self.initial.halo)

    def incomplete_from_batch(self) -> Tensor:
        """(halo, width) the value from the neighbours in the batch alone."""
        edges = self.batch.halo_edges
        edges = edges.where(edges.ends[0] >= self.batch.num_halo)
        with torch.no_grad():
            sent = self.halo_message.value, self.message.value
            return self.layer.receive(edges, *sent, self.initial.halo, self.rows[1])

    def pull(
        self, v: Sides, gradients: Gradients, from_head: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(batch, width) eq. (11): V̄ˡ⁻¹, and the derivative at `initial`; eq. (7) into `gradients`."""
        at_own, at_initial = self.collect(v, gradients)
        from_halo = self._from_halo(v, self.halo_update.inputs[1]) if v.halo.any() else None
        return self.pull_message(gradients, at_own, from_halo, from_head), at_initial

    def collect(self, v: Sides, gradients: Gradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to the parameters; and to their own inputs."""
        own, _, initial = self.update.inputs
        at_own, at_initial = gradients.pull(self.update, v.batch, self.layer.parameters(), own, initial)
        return at_own, at_initial

    def pull_halo(self, v: Sides, from_head: Tensor | None = None) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""
        (from_batch,) = self.update.pull(v.batch, self.update.inputs[1])
        at_own = self._from_halo(v, self.halo_update.inputs[0])
        return self.pull_halo_message(from_batch, at_own, from_head)

    def _from_halo(self, v: Sides, wanted: Tensor) -> Tensor | None:
        return self.halo_update.pull(v.halo, wanted)[0]
