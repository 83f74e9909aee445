"""One step of message passing on a batch, forward and backward, with stand-ins for what is outside.

The numbers are those of the paper's equations. Its h is our boundary value z, its update u(h, m, x) our
`layer.update`, its V the derivative of the *sum* of the losses by z: multiplied by `scale` and divided by
the number of labelled nodes it is that of the mean. Until then it is of the order of one, so that
histories may be kept in half precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lmc.batch import Batch
from lmc.estimators.traced import Gradients, Traced
from lmc.losses import Loss
from lmc.nn.model import Layer, Model
from lmc.nn.rows import Rows


class Outside(Protocol):
    """What stands in for the halo, and what becomes of the batch's values; layers count from 1 to L."""

    def halo_embeddings(self, layer: int, at: LayerPass) -> Tensor:
        """(halo, width) Ĥˡ behind the layer l whose pass is `at`."""

    def halo_auxiliaries(self, layer: int, halo: Tensor, up_to_date: Callable[[], Tensor]) -> Tensor | None:
        """(halo, width) V̂ˡ, or None for zero.

        `up_to_date` computes the incomplete Ṽˡ, and at l = L the derivative of the halo's own losses.
        """

    def keep_embeddings(self, layer: int, nodes: Tensor, z: Tensor) -> None:
        """Take note of the batch's new H̄ˡ."""

    def keep_auxiliaries(self, layer: int, nodes: Tensor, v: Tensor) -> None:
        """Take note of the batch's new V̄ˡ."""


class NoHalo:
    """An `Outside` where nothing is outside, or nothing is let in."""

    def halo_embeddings(self, layer: int, at: LayerPass) -> Tensor:
        """(0, width)."""
        return at.update.value[:0]

    def halo_auxiliaries(self, layer: int, halo: Tensor, up_to_date: Callable[[], Tensor]) -> Tensor | None:
        """Zero."""
        return None

    def keep_embeddings(self, layer: int, nodes: Tensor, z: Tensor) -> None:
        """Nothing to remember."""

    def keep_auxiliaries(self, layer: int, nodes: Tensor, v: Tensor) -> None:
        """Nothing to remember."""


class Sides(NamedTuple):
    """The same thing of the batch rows and of the halo rows."""

    batch: Tensor
    halo: Tensor

    def joined(self) -> Tensor:
        """(batch + halo, ...) in the order of the blocks' columns."""
        return torch.cat(self)


class LayerPass:
    """One layer at one step: equations (8) and (10) forward, (11) and (13) backward.

    Args:
        layer: the layer.
        batch: where.
        address: (seed, step, place in the model) of the dropout masks.
        z: (.., width) the boundary before, H̄ˡ⁻¹ and Ĥˡ⁻¹.
        initial: (.., width) what the layer reads of the model's input.
    """

    def __init__(
        self, layer: Layer, batch: Batch, address: tuple[int, ...], z: Sides, initial: Sides
    ) -> None:
        self.layer, self.batch, self.initial = layer, batch, initial
        inside, halo = Rows(batch.nodes, address), Rows(batch.halo, address, inside=False)
        self.message = Traced(lambda z: layer.message(z, inside), z.batch)
        self.halo_message = Traced(lambda z: layer.message(z, halo), z.halo)
        self.sent = Sides(self.message.value, self.halo_message.value).joined()

    @cached_property
    def update(self) -> Traced:
        """(batch, width) eq. (8): H̄ˡ, from batch and halo."""
        received = self.batch.block(self.layer.aggregation) @ self.sent
        return Traced(self.layer.update, received, self.message.value, self.initial.batch)

    @cached_property
    def halo_update(self) -> Traced:
        """(halo, width) eq. (10): H̃ˡ, incomplete, from the neighbours in reach."""
        received = self.batch.halo_block(self.layer.aggregation) @ self.sent
        return Traced(self.layer.update, received, self.halo_message.value, self.initial.halo)

    def incomplete_from_batch(self) -> Tensor:
        """(halo, width) the value from the neighbours in the batch alone."""
        block = self.batch.halo_block(self.layer.aggregation)
        received = block.keep(block.indices < self.batch.num_nodes) @ self.sent
        with torch.no_grad():
            return self.layer.update(received, self.halo_message.value, self.initial.halo)

    def pull(self, v: Sides) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, width) eq. (11): V̄ˡ⁻¹; then the derivatives at `initial` and at the message.

        `update` is affine in what is received, with one matrix for all rows: the derivatives of batch
        and halo are added up first, and go through it as batch rows.
        """
        arriving = self.batch.transposed_block(self.layer.aggregation) @ v.joined()
        received, own, initial = self.update.inputs
        (at_received,) = self.update.pull(arriving, received)
        at_own, at_initial = self.update.pull(v.batch, own, initial)
        at_message = at_received + at_own
        (before,) = self.message.pull(at_message, *self.message.inputs)
        return before, at_initial, at_message

    def pull_halo(self, v: Sides) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""
        arriving = self.batch.transposed_halo_block(self.layer.aggregation) @ v.joined()
        received, own, _ = self.halo_update.inputs
        (at_received,) = self.halo_update.pull(arriving, received)
        (at_own,) = self.halo_update.pull(v.halo, own)
        return self.halo_message.pull(at_received + at_own, *self.halo_message.inputs)[0]

    def collect(self, gradients: Gradients, v: Tensor, at_message: Tensor) -> None:
        """Eq. (7): what batch rows, and only they, give to the layer's parameters."""
        of_message = list(self.layer.message.parameters())
        known = set(of_message)
        gradients.pull(self.update, v, [p for p in self.layer.parameters() if p not in known])
        gradients.pull(self.message, at_message, of_message)


