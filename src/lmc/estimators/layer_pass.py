"""One layer at one step, for rows of the batch and of the halo: equations (7), (8), (10), (11) and (13)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.estimators.halo import OfRows
from lmc.estimators.low_rank import LowRank
from lmc.estimators.vjp import Computed, ParameterGradients, add
from lmc.nn.model import Layer, LinearLayer
from lmc.nn.rows import Rows
from lmc.sparse import CSR

Neighbours = Literal["graph", "reach", "batch"]
"""From which of its neighbours a halo row receives."""
Replaced = Callable[[OfRows], Tensor]
"""From what computes incomplete sums to those that take their place."""


def computed(incomplete: OfRows) -> Tensor:
    """The incomplete sums themselves."""
    return incomplete(None)


class LayerPass(ABC):
    """A layer at one step. The calls come in this order:

    forward: `send`, `receive`, perhaps `receive_halo`, `end_forward`;
    backward: `arrive`; `come_back` and `before`, or `collect` where nothing before the layer is trained;
    perhaps `backward_halo`.

    Args:
        layer: the layer.
        batch: where.
        address: (seed, step, place in the model) of the dropout masks.
        initial: (batch, any width) `layer.what_it_reads`.
        initial_halo: (halo, any width) the same of the halo, for `receive_halo` and `backward_halo`.
        keep_halo: whether `backward_halo` may follow; if not, the halo's memory is given back early.
    """

    message: Computed | None
    """(batch, width) what batch rows send."""
    halo_message: Computed | None
    """(halo, width) what halo rows send, if something comes back to it."""
    sent_by_halo: Tensor
    """(halo, width) its value; given back at the end of the forward pass, if nothing comes back to it."""
    received: Tensor
    """(batch, width) what batch rows make of their messages, before `update`."""
    v: Tensor
    """(batch, width) V̄ˡ, that has arrived; given back by `before`, unless `backward_halo` may follow."""
    v_halo: Tensor
    """(halo, width) V̂ˡ, the same."""
    returned: Tensor
    """(batch, width) what comes back to their messages; known from `come_back` to `before`."""

    def __init__(
        self,
        layer: Layer,
        batch: Batch,
        address: tuple[int, ...],
        initial: Tensor,
        initial_halo: Tensor,
        keep_halo: bool = False,
    ) -> None:
        self.layer, self.batch = layer, batch
        self.initial, self.initial_halo, self.keep_halo = initial, initial_halo, keep_halo
        self.rows, self.halo_rows = Rows(batch.nodes, address), Rows(batch.halo, address, inside=False)

    def send(self, z: Tensor | None, z_halo: Tensor | None) -> None:
        """Compute the messages of H̄ˡ⁻¹ and Ĥˡ⁻¹, each None where nothing reads its messages."""
        self.message = self.halo_message = None
        if z is not None:
            self.message = Computed(lambda z: self._message(z, self.rows), z)
        if z_halo is not None and self.keep_halo:
            self.halo_message = Computed(lambda z: self._message(z, self.halo_rows), z_halo)
            self.sent_by_halo = self.halo_message.value
        elif z_halo is not None:
            with torch.no_grad():
                self.sent_by_halo = self._message(z_halo, self.halo_rows)

    def _message(self, z: Tensor, rows: Rows) -> Tensor:
        return self.placed(self.layer.message(z, rows))

    def placed(self, values: Tensor) -> Tensor:
        """The same values in the type of the step, whatever a module of a user's makes of its input."""
        return values.to(self.initial.dtype)

    @abstractmethod
    def receive(self) -> Tensor:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""

    @abstractmethod
    def received_from_batch(self) -> Tensor:
        """(rows, width) of `received`, what the rows `batch.telling` get from the batch alone."""

    @abstractmethod
    def returned_from_batch(self) -> Tensor:
        """(rows, width) of `returned`, the same."""

    @abstractmethod
    def receive_halo(self, neighbours: Neighbours, replaced: Replaced = computed) -> Tensor:
        """(halo, width) eq. (10): H̃ˡ, incomplete, from the neighbours in reach or in the batch alone.

        Args:
            neighbours: which.
            replaced: what takes the place of what is received from them.
        """

    def end_forward(self, reads_message: bool) -> None:
        """Give back the memory of what nothing comes back to.

        Args:
            reads_message: whether the head or a later layer reads what batch rows send.
        """
        if not self.keep_halo:
            vars(self).pop("sent_by_halo", None)
        if self.message is not None and not reads_message:
            self.message.forget_value()

    def arrive(self, v: Tensor, v_halo: Tensor) -> None:
        """Take V̄ˡ (batch, width) and V̂ˡ (halo, width); who calls this may let go of them."""
        self.v, self.v_halo = v, v_halo

    @abstractmethod
    def come_back(self, gradients: ParameterGradients) -> Tensor | None:
        """`returned`, the sums of eq. (11), and eq. (7) into `gradients`; the derivative at `initial`."""

    @abstractmethod
    def before(self, gradients: ParameterGradients, from_head: Tensor | None = None) -> Tensor:
        """(batch, width) eq. (11): V̄ˡ⁻¹, of what has come back.

        Args:
            gradients: where the parameters' derivatives are added up.
            from_head: (batch, width) what reaches the messages directly, where the head or a later layer
                reads them.
        """

    @abstractmethod
    def collect(self, gradients: ParameterGradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to parameters, to their messages and to `initial`."""

    @abstractmethod
    def backward_halo(self, from_head: Tensor | None = None, replaced: Replaced = computed) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach.

        Args:
            from_head: as for `before`.
            replaced: what takes the place of what comes back from neighbours.
        """

    def read_by_halo_backward(self) -> Tensor | None:
        """(halo, any width) the derivative at `initial_halo`; here nothing, since nothing reads it."""
        return None

    @property
    def width(self) -> int:
        """Of a message."""
        return 0 if self.message is None else self.message.value.shape[1]

    def message_backward(self, gradients: ParameterGradients, *derivatives: Tensor | None) -> Tensor:
        """(batch, width) V̄ˡ⁻¹, of derivatives at the message that add up."""
        assert self.message is not None
        at_message = or_zero(add(None, *derivatives), self.message.value)
        parameters = self.layer.parameters()
        (before,) = gradients.vjp(self.message, at_message, parameters, *self.message.inputs)
        return before

    def halo_message_backward(self, *derivatives: Tensor | None) -> Tensor:
        """(halo, width) Ṽˡ⁻¹, of derivatives at the message that add up."""
        assert self.halo_message is not None
        at_message = or_zero(add(None, *derivatives), self.halo_message.value)
        return self.halo_message.vjp(at_message, *self.halo_message.inputs)[0]


class LinearPass(LayerPass):
    """A layer whose aggregation is linear; see `LayerPass`.

    Args:
        layer: the layer.
        constant: whether messages are the features, whose sums never change.
        outside: what else batch rows receive, as a function of what they send; None for nothing.
        given: as for `LayerPass`.
    """

    layer: LinearLayer
    halo_update: Computed | None = None
    at_own: Tensor | None
    """(batch, width) what reaches messages by what each node reads of its own; as `returned`."""

    def __init__(
        self,
        layer: LinearLayer,
        *given: Any,
        constant: bool = False,
        outside: LowRank | None = None,
        **options: Any,
    ) -> None:
        super().__init__(layer, *given, **options)
        self.constant, self.outside = constant, outside

    def end_forward(self, reads_message: bool) -> None:
        """Give back the memory of what nothing comes back to; see `LayerPass`."""
        if self.keep_halo and self.halo_update is None:
            return  # the halo's update is made of all messages
        super().end_forward(reads_message)
        if self.halo_message is not None and not reads_message:
            self.halo_message.forget_value()
            self.sent_by_halo = self.halo_message.value

    def receive(self) -> Tensor:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""
        if self.constant:
            self.received = self.placed(self.batch.received_features(self.layer.aggregation))
        else:
            self.received = self._aggregated(self.batch.block(self.layer.aggregation))
            if self.outside is not None:
                assert self.message is not None
                self.received = self.outside.add_to(self.received, self.message.value)
        own = self.received[:, :0]
        if self.layer.reads_own:
            assert self.message is not None
            own = self.message.value
        self.update = Computed(partial(self._updated, self.rows), self.received, own, self.initial)
        return self.update.value

    def received_from_batch(self) -> Tensor:
        """(rows, width) of `received`, what the rows `batch.telling` get from the batch alone."""
        return self._aggregated(self.batch.telling_block(self.layer.aggregation))

    def returned_from_batch(self) -> Tensor:
        """(rows, width) of `returned`, the same."""
        return self.batch.transposed_telling_block(self.layer.aggregation).times(self.v, self.v[:0])

    def receive_halo(self, neighbours: Neighbours, replaced: Replaced = computed) -> Tensor:
        """(halo, width) eq. (10): H̃ˡ, incomplete; from the batch alone, not even from the node itself.

        From all of the graph it is complete, where messages are the features.
        """

        def received(rows: Tensor | None) -> Tensor:
            if neighbours == "graph":
                return self.placed(self.batch.features_received_by_halo(self.layer.aggregation))
            block = _rows_of(self.batch.halo_block(self.layer.aggregation), rows)
            if neighbours == "batch":
                block = block.keep(block.indices < self.batch.num_nodes)
            return self._aggregated(block)

        if self.keep_halo and neighbours == "reach":
            return self._updated_halo(partial(replaced, received)).value
        sums = replaced(received)
        own = self.sent_by_halo if self.layer.reads_own else sums[:, :0]
        with torch.no_grad():
            return self._updated(self.halo_rows, sums, own, self.initial_halo)

    def _updated(self, rows: Rows, aggregated: Tensor, own: Tensor, initial: Tensor) -> Tensor:
        return self.placed(self.layer.update_at(rows, aggregated, own, initial))

    def _updated_halo(self, received: Callable[[], Tensor] | None = None) -> Computed:
        """The halo's update; made once, when its values are mixed or when it first sends derivatives."""
        if self.halo_update is None:
            sums = (
                self._aggregated(self.batch.halo_block(self.layer.aggregation))
                if received is None
                else received()
            )
            own = self.sent_by_halo if self.layer.reads_own else sums[:, :0]
            self.halo_update = Computed(partial(self._updated, self.halo_rows), sums, own, self.initial_halo)
        return self.halo_update

    def _aggregated(self, block: CSR) -> Tensor:
        assert self.message is not None
        return block.times(self.message.value, self.sent_by_halo)

    def come_back(self, gradients: ParameterGradients) -> Tensor | None:
        """`returned`, the sums of eq. (11), and eq. (7) into `gradients`; the derivative at `initial`.

        `update` is affine in what is received, with one matrix for all rows: the derivatives of batch and
        halo are added up first, and go through it as batch rows.
        """
        self.at_own, at_initial = self.collect(gradients)
        self.returned = self.batch.transposed_block(self.layer.aggregation).times(self.v, self.v_halo)
        if self.outside is not None:
            self.returned = self.outside.add_transposed_to(self.returned, self.v)
        return at_initial

    def before(self, gradients: ParameterGradients, from_head: Tensor | None = None) -> Tensor:
        """(batch, width) eq. (11): V̄ˡ⁻¹, of what has come back. Memory goes back as early as can be."""
        if not self.keep_halo:
            del self.v, self.v_halo
        at_message, at_own = self._through_update(self.update, self.returned), self.at_own
        del self.update, self.received, self.returned, self.at_own
        before = self.message_backward(gradients, at_message, at_own, from_head)
        if not self.keep_halo or self.halo_update is not None:
            self.message = None  # nothing is made of it any more
        return before

    def _through_update(self, update: Computed, arriving: Tensor) -> Tensor:
        """(rows, width) the derivative at the messages of the rows of an update."""
        return self.layer.returned(arriving, lambda v: update.vjp(v, update.inputs[0])[0])

    def collect(self, gradients: ParameterGradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to parameters, to their messages and to `initial`."""
        _, own, initial = self.update.inputs
        at_own, at_initial = gradients.vjp(self.update, self.v, self.layer.parameters(), own, initial)
        return at_own, at_initial

    def backward_halo(self, from_head: Tensor | None = None, replaced: Replaced = computed) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""

        def arriving(rows: Tensor | None) -> Tensor:
            block = self.batch.transposed_halo_block(self.layer.aggregation)
            return _rows_of(block, rows).times(self.v, self.v_halo)

        by_halo = self._updated_halo()
        at_message = self._through_update(by_halo, replaced(arriving))
        (at_own,) = by_halo.vjp(self.v_halo, by_halo.inputs[1])
        return self.halo_message_backward(at_message, at_own, from_head)

    def read_by_halo_backward(self) -> Tensor | None:
        """(halo, any width) the derivative at `initial_halo`."""
        by_halo = self._updated_halo()
        (at_read,) = by_halo.vjp(self.v_halo, by_halo.inputs[2])
        return at_read


def _rows_of(block: CSR, rows: Tensor | None) -> CSR:
    return block if rows is None else block.take(rows)


def or_zero(derivative: Tensor | None, like: Tensor) -> Tensor:
    """The derivative; zero where there is none."""
    return torch.zeros_like(like) if derivative is None else derivative
