"""What estimates of drawn losses are measured by: the gradient of these losses, with all messages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmc.data.batch import Batch
from lmc.device import copied
from lmc.estimators.estimator import Estimator, Reference


def gradients_of_losses(estimator: Estimator, weights_of: Callable[[Batch], Tensor | None]) -> Reference:
    """The gradient of a batch's own losses, by autograd on the whole graph.

    Args:
        estimator: bound to a model and a graph.
        weights_of: (nodes,) how much each loss of a batch counts, besides its scale; None for all alike.
    """
    model, graph = estimator.model, estimator.graph
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.enable_grad():
        prediction = model(graph)

    def reference(batch: Batch) -> dict[nn.Parameter, Tensor]:
        labelled, weights = graph.train_mask[batch.nodes], weights_of(batch)
        nodes, here = batch.nodes[labelled], prediction.device
        with torch.enable_grad():
            losses = estimator.loss(prediction[copied(nodes, here)], copied(graph.y[nodes], here))
            total = (losses if weights is None else copied(weights[labelled], here) * losses).sum()
        found = torch.autograd.grad(total, trained, retain_graph=True, allow_unused=True)
        gradients = {p: each for p, each in zip(trained, found, strict=True) if each is not None}
        return estimator.normalized(batch, 0.0, gradients)[1]

    return reference
