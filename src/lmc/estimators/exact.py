"""Exact values of every node, layer by layer: one layer's work in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.estimators.direct import Direct
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.layer_pass import LayerPass
from lmc.estimators.step import Step, pass_of
from lmc.estimators.vjp import Computed, ParameterGradients


@dataclass(frozen=True)
class ExactValues:
    """The exact values of the whole graph.

    Attributes:
        embeddings: zˡ of all nodes, l = 1 .. L.
        auxiliaries: Vˡ of all nodes, l = 1 .. L; empty if they were not asked for.
    """

    embeddings: list[Tensor]
    auxiliaries: list[Tensor]


class ExactHalo(HaloPolicy):
    """The halo's exact values.

    Args:
        values: of the whole graph.
        batch: whose halo.
    """

    def __init__(self, values: ExactValues, batch: Batch) -> None:
        self._values, self._nodes = values, batch.halo

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) Hˡ."""
        return self._values.embeddings[layer - 1][self._nodes]

    def auxiliaries(self, layer: int, incomplete: Callable[[], Tensor]) -> Tensor:
        """(halo, width) Vˡ."""
        return self._values.auxiliaries[layer - 1][self._nodes]


def exact_values(step: Step, backward: bool = True) -> ExactValues:
    """zˡ and Vˡ of every node, at the parameters as they are.

    Args:
        step: on the batch of all nodes.
        backward: whether to go on to Vˡ.
    """
    model, whole = step.model, step.batch
    nothing = whole.graph.x[:0, :0]
    encoded = step.encode(whole.nodes).value
    initial = Computed(model.initial, encoded).value if model.reads_initial else nothing
    embeddings: list[Tensor] = []
    jumped, read_again = model.jumped_to, model.read_again
    sent: list[Tensor] = []

    def sent_through(place: int) -> LayerPass:
        """The layer, its messages computed."""
        before = encoded if place == 1 else embeddings[place - 2]
        layer = model.layers[place - 1]
        read = layer.what_it_reads(sent[: place - 1], initial)
        at = pass_of(layer, whole, (*step.address, place), read, nothing)
        at.send(before, before[:0])
        return at

    for place in range(1, len(model.layers) + 1):
        at = sent_through(place)
        embeddings.append(at.receive())
        is_read = place in jumped or place in read_again
        sent.append(at.message.value if is_read and at.message else nothing)
    if not backward:
        return ExactValues(embeddings, [])

    losses = step.losses(*(sent[place - 1] for place in jumped), embeddings[-1])
    *from_head, v = losses.vjp(torch.ones_like(losses.value), *losses.inputs)
    direct, widths = Direct(jumped, from_head), [message.shape[1] for message in sent]
    auxiliaries = [v]
    for place in range(len(model.layers), 1, -1):
        at = sent_through(place)
        at.receive()
        v, at_read = at.backward(v, v[:0], ParameterGradients(wanted=False), direct.pop(place))
        direct.add_read(at.layer, at_read, widths[: place - 1])
        auxiliaries.insert(0, v)
    return ExactValues(embeddings, auxiliaries)
