"""Convolutions put together from pieces, of which it is known whether they look beyond a row's own messages.

A piece is a number for every message, which the message is multiplied by. It is local if it depends on
nothing but what its target receives: ends, weights and features of the messages into that target.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax


class Seen(NamedTuple):
    """What a convolution is given: sources, targets, edges with weights and features."""

    x: torch.Tensor
    own: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor
    attr: torch.Tensor

    def everywhere(self, number):
        return torch.as_tensor(number, dtype=self.x.dtype).expand(len(self.source))

    def by_target(self, values, reduce="sum"):
        """The sum, or the like, of the messages into each one's target."""
        return scatter(values, self.target, 0, len(self.own), reduce)[self.target]

    def by_source(self, values, reduce="sum"):
        return scatter(values, self.source, 0, len(self.x), reduce)[self.source]

    def counted(self):
        return torch.ones_like(self.weight)

    def heard_by_source(self):
        """What the source itself receives, where it is a target too."""
        heard = torch.zeros_like(self.x)
        heard[: len(self.own)] = scatter(self.x[self.source], self.target, 0, len(self.own), "sum")
        return heard[self.source]


LOCAL = {
    "nothing": lambda s: s.everywhere(0.5),
    "weight": lambda s: s.weight,
    "features of the edge": lambda s: s.attr.sum(1).tanh(),
    "the source": lambda s: s.x[s.source].sum(1).tanh(),
    "the target": lambda s: s.own[s.target].sum(1).tanh(),
    "distance of the ends": lambda s: (s.x[s.source] - s.own[s.target]).square().sum(1) / 10,
    "softmax by target": lambda s: softmax(s.weight, s.target, num_nodes=len(s.own)),
    "softmax of the ends by target": lambda s: softmax(
        (s.x[s.source] * s.own[s.target]).sum(1), s.target, num_nodes=len(s.own)
    ),
    "degree of the target": lambda s: s.by_target(s.counted()) / 10,
    "share of the target's weight": lambda s: s.weight / s.by_target(s.weight),
    "weight over the largest of the target": lambda s: s.weight / s.by_target(s.weight, "max"),
    "mean of the target's sources": lambda s: s.by_target(s.x[s.source], "mean").sum(1).tanh(),
    "whether it is a self-loop": lambda s: (s.source == s.target).to(s.weight),
}
NOT_LOCAL = {
    "softmax by source": lambda s: softmax(s.weight, s.source, num_nodes=len(s.x)),
    "share of the source's weight": lambda s: s.weight / s.by_source(s.weight),
    "degree of the source": lambda s: s.by_source(s.counted()) / 10,
    "what the source receives": lambda s: s.heard_by_source().sum(1).tanh(),
    "mean of all sources": lambda s: s.everywhere(s.x.mean() * 5),
    "largest of all sources": lambda s: s.everywhere(s.x.max() / 5),
    "length of all sources": lambda s: s.everywhere(s.x.norm() / 20),
    "source less the mean of all": lambda s: (s.x - s.x.mean(0))[s.source].square().sum(1) / 5,
    "rank among all sources": lambda s: s.x[:, 0].argsort().argsort()[s.source].to(s.weight) / 10,
    "the first source": lambda s: s.everywhere(s.x[0].sum().tanh()),
    "the last source": lambda s: s.everywhere(s.x[-1].sum().tanh()),
    "mean of all targets": lambda s: s.everywhere(s.own.mean() * 5),
    "number of sources": lambda s: s.everywhere(len(s.x) / 20),
    "number of targets": lambda s: s.everywhere(len(s.own) / 20),
    "number of edges": lambda s: s.everywhere(len(s.source) / 60),
    "mean degree": lambda s: s.everywhere(len(s.source) / len(s.own) / 5),
    "weight over the mean of all": lambda s: s.weight / s.weight.mean(),
    "weight over the largest of all": lambda s: s.weight / s.weight.max(),
    "rank of the weight among all": lambda s: s.weight.argsort().argsort().to(s.weight) / 10,
    "features of the edge less the mean of all": lambda s: (s.attr - s.attr.mean(0)).sum(1).tanh(),
    "number of the source": lambda s: s.source.to(s.weight).cos(),
    "number of the target": lambda s: s.target.to(s.weight).cos(),
    "position of the edge": lambda s: torch.arange(len(s.source)).to(s.weight).cos(),
    "weight of the edge before": lambda s: s.weight.roll(1),
    "sum of weights so far": lambda s: s.weight.cumsum(0) / 10,
}
PIECES = LOCAL | NOT_LOCAL

# What becomes of the sums, (targets, out).
LOCAL_AFTER = {
    "as it is": lambda z: z,
    "tanh": torch.tanh,
    "less its own mean": lambda z: z - z.mean(1, keepdim=True),
}
NOT_LOCAL_AFTER = {
    "less the mean of all rows": lambda z: z - z.mean(0),
    "over the longest row": lambda z: z / z.norm(dim=1).max(),
    "times the number of rows": lambda z: z * len(z) / 10,
    "with the row before": lambda z: z + z.roll(1, 0),
}
AFTER = LOCAL_AFTER | NOT_LOCAL_AFTER

Mode = Literal["always", "in training", "in evaluation"]
MODES: tuple[Mode, ...] = ("always", "in training", "in evaluation")


@dataclass(frozen=True)
class Recipe:
    """What a convolution is made of: pieces by name, each with the mode that it acts in."""

    pieces: tuple[tuple[str, Mode], ...]
    aggr: str = "add"
    reads_own: bool = True
    after: str = "as it is"

    @property
    def is_local(self) -> bool:
        return self.after in LOCAL_AFTER and all(name in LOCAL for name, _ in self.pieces)


class Composed(MessagePassing):
    """The convolution of a recipe."""

    def __init__(self, recipe: Recipe, width: int, out: int) -> None:
        super().__init__(aggr=recipe.aggr)
        self.recipe, self.in_channels = recipe, width
        self.value = nn.Linear(width, out)
        self.own = nn.Linear(width, out) if recipe.reads_own else None

    def forward(self, x, edge_index, edge_weight, edge_attr):
        sources, targets = x
        seen = Seen(sources, targets, *edge_index, edge_weight, edge_attr)
        factor = torch.ones_like(edge_weight)
        for name, mode in self.recipe.pieces:
            if mode == "always" or (mode == "in training") == self.training:
                factor = factor * (1 + PIECES[name](seen))
        out = self.propagate(edge_index, x=x, factor=factor, size=(len(sources), len(targets)))
        return AFTER[self.recipe.after](out if self.own is None else out + self.own(targets))

    def message(self, x_j, factor):
        return factor[:, None] * self.value(x_j)
