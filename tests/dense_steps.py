"""One step of every estimator, dense: the paper's equations with torch's autograd for each function in them.

No code of the library takes part. A graph is a matrix of weights and one of truth values; a model is a table of
parameters and a few functions of rows; dropout masks are computed here from their definition, a hash of (seed,
step, place, node, column). Rows of halo nodes are targets with the neighbours in reach, and reach no parameter.
"""

from dataclasses import dataclass, field

import torch
from torch.nn import functional

SCORES = {
    "x^2": lambda x: x**2,
    "2x-x^2": lambda x: 2 * x - x**2,
    "x": lambda x: x,
    "1": lambda x: x * 0 + 1,
    "sin": torch.sin,
}

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
    """kind: "gcn", "gcnii", "sage mean", "sage sum", "gin" or "gat"; `name` is the prefix of its parameters."""

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
        """(targets, out) from a part (targets, reach) of the matrix, messages of the reach and of the targets.

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
        weight, to_source, to_target = (p[f"{self.name}.{part}"] for part in ("lin.weight", "att_src", "att_dst"))
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


# -- a step -----------------------------------------------------------------------------------------


class Outside:
    """What replaces the halo's values; here, there is no halo."""

    incomplete_from_batch = False

    def embeddings(self, layer, halo, incomplete):
        return incomplete

    def auxiliaries(self, layer, halo, incomplete):
        return torch.zeros_like(incomplete)

    def keep(self, layer, nodes, z):
        pass

    def keep_halo(self, layer, nodes, z):
        pass

    def keep_auxiliaries(self, layer, nodes, v):
        pass


@dataclass
class Found:
    """Of a step: the weighted sum of the batch's losses, its gradient, and z and V of the batch by layer."""

    loss: torch.Tensor
    gradient: dict
    z: dict = field(default_factory=dict)
    v: dict = field(default_factory=dict)


def leaf(value):
    return value.detach().requires_grad_()


def vjp(outputs, inputs, derivatives):
    found = torch.autograd.grad(outputs, inputs, derivatives, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(i) if f is None else f for i, f in zip(inputs, found, strict=True)]


def one_step(model, graph, batch, halo, outside, step, weights=None, names=None):
    """Algorithm 1 of the paper on (batch,) nodes with a (halo,), equation by equation.

    names: (n,) what the hash of a node's masks is made of, where the graph is a part of another.
    """
    reach, depth = batch + halo, len(model.convolutions)
    names = list(range(len(graph.x))) if names is None else names
    b_names, h_names = [names[i] for i in batch], [names[i] for i in halo]
    w = torch.ones(len(batch)).double() if weights is None else weights
    trained = {name: value for name, value in model.p.items() if value.requires_grad}
    found = Found(torch.zeros(()), {name: torch.zeros_like(value) for name, value in trained.items()})

    def add_up(output, derivative):  # eqs. (6) and (7): batch rows alone
        rows = w.reshape(-1, *[1] * (derivative.ndim - 1)) * derivative
        if output.requires_grad:
            for name, value in zip(trained, vjp(output, list(trained.values()), rows), strict=True):
                found.gradient[name] += value

    encoded = model.encode(graph.x[batch], b_names, step)
    z, z_halo = leaf(encoded), leaf(model.encode(graph.x[halo], h_names, step))
    initial, initial_halo = leaf(z.relu()), z_halo.relu().detach()
    first, layers = z, []
    for l, convolution in enumerate(model.convolutions, start=1):
        m = model.message(l, z, b_names, step, True)
        m_halo = model.message(l, z_halo, h_names, step, False)
        sent, sent_halo = leaf(m), leaf(m_halo)
        everyone = torch.cat([sent, sent_halo])
        a = graph.matrix(convolution.matrix())
        same = torch.eye(len(graph.x), dtype=torch.bool)
        part, own = a[batch][:, reach], same[batch][:, reach]
        halo_part, halo_own = a[halo][:, reach], same[halo][:, reach]
        new = convolution(model.p, part, everyone, sent, initial, own)  # (8)
        new_halo = convolution(model.p, halo_part, everyone, sent_halo, initial_halo, halo_own)
        incomplete = new_halo  # (10)
        if outside.incomplete_from_batch:
            from_batch = halo_part & False if halo_part.dtype == torch.bool else halo_part * 0
            from_batch[:, : len(batch)] = halo_part[:, : len(batch)]
            incomplete = convolution(model.p, from_batch, everyone, sent_halo, initial_halo, halo_own)
        layers.append((z, z_halo, m, m_halo, sent, sent_halo, new, new_halo))
        found.z[l] = new.detach()
        z, z_halo = leaf(new), leaf(outside.embeddings(l, halo, incomplete.detach()))  # (9)
        outside.keep(l, batch, z.detach())
        outside.keep_halo(l, halo, z_halo.detach())

    losses = graph.losses(model.predict(z, b_names, step, True), batch)
    found.loss = (w * losses).sum().detach()
    add_up(losses, torch.ones_like(losses))
    (v,) = vjp(losses, [z], torch.ones_like(losses))
    halo_losses = graph.losses(model.predict(z_halo, h_names, step, False), halo)
    (v_halo,) = vjp(halo_losses, [z_halo], torch.ones_like(halo_losses))
    v_halo = outside.auxiliaries(depth, halo, v_halo)
    at_initial = torch.zeros_like(initial)
    for l in range(depth, 0, -1):
        found.v[l] = v
        if l < depth:
            outside.keep_auxiliaries(l, batch, v)
        z, z_halo, m, m_halo, sent, sent_halo, new, new_halo = layers.pop()
        add_up(new, v)
        at_initial += vjp(new, [initial], v)[0]
        arriving, arriving_halo = vjp([new, new_halo], [sent, sent_halo], [v, v_halo])
        add_up(m, arriving)
        (v,) = vjp(m, [z], arriving)  # (11)
        (incomplete,) = vjp(m_halo, [z_halo], arriving_halo)  # (13)
        if l > 1:
            v_halo = outside.auxiliaries(l - 1, halo, incomplete)  # (12)
    if model.reads_initial:
        v = v + (first > 0) * at_initial
    add_up(encoded, v)
    return found


