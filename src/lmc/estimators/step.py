"""One step of message passing on a batch, forward and backward, with stand-ins for what is outside.

The numbers are those of the paper's equations. Its h is our boundary value z, its update u(h, m, x) our
`layer.update`, its V the derivative of the *sum* of the losses by z: multiplied by `scale` and divided by
the number of labelled nodes it is that of the mean. Until then it is of the order of one, so that
histories may be kept in half precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.errors import ArgumentError
from lmc.estimators.convolution_pass import ConvolutionPass
from lmc.estimators.linear_pass import LayerPass, LazySides, Sides
from lmc.estimators.losses import Loss
from lmc.estimators.vjp import Gradients, Traced
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.model import Layer, LinearLayer, Model
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


def pass_of(layer: Layer, *given: Any) -> LayerPass:
    """The layer at one step; see `LayerPass`."""
    if isinstance(layer, LinearLayer):
        return LayerPass(layer, *given)
    assert isinstance(layer, ConvolutionLayer)
    return ConvolutionPass(layer, *given)


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

        losses = self.losses(*self._seen(passes))
        of_head = self.model.head.parameters()
        *from_head, v = self.gradients.pull(losses, torch.ones_like(losses.value), of_head, *losses.inputs)

        at_encoded, at_initial = self._backward(passes, v, from_head)
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
            given = (layer, self.batch, (*self.address, place), boundary.pop(), initial)
            at = pass_of(*given, self.outside.revisits_halo or self.model.jumps, constant)
            self.outside.keep_embeddings(place, self.batch.nodes, at.update.value)
            if place < self.depth:
                boundary.append(Sides(at.update.value, self.outside.halo_embeddings(place, at)))
            at.end_forward()
            passes.append(at)
        return passes

    @property
    def _first_messages_are_features(self) -> bool:
        return self.model.encoder.is_identity and self.model.layers[0].message.is_identity

    def _seen(self, passes: Sequence[LayerPass]) -> list[Tensor]:
        """What the head reads of the batch: with `jumps`, the messages into every layer but the first."""
        messages = [at.message.value for at in passes[1:]] if self.model.jumps else []
        return [*messages, passes[-1].update.value]

    def _backward(
        self, passes: list[LayerPass], v_batch: Tensor, from_head: list[Tensor]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Algorithm 1, lines 10 to 15: V̄⁰, and the derivative at what layers read of the input.

        V̄⁰ is None where nothing before the first layer is trained. `from_head` are the derivatives that
        reach the messages directly.
        """
        at_losses = HaloLosses(self, passes)
        v = Sides(v_batch, self._halo_auxiliaries(self.depth, v_batch, lambda: at_losses.pulled[-1]))
        first = self.model.layers[0]
        below = [*self.model.encoder.parameters(), *first.message.parameters()]
        trains_below = any(p.requires_grad for p in below)
        at_initial = None
        for place in range(self.depth, 0, -1):
            at = passes.pop()
            if place == 1 and not trains_below:
                at.collect(v, self.gradients)
                return None, None
            direct = from_head.pop() if from_head and place > 1 else None
            before, from_layer = at.pull(v, self.gradients, direct)
            if from_layer is not None:
                at_initial = from_layer if at_initial is None else at_initial + from_layer
            if place > 1:
                self.outside.keep_auxiliaries(place - 1, self.batch.nodes, before)
                halo = before[:0]
                # The first layer is pulled through, halo and all, only where something before it is trained.
                if place > 2 or trains_below:
                    up_to_date = partial(self._pull_halo, at, v, at_losses, place)
                    halo = self._halo_auxiliaries(place - 1, before, up_to_date)
                v = Sides(before, halo)
        return before, at_initial

    def _pull_halo(self, at: LayerPass, v: Sides, at_losses: HaloLosses, place: int) -> Tensor:
        return at.pull_halo(v, at_losses.pulled[place - 2] if self.model.jumps else None)

    def _halo_auxiliaries(self, layer: int, like: Tensor, up_to_date: Callable[[], Tensor]) -> Tensor:
        found = self.outside.halo_auxiliaries(layer, self.batch.halo, up_to_date)
        return like.new_zeros(self.batch.num_halo, like.shape[1]) if found is None else found

    def encoded(self, nodes: Tensor, inside: bool = True) -> Traced:
        """(nodes, width) z⁰."""
        rows = Rows(nodes, (*self.address, 0), inside)
        return Traced(lambda x: self.model.encoder(x, rows), self.batch.graph.x.index_select(0, nodes))

    def losses(self, *seen: Tensor, inside: bool = True) -> Traced:
        """The sum of the losses of the labelled nodes, from what the head sees of the batch or the halo."""
        split = self.batch.num_nodes
        part = slice(None, split) if inside else slice(split, None)
        labelled, y = self.batch.train_mask[part], self.batch.y[part]
        rows = Rows(self.batch.members[part], (*self.address, self.depth + 1), inside)

        def total(*seen: Tensor) -> Tensor:
            prediction = self.model.read(seen, rows)[labelled]
            each = self.loss(prediction, y[labelled])
            if each.shape != (len(prediction),):
                found = f"shape {tuple(each.shape)} for {len(prediction)} rows"
                raise ArgumentError(f"loss: gives {found}; must be one number per row")
            return each.sum()

        return Traced(total, *seen)


class HaloLosses:
    """The derivatives of the halo's own losses, at its halo values.

    Args:
        step: where.
        passes: its layers.
    """

    def __init__(self, step: LayerwiseStep, passes: Sequence[LayerPass]) -> None:
        self._step, self._passes = step, list(passes) if step.model.jumps else passes[-1:]

    @cached_property
    def pulled(self) -> list[Tensor]:
        """(halo, width) each, at what the head sees: with `jumps` messages, and zᴸ as the last."""
        step, last = self._step, self._passes[-1]
        messages = [at.halo_message.value for at in self._passes[1:]]
        losses = step.losses(*messages, step.outside.halo_embeddings(step.depth, last), inside=False)
        return losses.pull(torch.ones_like(losses.value), *losses.inputs)
