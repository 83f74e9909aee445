"""One layer at one step, for the rows of the batch and of the halo: what every kind of layer can be asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.estimators.vjp import Computed, ParameterGradients, add
from lmc.nn.model import Layer
from lmc.nn.rows import Rows


class LayerPass(ABC):
    """A layer at one step. The calls come in this order:

    forward: `send`, `receive`, perhaps `receive_halo`, `end_forward`;
    backward: `backward`, or `collect` where nothing before the layer is trained; perhaps `backward_halo`.

    Args:
        layer: the layer.
        batch: where.
        address: (seed, step, place in the model) of the dropout masks.
        initial: (batch, any width) what the layer reads of the model's input.
        initial_halo: (halo, any width) the same of the halo, for `receive_halo` and `backward_halo`.
        keep_halo: whether `backward_halo` may follow; if not, the halo's memory is given back early.
    """

    message: Computed | None
    """(batch, width) what batch rows send."""
    halo_message: Computed | None
    """(halo, width) what halo rows send, if something comes back to it."""
    sent_by_halo: Tensor
    """(halo, width) its value; given back at the end of the forward pass, if nothing comes back to it."""

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
            self.message = Computed(lambda z: self.layer.message(z, self.rows), z)
        if z_halo is not None and self.keep_halo:
            self.halo_message = Computed(lambda z: self.layer.message(z, self.halo_rows), z_halo)
            self.sent_by_halo = self.halo_message.value
        elif z_halo is not None:
            with torch.no_grad():
                self.sent_by_halo = self.layer.message(z_halo, self.halo_rows)

    @abstractmethod
    def receive(self) -> Tensor:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""

    @abstractmethod
    def receive_halo(self, neighbours: Literal["reach", "batch"]) -> Tensor:
        """(halo, width) eq. (10): H̃ˡ, incomplete, from the neighbours in reach or in the batch alone."""

    def end_forward(self) -> None:
        """Give back the memory of what nothing comes back to."""
        if not self.keep_halo:
            vars(self).pop("sent_by_halo", None)

    @abstractmethod
    def backward(
        self, v: Tensor, v_halo: Tensor, gradients: ParameterGradients, from_head: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(batch, width) eq. (11): V̄ˡ⁻¹, and the derivative at `initial`; eq. (7) into `gradients`.

        Args:
            v: (batch, width) V̄ˡ.
            v_halo: (halo, width) V̂ˡ.
            gradients: where the parameters' derivatives are added up.
            from_head: (batch, width) what reaches the messages directly, where the head reads them.
        """

    @abstractmethod
    def collect(self, v: Tensor, gradients: ParameterGradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to parameters, to their messages and to `initial`."""

    @abstractmethod
    def backward_halo(self, v: Tensor, v_halo: Tensor, from_head: Tensor | None = None) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""

    def message_backward(self, gradients: ParameterGradients, *derivatives: Tensor | None) -> Tensor:
        """(batch, width) V̄ˡ⁻¹, of derivatives at the message that add up."""
        assert self.message is not None
        at_message = _or_zero(add(None, *derivatives), self.message.value)
        parameters = self.layer.parameters()
        (before,) = gradients.vjp(self.message, at_message, parameters, *self.message.inputs)
        return before

    def halo_message_backward(self, *derivatives: Tensor | None) -> Tensor:
        """(halo, width) Ṽˡ⁻¹, of derivatives at the message that add up."""
        assert self.halo_message is not None
        at_message = _or_zero(add(None, *derivatives), self.halo_message.value)
        return self.halo_message.vjp(at_message, *self.halo_message.inputs)[0]


def _or_zero(derivative: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if derivative is None else derivative
