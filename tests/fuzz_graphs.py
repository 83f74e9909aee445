"""Random graphs of any shape for the searches: plain numbers first, and an `lmc.Graph` of them."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

import lmc

FEATURES, CLASSES = 5, 3


def examples(count):
    """So many in `make test`, and as much more in `make fuzz` as that has more of others."""
    usual = settings.get_profile("lmc").max_examples
    return settings(max_examples=max(1, settings.default.max_examples * count // usual))


@dataclass
class Numbers:
    """What a graph is made of, as PyG and dense oracles take it."""

    ends: torch.Tensor  # (2, edges)
    weight: torch.Tensor | None  # (edges,)
    attr: torch.Tensor | None  # (edges, 2)
    x: torch.Tensor
    y: torch.Tensor
    labelled: torch.Tensor
    task: str

    def graph(self):
        rest = ~self.labelled
        given = (self.ends, self.x, self.y, self.labelled, rest, None, self.weight, self.attr)
        return lmc.Graph(*given, task=self.task, num_classes=CLASSES)


@st.composite
def numbers(draw, max_nodes=14, attributed=False, repeated=False, task="multiclass"):
    """Directed or not, weighted or not, with self-loops and isolated nodes, in any order.

    attributed: whether edges have features; repeated: whether some edges are there twice.
    """
    n = draw(st.sampled_from([max_nodes, 8, 11, 5, 2, 1]))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    density = draw(st.sampled_from([0.2, 0.1, 0.3, 0.7, 0.0]))
    edges = random.random((n, n)) < density
    edges[:, random.random(n) < draw(st.sampled_from([0.0, 0.3]))] = False
    directed, loops = draw(st.booleans()), draw(st.booleans())
    values = random.uniform(0.2, 2.0, (n, n))
    if not directed:
        edges, values = edges | edges.T, values + values.T
    if not loops:
        np.fill_diagonal(edges, False)
    ends = np.stack(edges.nonzero())[::-1].copy()
    order = random.permutation(ends.shape[1])
    ends = ends[:, [*order, *order[: len(order) // 3]] if repeated else order]
    weight = values[ends[1], ends[0]] if draw(st.booleans()) else None
    attr = random.normal(size=(ends.shape[1], 2)) if attributed else None
    y = {
        "multiclass": random.integers(0, CLASSES, n),
        "multilabel": random.integers(0, 2, (n, CLASSES)).astype(float),
        "regression": random.normal(size=(n, CLASSES)),
    }[task]
    labelled = random.random(n) < 0.6
    labelled[random.integers(n)] = True
    tensors = [None if a is None else torch.as_tensor(a) for a in (ends, weight, attr)]
    x = torch.as_tensor(random.normal(size=(n, FEATURES)))
    return Numbers(*tensors, x, torch.as_tensor(y), torch.as_tensor(labelled), task)
