"""The loops of `fast_samples.py` in plain Python: the specification."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import hashed_random

SCANNED = 4
"""Where as many times a node's neighbours are fewer than the square of those to draw, each is looked at."""


def draw(
    indptr: Tensor, indices: Tensor, nodes: Tensor, keys: NDArray[np.uint64], most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """For each node itself and `most` of its neighbours (-1 for all), drawn without replacement."""
    offsets, columns, factors = [0], list[int](), list[float]()
    for node, key in zip(nodes.tolist(), keys, strict=True):
        neighbours = indices[indptr[node] : indptr[node + 1]].tolist()
        degree = len(neighbours)
        wanted = degree if most < 0 else min(degree, most)
        bits = hashed_random.continued(key, np.arange(degree)).tolist()
        chosen = list[int]()
        if wanted * wanted > SCANNED * degree:
            for place in range(degree):
                # Each of those that remain is as likely as the others to be among those still wanted.
                if bits[place] % (degree - place) < wanted - len(chosen):
                    chosen.append(place)
        else:
            # Floyd's: of the first `last + 1` neighbours one more, the last where that one is in already.
            for last in range(degree - wanted, degree):
                place = bits[last] % (last + 1)
                chosen.append(last if place in chosen else place)
        columns += [node, *(neighbours[place] for place in sorted(chosen))]
        factors += [1.0, *[degree / wanted] * wanted] if wanted else [1.0]
        offsets.append(len(columns))
    found = torch.tensor(columns, dtype=torch.int64), torch.tensor(factors, dtype=torch.float64)
    return torch.tensor(offsets, dtype=torch.int64), *found


def number(nodes: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """`nodes` and then other columns in the order of first appearance; and each column's place among them."""
    known = {node: place for place, node in enumerate(nodes.tolist())}
    places = [known.setdefault(column, len(known)) for column in columns.tolist()]
    return torch.tensor(list(known), dtype=torch.int64), torch.tensor(places, dtype=torch.int64)


def pick(
    indptr: Tensor, indices: Tensor, rows: Tensor, stacked: int, offsets: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Where some entries of a CSR matrix are; see `fast_samples.pick`."""
    ends, entry, which = [0], list[int](), list[int]()
    for i, row in enumerate(rows.tolist()):
        first, last = int(indptr[row]), int(indptr[row + 1])
        for w in range(int(offsets[i // stacked]), int(offsets[i // stacked + 1])):
            there = (indices[first:last] == columns[w]).nonzero()[:, 0] + first
            entry += there.tolist()
            which += [w] * len(there)
        ends.append(len(entry))
    return tuple(torch.tensor(found, dtype=torch.int64) for found in (ends, entry, which))  # type: ignore[return-value]
