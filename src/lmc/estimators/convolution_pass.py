"""A layer whose messages cannot be added up first, such as attention or a maximum, at one step.

Batch rows and halo rows are targets of two calls. The first is that of equations (8) and (7): what a
parameter gets, it gets from batch rows. The second is there for the derivatives that halo rows send to their
neighbours (equations 11 and 13), at what they receive from within reach; no parameter is asked for in it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lmc.data.batch import Edges
from lmc.device import on_host
from lmc.estimators.halo import some_of
from lmc.estimators.layer_pass import LayerPass, Neighbours, Replaced, computed, or_zero
from lmc.estimators.vjp import Computed, ParameterGradients, add
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.rows import Rows


class ConvolutionPass(LayerPass):
    """A convolution at one step; see `LayerPass`."""

    layer: ConvolutionLayer
    halo_update: Computed | None = None

    def receive(self) -> Tensor:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""

        def updated(own: Tensor, others: Tensor, initial: Tensor) -> Tensor:
            received = self._received(self.batch.listed(self.layer.edges), own, others, self.rows)
            self.received = received.detach()
            return self.layer.update(received, initial)

        self.update = Computed(updated, *self._sent(), self.initial)
        return self.update.value

    def received_from_batch(self) -> Tensor:
        """(rows, width) of `received`, what the rows `batch.telling` get from the batch alone."""
        count, rows = self.batch.num_nodes, self.batch.telling.rows
        telling = rows.new_zeros(count, dtype=torch.bool).index_fill_(0, rows, True)
        within = self.batch.listed(self.layer.edges).within(count, telling)
        own, others = self._sent()
        with torch.no_grad():  # as halo rows, which leave no trace in running statistics
            return self._received(within, own, others[:0], replace(self.rows, inside=False))[rows]

    def returned_from_batch(self) -> Tensor:
        """(rows, width) of `returned`, the same."""
        assert self.message is not None
        (at_own,) = self.update.vjp(self.v, self.update.inputs[0])
        return or_zero(at_own, self.message.value)[self.batch.telling.rows]

    def receive_halo(self, neighbours: Neighbours, replaced: Replaced = computed) -> Tensor:
        """(halo, width) eq. (10): H̃ˡ, incomplete, from the neighbours in reach or in the batch alone."""

        def received(rows: Tensor | None) -> Tensor:
            if neighbours == "reach":
                return some_of(self._received_by_halo().value, rows)
            from_batch = self.batch.listed(self.layer.halo_edges).sent_from(self.batch.num_halo)
            sent, sent_by_halo = self._sent()
            with torch.no_grad():
                return self._received(from_batch, sent_by_halo, sent, self.halo_rows)

        return self.layer.update(replaced(received), self.initial_halo)

    def _received_by_halo(self) -> Computed:
        """The halo's call; made once, when its values are mixed or when it first sends derivatives.

        Those do not depend on what the layer reads of the model's input, which is only added to it.
        """
        if self.halo_update is None:

            def received(own: Tensor, others: Tensor) -> Tensor:
                edges = self.batch.listed(self.layer.halo_edges)
                return self._received(edges, own, others, self.halo_rows)

            sent, sent_by_halo = self._sent()
            self.halo_update = Computed(received, sent_by_halo, sent)
        return self.halo_update

    def _received(self, edges: Edges, own: Tensor, others: Tensor, rows: Rows) -> Tensor:
        return self.placed(self.layer.receive(edges, own, others, rows))

    def _sent(self) -> tuple[Tensor, Tensor]:
        assert self.message is not None
        return self.message.value, self.sent_by_halo

    def end_forward(self, reads_message: bool) -> None:
        """Nothing to give back: messages are inputs of the calls."""

    def come_back(self, gradients: ParameterGradients) -> Tensor | None:
        """`returned`, and eq. (7) into `gradients`; the derivative at `initial`."""
        at_own, at_initial = self.collect(gradients)
        from_halo = None
        if on_host(self.v_halo.any()):
            by_halo = self._received_by_halo()
            (from_halo,) = by_halo.vjp(self.v_halo, by_halo.inputs[1])
        assert self.message is not None
        self.returned = or_zero(add(at_own, from_halo), self.message.value)
        return at_initial

    def before(self, gradients: ParameterGradients, from_head: Tensor | None = None) -> Tensor:
        """(batch, width) eq. (11): V̄ˡ⁻¹, of what has come back."""
        return self.message_backward(gradients, self.returned, from_head)

    def collect(self, gradients: ParameterGradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to parameters, to their messages and to `initial`."""
        own, _, initial = self.update.inputs
        at_own, at_initial = gradients.vjp(self.update, self.v, self.layer.parameters(), own, initial)
        return at_own, at_initial

    def backward_halo(self, from_head: Tensor | None = None, replaced: Replaced = computed) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""

        def returned(rows: Tensor | None) -> Tensor:
            (from_batch,) = self.update.vjp(self.v, self.update.inputs[1])
            by_halo = self._received_by_halo()
            (at_own,) = by_halo.vjp(self.v_halo, by_halo.inputs[0])
            return some_of(or_zero(add(from_batch, at_own), self.sent_by_halo), rows)

        return self.halo_message_backward(replaced(returned), from_head)
