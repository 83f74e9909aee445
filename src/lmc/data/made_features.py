"""Features for graphs that have none, made of their edges: without labels, and always the same."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lmc import checks, hashed_random
from lmc.data.normalization import normalized
from lmc.sparse import CSR

Made = Literal["degree", "structure"]

DEGREE_BINS = 16
STRUCTURE_WIDTH, STRUCTURE_HOPS = 128, 4


def made_features(neighbours: CSR, kind: str) -> Tensor:
    """(nodes, features) float32, of which node is whose neighbour.

    >>> pair = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, 2)
    >>> made_features(pair, "degree").shape
    torch.Size([2, 17])
    """
    checks.one_of("features", kind, Made)
    return _degree(neighbours) if kind == "degree" else _structure(neighbours)


def _degree(neighbours: CSR) -> Tensor:
    """The logarithm of the number of neighbours, and the power of two that it reaches."""
    count = neighbours.row_lengths().double() + 1
    reached = count.log2().floor().long().clamp(max=DEGREE_BINS - 1)
    return torch.cat([count.log()[:, None].float(), functional.one_hot(reached, DEGREE_BINS).float()], dim=1)


def _structure(neighbours: CSR) -> Tensor:
    """A random vector per node, averaged over neighbours again and again; the directions of all, added up.

    Nodes that reach the same part of the graph in a few hops thus have similar features. Each entry is of the
    order of one; those of a node without neighbours are zero.
    """
    nodes, column = np.arange(neighbours.shape[0])[:, None], np.arange(STRUCTURE_WIDTH)
    mean = normalized(neighbours, "plain mean", torch.float32)
    z = torch.from_numpy(hashed_random.roughly_normal(nodes, column))
    total = torch.zeros_like(z)
    for _ in range(STRUCTURE_HOPS):
        z = mean @ z
        total += functional.normalize(z)
    return total.mul_(STRUCTURE_WIDTH**0.5 / STRUCTURE_HOPS)
