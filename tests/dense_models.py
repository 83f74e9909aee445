"""Graphs and models as dense algebra, with no code of the library.

A graph is a matrix of weights and one of truth values; a model is a table of parameters and a few functions
of rows. Dropout masks come from their definition, a hash of (seed, step, place, node, column).
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

# -- dropout masks ----------------------------------------------------------------------------------

WORD = 2**64 - 1
HALF = 2**32 - 1


def mixed(z):
    """The end of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def hashed(address):
    state = 0
    for part in address:
        state = mixed(((state ^ part) + 0x9E3779B97F4A7C15) & WORD)
    return state


def sixteen_bits(key, column, width):
    """A word of 32 bits serves a column of the first half, and one of the second."""
    words = (width + 1) // 2
    z = (key & HALF) ^ ((column % words) * 0x9E3779B9 & HALF)
    for high in (key >> 32, 0):
        z = ((z ^ (z >> 16)) * 0x7FEB352D) & HALF
        z = ((z ^ (z >> 15)) * 0x846CA68B) & HALF
        z = ((z ^ (z >> 16)) + high) & HALF
    return z >> 16 if column >= words else z & 0xFFFF


def dropped(h, p, nodes, address):
    """(rows, width) with each entry dropped or multiplied, by the hash of its place."""
    if p == 0:
        return h
    threshold = min(round(p * 2**16), 2**16 - 1)
    width = h.shape[1]
    keys = [hashed((*address, node)) for node in nodes]
    kept = [[float(sixteen_bits(key, c, width) >= threshold) for c in range(width)] for key in keys]
    return h * torch.tensor(kept, dtype=h.dtype).reshape(h.shape) * (2**16 / (2**16 - threshold))


# -- graphs -----------------------------------------------------------------------------------------


@dataclass
class DenseGraph:
    """edges: (n, n) bool, [target, source]; weights: (n, n), zero where there is no edge."""

    edges: torch.Tensor
    weights: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor
    labelled: torch.Tensor
    task: str = "multiclass"

    def neighbours(self, node):
        both = self.edges[node] | self.edges[:, node]
        return set(both.nonzero().flatten().tolist()) - {node}

    def within(self, nodes):
        """As if there were nothing else."""
        rows = torch.tensor(nodes)
        cut = (self.edges[rows][:, rows], self.weights[rows][:, rows])
        return DenseGraph(*cut, self.x[rows], self.y[rows], self.labelled[rows], self.task)

    def matrix(self, kind):
        """(n, n) what a message counts."""
        ones = self.edges.double()
        if kind == "sum":
            return ones
        if kind == "mean":
            return ones / ones.sum(1, keepdim=True).clamp(min=1)
        if kind == "edges":
            return self.edges
        a = self.weights + torch.diag((~self.edges.diagonal()).double())
        root = a.sum(1).pow(-0.5)
        root[root.isinf()] = 0.0
        return root[:, None] * a * root[None, :]

    def losses(self, prediction, nodes):
        """(rows,) zero where there is no label."""
        y = self.y[nodes]
        if self.task == "multiclass":
            each = functional.cross_entropy(prediction, y, reduction="none")
        elif self.task == "multilabel":
            each = functional.binary_cross_entropy_with_logits(prediction, y, reduction="none").mean(1)
        else:
            each = (prediction - y).square().mean(1)
        return torch.where(self.labelled[nodes], each, 0.0)


# -- models -----------------------------------------------------------------------------------------


