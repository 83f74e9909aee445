"""Bases of how messages vary over the nodes of a graph, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from lmc import hashed_random
from lmc.data.graph import Graph
from lmc.device import on_host
from lmc.estimators.low_rank import gram, inverse_root, pieces
from lmc.nn.inference import each_message
from lmc.nn.model import Model

OfNodes = Callable[[slice], Tensor]
"""From consecutive nodes to their rows."""
LEAST = 1e-10
"""Of the squares of a column of messages, what is more than rounding."""


def random_bases(
    model: Model, graph: Graph, widths: Mapping[int, int], rank: int, seed: int
) -> dict[int, Tensor]:
    """(nodes, rank) by layer: messages of the model as it is, and of shuffled ones where it has too few.

    Of messages as wide as `rank`, or wider, random combinations are taken. Of narrower ones the columns of
    several models are added up, each combined at random, as many as it takes: the model itself, and models
    whose weights are the same in another order, which is another draw of untrained weights.

    Args:
        model: untrained, or not; it is left as it was.
        graph: where.
        widths: of the messages, by layer, counted from 1; others have no basis.
        rank: columns.
        seed: of what is random.
    """
    found = {place: graph.x.new_zeros(graph.num_nodes, rank) for place in widths}
    models = {place: -(-rank // width) if width else 0 for place, width in widths.items()}
    for number in range(max(models.values(), default=0)):

        def tell(place: int, message: OfNodes, number: int = number) -> None:
            if number < models.get(place, 0):
                combined = random_combinations(widths[place], rank, graph.x.dtype, seed, place, number)
                for part in pieces(graph.num_nodes):
                    found[place][part] += on_host(message(part)) @ combined

        with shuffled(model, seed, number):
            each_message(graph, model, tell)
    return {place: orthonormal(found.pop(place)) for place in widths}


def random_combinations(width: int, rank: int, dtype: torch.dtype, *address: int) -> Tensor:
    """(width, rank) roughly normal numbers, each at an address of its own."""
    return torch.from_numpy(
        hashed_random.roughly_normal(*address, np.arange(width)[:, None], np.arange(rank))
    ).to(dtype)


def orthonormal(columns: Tensor) -> Tensor:
    """(nodes, rank) the columns, combined in place so that Q' Q = nodes x I; beyond their rank zero.

    >>> q = orthonormal(torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]).double())
    >>> (q.T @ q).round(decimals=9).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    root = inverse_root(gram(columns) / len(columns), LEAST).to(columns.dtype)
    for part in pieces(len(columns)):
        columns[part] = columns[part] @ root
    return columns


@contextmanager
def shuffled(model: nn.Module, seed: int, number: int) -> Iterator[None]:
    """In this context the entries of each parameter are in another order; number 0 is the model itself."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    try:
        with torch.no_grad():
            for place, (parameter, own) in enumerate(zip(model.parameters(), before, strict=True)):
                if number > 0:
                    order = hashed_random.permutation(own.numel(), seed, number, place)
                    parameter.copy_(on_host(own).flatten()[torch.from_numpy(order)].view(own.shape))
        yield
    finally:
        with torch.no_grad():
            for parameter, own in zip(model.parameters(), before, strict=True):
                parameter.copy_(own)
