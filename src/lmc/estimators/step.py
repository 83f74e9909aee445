"""One step: lines 5 to 15 of algorithm 1, with a policy for what is outside of the batch.

The numbers are those of the paper's equations. Its h is our boundary value z, its update u(h, m, x) our
`layer.update`, its V the derivative of the *sum* of the losses by z: multiplied by `scale` and divided by
the number of labelled nodes it is that of the mean. Until then it is of the order of one, so that
histories may be kept in half precision. H̄ and Ĥ are `z` and `z_halo`, V̄ and V̂ are `v` and `v_halo`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.data.typed_adjacency import TYPED
from lmc.device import on_host
from lmc.estimators.chosen_rows import chosen_rows
from lmc.estimators.convolution_pass import ConvolutionPass
from lmc.estimators.direct import Direct
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.layer_pass import LayerPass, LinearPass
from lmc.estimators.losses import Loss
from lmc.estimators.low_rank import LowRank
from lmc.estimators.placement import Placement, in_full
from lmc.estimators.vjp import Computed, ParameterGradients, add
from lmc.kernels.fixed_sums import total
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.model import Layer, LinearLayer, Model
from lmc.nn.rows import Rows

Watch = Callable[[Batch, Tensor, Tensor], None]
"""Is told the batch, V̄ᴸ (batch, width) and what the last layer received (batch, width)."""


@dataclass
class Forward:
    """What the backward pass needs of the forward pass.

    Attributes:
        encoded: (batch, width) H̄⁰; None where no layer reads it.
        initial: (batch, any width) what every layer reads of it; None for nothing.
        passes: the layers at this step, from the first to the last.
        z: (batch, width) H̄ᴸ.
        z_halo: (halo, width) Ĥᴸ; None where the halo's own losses do not count.
    """

    encoded: Computed | None
    initial: Computed | None
    passes: list[LayerPass]
    z: Tensor
    z_halo: Tensor | None


@dataclass(frozen=True)
class Step:
    """The forward and backward pass of one batch, the one that line 4 has sampled.

    Attributes:
        model: what is trained.
        batch: where.
        halo: what replaces the values outside of the batch.
        loss: per node.
        address: (seed, step) of the dropout masks.
        placement: type and device of the computation.
        watch: who is told what the gradient of the last layer is made of; None for nobody.
    """

    model: Model
    batch: Batch
    halo: HaloPolicy
    loss: Loss
    address: tuple[int, int]
    placement: Placement
    watch: Watch | None = None

    def run(self) -> tuple[float, ParameterGradients]:
        """The sum of the batch's losses, weighted by node, and its derivatives by parameter."""
        gradients = ParameterGradients(self.batch.weights)
        return self.backward(self.forward(), gradients), gradients

    # -- lines 5 to 9 --------------------------------------------------------------------------------

    def forward(self) -> Forward:
        """H̄ of the batch and Ĥ of the halo, layer by layer."""
        model, halo, depth = self.model, self.halo, len(self.model.layers)
        constant, read_again = first_messages_are_features(model), model.read_again
        updates_halo = halo.incomplete_from is not None or halo.revisits
        exact_first = constant and halo.exact_first
        reads_input = model.reads_initial or 1 in read_again
        if exact_first:
            reads_halo = model.layers[0].reads_own or (reads_input and updates_halo)
        else:
            reads_halo = not constant or halo.incomplete_from is not None or (reads_input and halo.revisits)
        reads_batch = reads_halo or reads_input or model.layers[0].reads_own

        # Line 5. Ĥ⁰ is exact: it depends on the node's own features alone.
        encoded = self.encode() if reads_batch else None
        z = None if encoded is None else encoded.value
        z_halo = self.encode("halo").value if reads_halo else None
        initial = Computed(model.initial, z) if model.reads_initial and z is not None else None
        of_input = self._nothing() if initial is None else initial.value
        of_halo_input = self._nothing()
        if model.reads_initial and z_halo is not None and updates_halo:
            of_halo_input = model.initial(z_halo)
        jumps_from_halo, trains_first = model.jumps and halo.reads_losses, trains_before_first(model)

        passes: list[LayerPass] = []
        sent, sent_by_halo = list[Tensor](), list[Tensor]()
        for place, layer in enumerate(model.layers, start=1):  # line 6
            read = layer.what_it_reads(sent, of_input)
            read_by_halo = layer.what_it_reads(sent_by_halo, of_halo_input)
            # Derivatives come back to the halo as far as V̂ is read: see `backward`.
            is_read = halo.follows_back or place > 2 or (place == 2 and trains_first) or bool(layer.reads)
            keeps_halo = (halo.revisits and is_read) or jumps_from_halo
            given = (self.batch, (*self.address, place), read, read_by_halo, keeps_halo)
            at = pass_of(layer, *given, constant=constant and place == 1, outside=halo.from_batch(place))
            at.send(z, z_halo)
            again = place in read_again
            sent.append(at.message.value if again and at.message else self._nothing())
            sent_by_halo.append(at.sent_by_halo if again and updates_halo else self._nothing())
            del z, z_halo  # the memory of the halo, before anything is received
            z, z_halo = at.receive(), None  # line 7: eq. (8)
            is_exact = exact_first and place == 1
            if not is_exact:
                halo.keep_received(place, at.received, at.received_from_batch)
            reads_halo_next = place < depth or halo.reads_losses
            incomplete = None
            if reads_halo_next and is_exact:  # line 8: eqs. (10) and (9)
                incomplete = at.receive_halo("graph")
            elif reads_halo_next and halo.incomplete_from is not None:
                incomplete = at.receive_halo(halo.incomplete_from, partial(halo.received, place))
            at.end_forward(reads_message=again or place in model.jumped_to)
            if reads_halo_next:
                z_halo = self.placement.put(halo.embeddings(place, z, incomplete))
            del incomplete
            halo.keep_embeddings(place, z, z_halo)
            passes.append(at)
        assert z is not None
        return Forward(encoded, initial, passes, z, z_halo)

    def encode(self, part: Literal["nodes", "halo"] = "nodes") -> Computed:
        """(nodes, width) z⁰ of the batch, or of its halo."""
        rows = Rows(getattr(self.batch, part), (*self.address, 0), inside=part == "nodes")
        x = self.placement.put(self.batch.rows_of(self.batch.graph.x, part))
        return Computed(lambda x: self.placement.put(self.model.encoder(x, rows)), x)

    def _nothing(self) -> Tensor:
        return self.placement.put(self.batch.graph.x[:0, :0])

    # -- lines 10 to 15 ------------------------------------------------------------------------------

    def backward(self, forward: Forward, gradients: ParameterGradients) -> float:
        """V̄ of the batch and V̂ of the halo, layer by layer; gives the weighted sum of the batch's losses."""
        model, halo, passes = self.model, self.halo, forward.passes
        loss, direct, v = self._batch_losses(forward, gradients)  # line 10, and eq. (6)
        if self.watch is not None:
            self.watch(self.batch, v, passes[-1].received)
        direct_halo, at_last = self._halo_losses(forward) if halo.reads_losses else (Direct(), v[:0])
        v_halo = self._auxiliaries(len(passes), v, lambda: at_last)
        before_first_is_trained = trains_before_first(model)
        at_initial: Tensor | None = None

        for place in range(len(passes) - 1, 0, -1):  # line 11
            at = passes.pop()
            at.arrive(v, v_halo)
            del v, v_halo  # the layer lets go of them when it can
            before, at_read = self._through(at, place + 1, gradients, direct.pop(place + 1))  # line 12
            if at.layer.reads:
                widths = [before_it.width for before_it in passes]
                direct.add_read(at.layer, at_read, widths)
                if halo.revisits:
                    direct_halo.add_read(at.layer, at.read_by_halo_backward(), widths)
            else:
                at_initial = add(at_initial, at_read)
            replaced = partial(halo.returned, place)
            incomplete = partial(at.backward_halo, direct_halo.pop(place + 1), replaced)
            v = add(before, halo.back_to_batch(place, incomplete))
            halo.keep_auxiliaries(place, v)
            # The halo is read in the first layer only where something before that is trained.
            is_read = place > 1 or before_first_is_trained
            v_halo = self._auxiliaries(place, v, incomplete) if is_read else v[:0]  # line 13
            del at, before, incomplete  # and with them what the layer has kept

        first = passes.pop()
        first.arrive(v, v_halo)
        if not before_first_is_trained:
            first.collect(gradients)  # line 15: eq. (7)
            return loss
        del v, v_halo
        at_encoded, at_read = self._through(first, 1, gradients, direct.pop(1))
        at_initial = add(at_initial, at_read)
        assert forward.encoded is not None
        if forward.initial is not None and at_initial is not None:
            at_encoded = at_encoded + forward.initial.vjp(at_initial, *forward.initial.inputs)[0]
        gradients.vjp(forward.encoded, at_encoded, model.encoder.parameters())
        return loss

    def _through(
        self, at: LayerPass, layer: int, gradients: ParameterGradients, direct: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """(batch, width) V̄ˡ⁻¹, eq. (11), and the derivative at what it reads; eq. (7) into `gradients`."""
        known = self.halo.derivative_at_messages(layer)
        if known is not None:
            _, at_initial = at.collect(gradients)
            return at.message_backward(gradients, known), at_initial
        at_initial = at.come_back(gradients)
        self.halo.keep_returned(layer - 1, at.returned, at.returned_from_batch)
        return at.before(gradients, direct), at_initial

    def _auxiliaries(self, layer: int, v: Tensor, incomplete: Callable[[], Tensor]) -> Tensor:
        """(halo, width) V̂ˡ: eqs. (12) and (13)."""
        found = self.halo.auxiliaries(layer, incomplete)
        return v.new_zeros(self.batch.num_halo, v.shape[1]) if found is None else self.placement.put(found)

    def _batch_losses(self, forward: Forward, gradients: ParameterGradients) -> tuple[float, Direct, Tensor]:
        """The weighted sum of the batch's losses; their derivatives at messages that the head reads; V̄ᴸ."""
        places = self.model.jumped_to
        messages = [forward.passes[place - 1].message for place in places]
        losses = self.losses(*(message.value for message in messages if message), forward.z)
        ones = torch.ones_like(losses.value)
        *from_head, v = gradients.vjp(losses, ones, self.model.head.parameters(), *losses.inputs)
        return self.weighted_sum(losses), Direct(places, from_head), v

    def weighted_sum(self, losses: Computed) -> float:
        """The sum of the batch's losses, each times the weight of its node."""
        weights, labelled = self.batch.weights, self.batch.train_mask[: self.batch.num_nodes]
        weighted = losses.value if weights is None else weights * losses.value
        return float(on_host(total(weighted[labelled])))

    def _halo_losses(self, forward: Forward) -> tuple[Direct, Tensor]:
        """Derivatives of the halo's own losses: (halo, width) at messages that the head reads, and V̂ᴸ."""
        places = self.model.jumped_to
        messages = [forward.passes[place - 1].sent_by_halo for place in places]
        losses = self.losses(*messages, forward.z_halo, inside=False)
        *from_head, v_halo = losses.vjp(torch.ones_like(losses.value), *losses.inputs)
        return Direct(places, from_head), v_halo

    def losses(self, *seen: Any, inside: bool = True) -> Computed:
        """(rows,) the losses of batch or halo rows, 0 where there is no label to learn from.

        Args:
            seen: (rows, width) each, what the head reads: messages, if it jumps to them, and zᴸ.
            inside: whether the rows are those of the batch.
        """
        split = self.batch.num_nodes
        part = slice(None, split) if inside else slice(split, None)
        mask = self.batch.train_mask[part]
        labelled = mask.nonzero()[:, 0]
        y = self.batch.y[part].index_select(0, labelled)
        rows = Rows(self.batch.members[part], (*self.address, len(self.model.layers) + 1), inside)

        def each(*seen: Tensor) -> Tensor:
            prediction = in_full(chosen_rows(self.model.read(seen, rows), labelled))
            found = self.loss(prediction, y)
            return found.new_zeros(len(mask)).masked_scatter(mask, found)

        return Computed(each, *seen)


def first_messages_are_features(model: Model) -> bool:
    """Whether the first layer adds up the features themselves, which is done once for all steps.

    Not by type of edges: these sums would be as many times as wide as the features.
    """
    first = model.layers[0]
    if not isinstance(first, LinearLayer) or first.aggregation in TYPED:
        return False
    return model.encoder.is_identity and first.message.is_identity


def trains_before_first(model: Model) -> bool:
    """Whether derivatives are wanted before the first aggregation."""
    return any(p.requires_grad for p in model.parameters_before_first)


def pass_of(layer: Layer, *given: Any, constant: bool = False, outside: LowRank | None = None) -> LayerPass:
    """The layer at one step; see `LayerPass` and `LinearPass`."""
    if isinstance(layer, LinearLayer):
        return LinearPass(layer, *given, constant=constant, outside=outside)
    assert isinstance(layer, ConvolutionLayer)
    return ConvolutionPass(layer, *given)