# -- estimators -------------------------------------------------------------------------------------


class Histories(Outside):
    """GAS, GraphFM and LMC: H̄ and V̄ of every node.

    method: "gas", "fm" or "lmc"; the rest are their options.
    """

    def __init__(self, method, graph, momentum=0.0, alpha=0.0, score="1", forward=True, backward=True):
        self.method, self.graph, self.momentum = method, graph, momentum
        self.alpha, self.score = alpha, SCORES[score]
        self.forward, self.backward = forward, backward
        self.incomplete_from_batch = method == "fm"
        self.H, self.V, self.batch = {}, {}, []

    def beta(self, halo):
        reach = set(self.batch) | set(halo)
        shares = [len(self.graph.neighbours(i) & reach) / len(self.graph.neighbours(i)) for i in halo]
        return self.alpha * self.score(torch.tensor(shares).double())[:, None]

    def embeddings(self, layer, halo, incomplete):
        old = self.stored(self.H, layer, incomplete)[halo]
        if self.method == "fm":
            return (1 - self.momentum) * old + self.momentum * incomplete
        if self.method == "gas" or not self.forward:
            return old
        return (1 - self.beta(halo)) * old + self.beta(halo) * incomplete

    def auxiliaries(self, layer, halo, incomplete):
        if self.method != "lmc" or not self.backward:
            return torch.zeros_like(incomplete)
        if layer == self.depth:
            return incomplete
        old = self.stored(self.V, layer, incomplete)[halo]
        return (1 - self.beta(halo)) * old + self.beta(halo) * incomplete

    def stored(self, table, layer, like):
        return table.setdefault(layer, torch.zeros(len(self.graph.x), like.shape[1]).double())

    def keep(self, layer, nodes, z):
        self.stored(self.H, layer, z)[nodes] = z

    def keep_halo(self, layer, nodes, z):
        if self.method == "fm":
            self.stored(self.H, layer, z)[nodes] = z

    def keep_auxiliaries(self, layer, nodes, v):
        self.stored(self.V, layer, v)[nodes] = v

    def fill(self, model):
        """With exact values, nothing dropped, statistics left as they are."""
        everything, running = list(range(len(self.graph.x))), model.running
        model.running = {name: [value.clone() for value in pair] for name, pair in running.items()}
        model.drops = False
        exact = one_step(model, self.graph, everything, [], Outside(), 0)
        model.running, model.drops = running, True
        self.H, self.V = exact.z, exact.v


def estimate(method, model, graph, batch, step, scale=1.0, weights=None, histories=None):
    """The loss and the gradient by name, by any method."""
    n = len(graph.x)
    if method == "gd":
        found = one_step(model, graph, list(range(n)), [], Outside(), step)
    elif method == "sgd":  # Theorem 1: the rows of the batch, of a pass over everything
        w = torch.zeros(n).double()
        w[batch] = torch.ones(len(batch)).double() if weights is None else weights
        found = one_step(model, graph, list(range(n)), [], Outside(), step, w)
    elif method == "cluster":
        part = graph.within(batch)
        found = one_step(model, part, list(range(len(batch))), [], Outside(), step, weights, batch)
    else:
        halo = sorted(set().union(*(graph.neighbours(i) for i in batch)) - set(batch))
        histories.batch, histories.depth = batch, len(model.convolutions)
        found = one_step(model, graph, batch, halo, histories, step, weights)
    factor = (1.0 if method == "gd" else scale) / int(graph.labelled.sum())
    return factor * found.loss, {name: factor * value for name, value in found.gradient.items()}
