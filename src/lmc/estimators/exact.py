"""Exact values of every node, layer by layer: one layer's work in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.estimators.linear_pass import LayerPass, Sides
from lmc.estimators.losses import Loss
from lmc.estimators.step import LayerwiseStep, NoHalo, pass_of
from lmc.estimators.vjp import NoGradients
from lmc.nn.model import Model


@dataclass(frozen=True)
class ExactValues(NoHalo):
    """The exact values of the whole graph, as an `Outside`: the halo is what it is.

    Attributes:
        embeddings: zˡ of all nodes, l = 1 .. L.
        auxiliaries: Vˡ of all nodes, l = 1 .. L.
    """

    embeddings: list[Tensor]
    auxiliaries: list[Tensor]

    def halo_embeddings(self, layer: int, at: LayerPass) -> Tensor:
        """(halo, width) zˡ."""
        return self.embeddings[layer - 1][at.batch.halo]

    def halo_auxiliaries(self, layer: int, halo: Tensor, up_to_date: Callable[[], Tensor]) -> Tensor:
        """(halo, width) Vˡ."""
        return self.auxiliaries[layer - 1][halo]


def exact_values(
    model: Model, whole: Batch, loss: Loss, address: tuple[int, int], backward: bool = True
) -> ExactValues:
    """zˡ and Vˡ of every node, at the parameters as they are.

    Args:
        model: the model.
        whole: the batch of all nodes.
        loss: per node.
        address: (seed, step) of the dropout masks.
        backward: whether to go on to Vˡ.
    """
    step = LayerwiseStep(model, whole, NoHalo(), loss, address)
    nothing = whole.graph.x.new_empty(0, 0)

    def layer_pass(place: int) -> LayerPass:
        before = encoded if place == 1 else embeddings[place - 2]
        z = Sides(before, nothing.reshape(0, before.shape[1]))
        return pass_of(model.layers[place - 1], whole, (*address, place), z, initial)

    encoded, initial = step.encoder.value, Sides(step.initial.value, step.initial.value[:0])
    embeddings: list[Tensor] = []
    seen: list[Tensor] = []
    for place in range(1, step.depth + 1):
        at = layer_pass(place)
        embeddings.append(at.update.value)
        if model.jumps and place > 1:
            seen.append(at.message.value)

    if not backward:
        return ExactValues(embeddings, [])
    losses = step.losses(*seen, embeddings[-1])
    *from_head, v = losses.pull(torch.ones_like(losses.value), *losses.inputs)
    auxiliaries = [v]
    for place in range(step.depth, 1, -1):
        v = auxiliaries[0]
        direct = from_head.pop() if from_head else None
        before, _ = layer_pass(place).pull(Sides(v, v[:0]), NoGradients(), direct)
        auxiliaries.insert(0, before)
    return ExactValues(embeddings, auxiliaries)
