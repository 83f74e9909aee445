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
from lmc.errors import ArgumentError
from lmc.estimators.traced import Gradients, Traced
from lmc.losses import Loss
from lmc.nn.model import Layer, Model
from lmc.nn.rows import Rows
from lmc.sparse import CSR


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

    @property
    def revisits_halo(self) -> bool:
        """Whether `halo_auxiliaries` may ask for what is up to date; if not, the halo is forgotten early."""


class NoHalo:
    """An `Outside` where nothing is outside, or nothing is let in, and nothing is remembered."""

    revisits_halo = False

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
    """One layer at one step: equations (8) and (10) forward, (7), (11) and (13) backward.

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
        layer: Layer,
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

    def pull(self, v: Sides, gradients: Gradients) -> tuple[Tensor, Tensor | None]:
        """(batch, width) eq. (11): V̄ˡ⁻¹, and the derivative at `initial`; eq. (7) into `gradients`.

        `update` is affine in what is received, with one matrix for all rows: the derivatives of batch
        and halo are added up first, and go through it as batch rows.
        """
        at_own, at_initial = self.collect(v, gradients)
        arriving = self.batch.transposed_block(self.layer.aggregation).times(v.batch, v.halo)
        (at_message,) = self.update.pull(arriving, self.update.inputs[0])
        if at_own is not None:
            at_message += at_own
        parameters = self.layer.parameters()
        (before,) = gradients.pull(self.message, at_message, parameters, *self.message.inputs)
        return before, at_initial

    def collect(self, v: Sides, gradients: Gradients) -> tuple[Tensor | None, Tensor | None]:
        """Eq. (7): what batch rows, and only they, give to the update's parameters; and to its inputs."""
        _, own, initial = self.update.inputs
        at_own, at_initial = gradients.pull(self.update, v.batch, self.layer.parameters(), own, initial)
        return at_own, at_initial

    def pull_halo(self, v: Sides) -> Tensor:
        """(halo, width) eq. (13): Ṽˡ⁻¹, incomplete, from the neighbours in reach."""
        arriving = self.batch.transposed_halo_block(self.layer.aggregation).times(v.batch, v.halo)
        received, own, _ = self.halo_update.inputs
        (at_message,) = self.halo_update.pull(arriving, received)
        (at_own,) = self.halo_update.pull(v.halo, own)
        if at_own is not None:
            at_message += at_own
        return self.halo_message.pull(at_message, *self.halo_message.inputs)[0]


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
        z = LazySides(lambda: self.encoder.value, lambda: self.encoded(self.batch.halo, inside=False).value)
        initial = LazySides(lambda: self.initial.value, lambda: self._initial_of(lambda: z.halo).value)
        passes = self._forward(z, initial)

        losses = self.losses(passes[-1].update.value)
        of_head = self.model.head.parameters()
        (v,) = self.gradients.pull(losses, torch.ones_like(losses.value), of_head, *losses.inputs)

        at_encoded, at_initial = self._backward(passes, v)
        if at_encoded is not None:
            if at_initial is not None:
                at_encoded += self.initial.pull(at_initial, *self.initial.inputs)[0]
            self.gradients.pull(self.encoder, at_encoded, self.model.encoder.parameters())
        return float(losses.value)

    @cached_property
    def encoder(self) -> Traced:
        """(batch, width) z⁰."""
        return self.encoded(self.batch.nodes)

    @cached_property
    def initial(self) -> Traced:
        """(batch, width) what the layers read of z⁰."""
        return self._initial_of(lambda: self.encoder.value)

    def _initial_of(self, encoded: Callable[[], Tensor]) -> Traced:
        x = self.batch.graph.x
        return Traced(self.model.initial, encoded() if self.model.reads_initial else x[:0, :0])

    def _forward(self, z: Sides | LazySides, initial: LazySides) -> list[LayerPass]:
        """Algorithm 1, lines 6 to 9."""
        passes = []
        boundary = [z]  # handed over to its pass, which gives the memory back as early as it can
        for place, layer in enumerate(self.model.layers, start=1):
            constant = place == 1 and self._first_messages_are_features
            at = LayerPass(
                layer,
                self.batch,
                (*self.address, place),
                boundary.pop(),
                initial,
                self.outside.revisits_halo,
                constant,
            )
            self.outside.keep_embeddings(place, self.batch.nodes, at.update.value)
            if place < self.depth:
                boundary.append(Sides(at.update.value, self.outside.halo_embeddings(place, at)))
            at.end_forward()
            passes.append(at)
        return passes

    @property
    def _first_messages_are_features(self) -> bool:
        return self.model.encoder.is_identity and self.model.layers[0].message.is_identity

    def _backward(self, passes: list[LayerPass], v_batch: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Algorithm 1, lines 10 to 15: V̄⁰, and the derivative at what layers read of the input.

        V̄⁰ is None where nothing before the first layer is trained.
        """
        at_losses = partial(self._at_halo_losses, passes[-1])
        v = Sides(v_batch, self._halo_auxiliaries(self.depth, v_batch, at_losses))
        first = self.model.layers[0]
        below = [*self.model.encoder.parameters(), *first.message.parameters()]
        at_initial = None
        for place in range(self.depth, 0, -1):
            at = passes.pop()
            if place == 1 and not any(p.requires_grad for p in below):
                at.collect(v, self.gradients)
                return None, None
            before, from_layer = at.pull(v, self.gradients)
            if from_layer is not None:
                at_initial = from_layer if at_initial is None else at_initial + from_layer
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
        return Traced(lambda x: self.model.encoder(x, rows), self.batch.graph.x.index_select(0, nodes))

    def losses(self, z: Tensor, inside: bool = True) -> Traced:
        """The sum of the losses of the labelled nodes, from zᴸ of the batch or of the halo."""
        split = self.batch.num_nodes
        part = slice(None, split) if inside else slice(split, None)
        labelled, y = self.batch.train_mask[part], self.batch.y[part]
        rows = Rows(self.batch.members[part], (*self.address, self.depth + 1), inside)

        def total(z: Tensor) -> Tensor:
            prediction = self.model.head(z, rows)[labelled]
            each = self.loss(prediction, y[labelled])
            if each.shape != (len(prediction),):
                found = f"shape {tuple(each.shape)} for {len(prediction)} rows"
                raise ArgumentError(f"loss: gives {found}; must be one number per row")
            return each.sum()

        return Traced(total, z)