@dataclass
class Convolution:
    """kind: "gcn", "gcnii", "sage mean", "sage sum", "gin" or "gat"; name: the prefix of its parameters."""

    kind: str
    name: str
    residual: bool = False
    alpha: float = 0.0
    strength: float = 0.0
    heads: int = 1

    def matrix(self):
        kinds = {"gcn": "gcn", "gcnii": "gcn", "sage mean": "mean", "gat": "edges"}
        return kinds.get(self.kind, "sum")

    def __call__(self, p, a, sent, own, initial, is_self):
        """(targets, out) from part of the matrix, (targets, reach), messages of the reach and of the targets.

        is_self: (targets, reach) where target and source are one node.
        """
        if self.kind == "gat":
            return self.attention(p, a & ~is_self, sent, own)
        received = a @ sent
        if self.kind == "gcn":
            z = received @ p[f"{self.name}.weight"].T + p[f"{self.name}.bias"]
            return z + own if self.residual and z.shape == own.shape else z
        if self.kind == "gin":
            return received + (1 + p[f"{self.name}.eps"]) * own
        if self.kind == "gcnii":
            first = p[f"{self.name}.linear.weight"]
            second = p.get(f"{self.name}.linear_initial.weight", first)
            received, initial = (1 - self.alpha) * received, self.alpha * initial
            z = (1 - self.strength) * (received + initial)
            z = z + self.strength * (received @ first.T + initial @ second.T)
            return z + own if self.residual else z
        z = received @ p[f"{self.name}.lin_l.weight"].T + p[f"{self.name}.lin_l.bias"]
        return z + own @ p[f"{self.name}.lin_r.weight"].T

    def attention(self, p, edges, sent, own):
        """Every node also hears itself, once."""
        outs = []
        weight, to_source, to_target = (
            p[f"{self.name}.{part}"] for part in ("lin.weight", "att_src", "att_dst")
        )
        for head, rows in enumerate(weight.chunk(self.heads)):
            values, own_values = sent @ rows.T, own @ rows.T
            target, source = own_values @ to_target[0, head], values @ to_source[0, head]
            logits = functional.leaky_relu(target[:, None] + source[None, :], 0.2)
            logits = logits.masked_fill(~edges, -torch.inf)
            itself = functional.leaky_relu(target + own_values @ to_source[0, head], 0.2)
            share = torch.cat([itself[:, None], logits], dim=1).softmax(1)
            outs.append(share[:, :1] * own_values + share[:, 1:] @ values)
        return torch.cat(outs, dim=1) + p[f"{self.name}.bias"]


@dataclass
class Between:
    """What comes before an aggregation or the last product: a product, a norm, an activation, dropout.

    place: what the address of its masks ends with, after (seed, step, number of the layer).
    """

    linear: str | None = None
    norm: str | None = None
    kind: str | None = None
    act: str | None = None
    dropout: float = 0.0
    place: tuple = ()


@dataclass
class DenseModel:
    """Parameters by name, running statistics by name, and how rows are computed from them."""

    p: dict
    running: dict
    convolutions: list
    before: list  # a Between for each layer
    encoder: Between
    head: list  # of Betweens
    seed: int
    drops: bool = True
    reads_initial: bool = False

    def apply(self, part, z, nodes, address, inside):
        p = self.p
        if part.norm is not None:
            weight, bias = p[f"{part.norm}.weight"], p[f"{part.norm}.bias"]
            if part.kind == "layer":
                z = functional.layer_norm(z, z.shape[1:], weight, bias)
            else:
                statistics = self.running[part.norm]
                z = functional.batch_norm(z, *statistics, weight, bias, training=inside and len(z) > 1)
        if part.act is not None:
            z = getattr(functional, part.act)(z)
        z = dropped(z, part.dropout if self.drops else 0.0, nodes, (*address, *part.place))
        if part.linear is not None:
            z = functional.linear(z, p[f"{part.linear}.weight"], p[f"{part.linear}.bias"])
        return z

    def encode(self, x, nodes, step):
        return self.apply(self.encoder, x, nodes, (self.seed, step, 0), True)

    def message(self, layer, z, nodes, step, inside):
        for part in self.before[layer - 1]:
            z = self.apply(part, z, nodes, (self.seed, step, layer), inside)
        return z

    def predict(self, z, nodes, step, inside):
        for part in self.head:
            z = self.apply(part, z, nodes, (self.seed, step, len(self.convolutions) + 1), inside)
        return z
