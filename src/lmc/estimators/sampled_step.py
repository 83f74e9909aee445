"""One step over a chain of blocks, with other rows at every layer: forward, and back by autograd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmc.data.sampled import SampledBlock
from lmc.device import on_host
from lmc.estimators.losses import Loss
from lmc.estimators.placement import Placement, in_full
from lmc.kernels.fixed_sums import total
from lmc.nn.model import Model
from lmc.nn.rows import Rows


@dataclass(frozen=True)
class SampledStep:
    """The forward and backward pass over blocks, from the first layer to the last.

    The nodes of a block are the first of those that the block before it gives: all that a layer, or the head,
    reads of a node itself is in its first rows.

    Attributes:
        model: what is trained.
        blocks: a block for each layer; the nodes of the last one are those with losses.
        weights: (nodes of the last block,) how much each loss counts; None where all count the same.
        loss: per node.
        address: (seed, step) of the dropout masks.
        placement: type and device of the computation.
    """

    model: Model
    blocks: Sequence[SampledBlock]
    weights: Tensor | None
    loss: Loss
    address: tuple[int, int]
    placement: Placement

    def run(self) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The weighted sum of the losses, and its derivatives by parameter."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        with torch.enable_grad():
            losses = self._losses()
            found = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
        gradients = {p: gradient for p, gradient in zip(trained, found, strict=True) if gradient is not None}
        return float(on_host(total(losses))), gradients

    def _losses(self) -> Tensor:
        """(labelled nodes,) weighted."""
        last = self.blocks[-1]
        labelled = last.train_mask[: last.num_nodes]
        prediction = in_full(self.prediction()[labelled])
        losses = self.loss(prediction, last.y[: last.num_nodes][labelled])
        return losses if self.weights is None else self.weights[labelled] * losses

    def prediction(self) -> Tensor:
        """(nodes of the last block, out)."""
        model, first, last = self.model, self.blocks[0], self.blocks[-1]
        x = self.placement.put(first.rows_of(first.graph.x, "members"))
        z = model.encoder(x, self._rows(first.members, 0))
        initial, messages = model.initial(z), list[Tensor]()
        for place, (layer, block) in enumerate(zip(model.layers, self.blocks, strict=True), start=1):
            count = block.num_nodes
            read = layer.what_it_reads([message[:count] for message in messages], initial[:count])
            messages.append(layer.message(z, self._rows(block.members, place)))
            z = layer.of_sampled(block, messages[-1], read, self._rows(block.nodes, place))
        seen = [*(messages[place - 1][: last.num_nodes] for place in model.jumped_to), z]
        return model.read(seen, self._rows(last.nodes, len(model.layers) + 1))

    def _rows(self, nodes: Tensor, place: int) -> Rows:
        return Rows(nodes, (*self.address, place))