class LayerwiseStep:
    """The forward and backward pass of one batch.

    Args:
        model: what is trained.
        batch: where.
        outside: what stands in for the halo.
        loss: per node.
        address: (seed, step) of the dropout masks.
    """

    def __init__(
        self, model: Model, batch: Batch, outside: Outside, loss: Loss, address: tuple[int, int]
    ) -> None:
        self.model, self.batch, self.outside, self.loss = model, batch, outside, loss
        self.address = address
        self.depth = len(model.layers)
        self.gradients = Gradients()

    def run(self) -> float:
        """The sum of the batch's losses; the parameters' derivatives of it are in `gradients` then."""
        # Ĥ⁰ is exact: it depends on the node's own features alone.
        encoder, halo_encoder = self.encoded(self.batch.nodes), self.encoded(self.batch.halo, inside=False)
        initial, halo_initial = (Traced(self.model.initial, e.value) for e in (encoder, halo_encoder))
        z = Sides(encoder.value, halo_encoder.value)
        passes = self._forward(z, Sides(initial.value, halo_initial.value))

        losses = self.losses(passes[-1].update.value)
        one = torch.ones_like(losses.value)
        self.gradients.pull(losses, one, self.model.head.parameters())
        (v,) = losses.pull(one, *losses.inputs)

        at_encoded, at_initial = self._backward(passes, v)
        at_encoded = at_encoded + initial.pull(at_initial, *initial.inputs)[0]
        self.gradients.pull(encoder, at_encoded, self.model.encoder.parameters())
        return float(losses.value)

    def _forward(self, z: Sides, initial: Sides) -> list[LayerPass]:
        """Algorithm 1, lines 6 to 9."""
        passes = []
        for place, layer in enumerate(self.model.layers, start=1):
            at = LayerPass(layer, self.batch, (*self.address, place), z, initial)
            self.outside.keep_embeddings(place, self.batch.nodes, at.update.value)
            if place < self.depth:
                z = Sides(at.update.value, self.outside.halo_embeddings(place, at))
            passes.append(at)
        return passes

    def _backward(self, passes: list[LayerPass], v_batch: Tensor) -> tuple[Tensor, Tensor]:
        """Algorithm 1, lines 10 to 15: V̄⁰, and the derivative at what layers read of the input."""
        at_losses = partial(self._at_halo_losses, passes[-1])
        v = Sides(v_batch, self._halo_auxiliaries(self.depth, v_batch, at_losses))
        at_initial = torch.zeros(())
        for place in range(self.depth, 0, -1):
            at = passes.pop()
            before, from_layer, at_message = at.pull(v)
            at.collect(self.gradients, v.batch, at_message)
            at_initial = at_initial + from_layer
            if place > 1:
                self.outside.keep_auxiliaries(place - 1, self.batch.nodes, before)
                v = Sides(before, self._halo_auxiliaries(place - 1, before, partial(at.pull_halo, v)))
        return before, at_initial

    def _halo_auxiliaries(self, layer: int, like: Tensor, up_to_date: Callable[[], Tensor]) -> Tensor:
        found = self.outside.halo_auxiliaries(layer, self.batch.halo, up_to_date)
        return like.new_zeros(self.batch.num_halo, like.shape[1]) if found is None else found

    def _at_halo_losses(self, last: LayerPass) -> Tensor:
        """(halo, width) the derivative of the halo's own losses, at its halo values."""
        losses = self.losses(self.outside.halo_embeddings(self.depth, last), inside=False)
        return losses.pull(torch.ones_like(losses.value), *losses.inputs)[0]

    def encoded(self, nodes: Tensor, inside: bool = True) -> Traced:
        """(nodes, width) z⁰."""
        rows = Rows(nodes, (*self.address, 0), inside)
        return Traced(lambda x: self.model.encoder(x, rows), self.batch.graph.x[nodes])

    def losses(self, z: Tensor, inside: bool = True) -> Traced:
        """The sum of the losses of the labelled nodes, from zᴸ of the batch or of the halo."""
        split = self.batch.num_nodes
        part = slice(None, split) if inside else slice(split, None)
        labelled, y = self.batch.train_mask[part], self.batch.y[part]
        rows = Rows(self.batch.members[part], (*self.address, self.depth + 1), inside)

        def total(z: Tensor) -> Tensor:
            return self.loss(self.model.head(z, rows)[labelled], y[labelled]).sum()

        return Traced(total, z)
