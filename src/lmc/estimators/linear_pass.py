"""One layer at one step: the batch's rows and the halo's, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.estimators.vjp import Gradients, Traced
from lmc.nn.model import LinearLayer
from lmc.nn.rows import Rows
from lmc.sparse import CSR


class Sides(NamedTuple):
    """The same thing of the batch rows and of the halo rows, the columns of a block."""

    batch: Tensor
    halo: Tensor

    def without_halo(self) -> Sides:
        """The batch rows alone."""
        return Sides(self.batch, self.batch[:0])


class LazySides:
    """`Sides` of which each is computed when first asked for.

    >>> LazySides(lambda: torch.ones(2, 1), lambda: 1 / 0).batch.shape
    torch.Size([2, 1])
    """

    def __init__(self, batch: Callable[[], Tensor], halo: Callable[[], Tensor]) -> None:
        self._batch, self._halo = batch, halo

    @cached_property
    def batch(self) -> Tensor:
        """(batch, width)."""
        return self._batch()

    @cached_property
    def halo(self) -> Tensor:
        """(halo, width)."""
        return self._halo()

    def without_halo(self) -> LazySides:
        """The same, with the halo's half to be computed again if it is asked for."""
        vars(self).pop("halo", None)
        return self


class LayerPass:
    """A linear layer at one step: equations (8) and (10) forward, (7), (11) and (13) backward.

    Args:
        layer: the layer.
        batch: where.
        address: (seed, step, place in the model) of the dropout masks.
        z: (.., width) the boundary before, H̄ˡ⁻¹ and Ĥˡ⁻¹.
        initial: (.., width) what the layer reads of the model's input.
        revisits_halo: whether `pull_halo` may follow; if not, memory is given back early.
        constant: whether messages are the features, whose sums are known once and for all.
    """

    def __init__(
        self,
        layer: LinearLayer,
        batch: Batch,
        address: tuple[int, ...],
        z: Sides | LazySides,
        initial: Sides | LazySides,
        revisits_halo: bool = False,
        constant: bool = False,
    ) -> None:
        self.layer, self.batch, self.z, self.initial = layer, batch, z, initial
        self.revisits_halo, self.constant = revisits_halo, constant
        self.rows = Rows(batch.nodes, address), Rows(batch.halo, address, inside=False)

    @cached_property
    def message(self) -> Traced:
        """(batch, width) what batch rows send."""
        return Traced(lambda z: self.layer.message(z, self.rows[0]), self.z.batch)

    @cached_property
    def halo_message(self) -> Traced:
        """(halo, width) what halo rows send."""
        message = Traced(lambda z: self.layer.message(z, self.rows[1]), self.z.halo)
        if not self.revisits_halo:
            message.forget_inputs()
            self.z = self.z.without_halo()
        return message

    @cached_property
    def update(self) -> Traced:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""
        if self.constant:
            received = self.batch.received_features(self.layer.aggregation)
        else:
            received = self._received(self.batch.block(self.layer.aggregation))
        own = self.message.value if self.layer.reads_own else received[:, :0]
        return Traced(self.layer.update, received, own, self.initial.batch)

    @cached_property
    def halo_update(self) -> Traced:
        """(halo, width) eq. (10): H̃ˡ, incomplete, from the neighbours in reach."""
        received = self._received(self.batch.halo_block(self.layer.aggregation))
        return Traced(self.layer.update, received, self.halo_message.value, self.initial.halo)

    def incomplete_from_batch(self) -> Tensor:
        """(halo, width) the value from the neighbours in the batch alone, not even from the node itself."""
        block = self.batch.halo_block(self.layer.aggregation)
        received = self._received(block.keep(block.indices < self.batch.num_nodes))
        with torch.no_grad():
            return self.layer.update(received, self.halo_message.value, self.initial.halo)

    def end_forward(self) -> None:
        """Give back the memory of what halo rows have sent, if nothing comes back to it."""
        if not self.revisits_halo:
            vars(self).pop("halo_message", None)

    def _received(self, block: CSR) -> Tensor:
        return block.times(self.message.value, self.halo_message.value)

    def pull(
        self, v: Sides, gradients: Gradients, from_head: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """(batch, width) eq. (11): V̄ˡ⁻¹, and the derivative at `initial`; eq. (7) into `gradients`.

        `from_head` is what reaches the messages directly, where the head reads them. `update` is affine in
        what is received, with one matrix for all rows: the derivatives of batch and halo are added up
        first, and go through it as batch rows.
        """
        at_own, at_initial = self.collect(v, gradients)
        arriving = self.batch.transposed_block(self.layer.aggregation).times(v.batch, v.halo)
        (at_message,) = self.update.pull(arriving, self.update.inputs[0])
        return self.pull_message(gradients, at_message, at_own, from_head), at_initial

    def pull_message(self, gradients: Gradients, *derivatives: Tensor | None) -> Tensor:
        """(batch, width) V̄ˡ⁻¹, of derivatives at the message that add up."""
        at_message = total(self.message.value, derivatives)
        parameters = self.layer.parameters()
        (before,) = gradients.pull(self.message, at_message, parameters, *self.message.inputs)
        return before

    def pull_halo_message(self, *derivatives: Tensor | None) -> Tensor:
        """(halo, width) Ṽˡ⁻¹, of derivatives at the message that add up."""
        at_message = total(self.halo_message.value, derivatives)
        return self.halo_message.pull(at_message, *self.halo_message.inputs)[0]

    def collect(self, v: Sides, gradients: Gradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to the update's parameters; and to its inputs."""
        _, own, initial = self.update.inputs
        at_own, at_initial = gradients.pull(self.update, v.batch, self.layer.parameters(), own, initial)
        return at_own, at_initial

    def pull_halo(self, v: Sides, from_head: Tensor | None = None) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""
        arriving = self.batch.transposed_halo_block(self.layer.aggregation).times(v.batch, v.halo)
        received, own, _ = self.halo_update.inputs
        (at_message,) = self.halo_update.pull(arriving, received)
        (at_own,) = self.halo_update.pull(v.halo, own)
        return self.pull_halo_message(at_message, at_own, from_head)


def total(like: Tensor, derivatives: Sequence[Tensor | None]) -> Tensor:
    """The sum of those that are there."""
    there = [each for each in derivatives if each is not None]
    return sum(there[1:], start=there[0]) if there else torch.zeros_like(like)
