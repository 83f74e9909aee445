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
from lmc.estimators.step import Step, pass_of, trains_before_first
from lmc.estimators.vjp import Computed, ParameterGradients, add
from lmc.nn.model import LinearLayer


@dataclass(frozen=True)
class ExactValues:
    """The exact values of the whole graph.

    Attributes:
        embeddings: zˡ of all nodes, l = 1 .. L.
        auxiliaries: Vˡ of all nodes, l = 1 .. L; empty if they were not asked for.
        at_messages: by layer, the derivative of all losses at what every node sends in it; of the layers
            whose aggregation is not linear.
    """

    embeddings: list[Tensor]
    auxiliaries: list[Tensor]
    at_messages: dict[int, Tensor]


class ExactHalo(HaloPolicy):
    """The halo's exact values, and what it sends back to the batch.

    Where the aggregation is linear, V of the halo is enough to know the latter. Where it is not, it depends
    on all that the halo itself receives, some of it out of reach: there it comes from the whole graph.

    Args:
        values: of the whole graph.
        batch: whose halo.
    """

    def __init__(self, values: ExactValues, batch: Batch) -> None:
        self._values, self._nodes, self._inside = values, batch.ids("halo"), batch.ids("nodes")

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) Hˡ."""
        return self._values.embeddings[layer - 1][self._nodes]

    def auxiliaries(self, layer: int, incomplete: Callable[[], Tensor]) -> Tensor:
        """(halo, width) Vˡ."""
        return self._values.auxiliaries[layer - 1][self._nodes]

    def derivative_at_messages(self, layer: int) -> Tensor | None:
        """(batch, width) of all losses at what batch rows send, where the layer is not linear."""
        at_messages = self._values.at_messages.get(layer)
        return None if at_messages is None else at_messages[self._inside]


def exact_values(step: Step, backward: bool = True) -> ExactValues:
    """zˡ and Vˡ of every node, at the parameters as they are.

    Args:
        step: on the batch of all nodes; its halo policy is told what it may keep, and who watches it what
            the gradient of the last layer is made of.
        backward: whether to go on to Vˡ.
    """
    model, whole = step.model, step.batch
    nothing = step.placement.put(whole.graph.x[:0, :0])
    encoded = step.encode().value
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
        step.halo.keep_received(place, at.received, at.received_from_batch)
        step.halo.keep_embeddings(place, embeddings[-1], None)
        is_read = place in jumped or place in read_again
        sent.append(at.message.value if is_read and at.message else nothing)
    if not backward and step.watch is None:
        return ExactValues(embeddings, [], {})

    losses = step.losses(*(sent[place - 1] for place in jumped), embeddings[-1])
    *from_head, v = losses.vjp(torch.ones_like(losses.value), *losses.inputs)
    if step.watch is not None:
        step.watch(whole, v, at.received)
    if not backward:
        return ExactValues(embeddings, [], {})
    direct, widths = Direct(jumped, from_head), [message.shape[1] for message in sent]
    auxiliaries: list[Tensor] = []
    at_messages: dict[int, Tensor] = {}
    values_only = ParameterGradients(wanted=False)
    for place in range(len(model.layers), 0, -1):
        auxiliaries.insert(0, v)
        if place < len(model.layers):
            step.halo.keep_auxiliaries(place, v)
        is_linear = isinstance(model.layers[place - 1], LinearLayer)
        if place == 1 and (is_linear or not trains_before_first(model)):
            break  # nobody asks for what is before the first layer
        at = sent_through(place)
        at.receive()
        at.arrive(v, v[:0])
        at_read, direct_here = at.come_back(values_only), direct.pop(place)
        step.halo.keep_returned(place - 1, at.returned, at.returned_from_batch)
        if is_linear:
            direct.add_read(at.layer, at_read, widths[: place - 1])
        else:
            at_messages[place] = add(at.returned, direct_here)
        v = at.before(values_only, direct_here)
    return ExactValues(embeddings, auxiliaries, at_messages)
