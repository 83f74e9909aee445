"""One step of every estimator, dense: the paper's equations, with autograd for each function in them.

No code of the library takes part. Halo rows see the neighbours in reach, and touch no parameter.
"""

from dataclasses import dataclass, field

import torch
from scipy import linalg

SCORES = {
    "x^2": lambda x: x**2,
    "2x-x^2": lambda x: 2 * x - x**2,
    "x": lambda x: x,
    "1": lambda x: x * 0 + 1,
    "sin": torch.sin,
}

# -- a step -----------------------------------------------------------------------------------------


class Outside:
    """What replaces the halo's values; here, there is no halo."""

    incomplete_from_batch = False

    def heard(self, layer, a, batch, halo, sent, sent_halo):
        """(batch, heard) what batch rows receive, and (heard, width) from whom."""
        return a[batch][:, batch + halo], torch.cat([sent, sent_halo])

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
    if not inputs:  # such as a head without parameters
        return []
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
    for layer, convolution in enumerate(model.convolutions, start=1):
        m = model.message(layer, z, b_names, step, True)
        m_halo = model.message(layer, z_halo, h_names, step, False)
        sent, sent_halo = leaf(m), leaf(m_halo)
        everyone = torch.cat([sent, sent_halo])
        a = graph.matrix(convolution.matrix())
        same = torch.eye(len(graph.x), dtype=torch.bool)
        part, senders = outside.heard(layer, a, batch, halo, sent, sent_halo)
        own = torch.eye(len(batch), len(senders), dtype=torch.bool)
        halo_part, halo_own = a[halo][:, reach], same[halo][:, reach]
        new = convolution(model.p, part, senders, sent, initial, own)  # (8)
        new_halo = convolution(model.p, halo_part, everyone, sent_halo, initial_halo, halo_own)
        incomplete = new_halo  # (10)
        if outside.incomplete_from_batch:
            from_batch = halo_part & False if halo_part.dtype == torch.bool else halo_part * 0
            from_batch[:, : len(batch)] = halo_part[:, : len(batch)]
            incomplete = convolution(model.p, from_batch, everyone, sent_halo, initial_halo, halo_own)
        layers.append((z, z_halo, m, m_halo, sent, sent_halo, new, new_halo))
        found.z[layer] = new.detach()
        z, z_halo = leaf(new), leaf(outside.embeddings(layer, halo, incomplete.detach()))  # (9)
        outside.keep(layer, batch, z.detach())
        outside.keep_halo(layer, halo, z_halo.detach())

    losses = graph.losses(model.predict(z, b_names, step, True), batch)
    found.loss = (w * losses).sum().detach()
    add_up(losses, torch.ones_like(losses))
    (v,) = vjp(losses, [z], torch.ones_like(losses))
    halo_losses = graph.losses(model.predict(z_halo, h_names, step, False), halo)
    (v_halo,) = vjp(halo_losses, [z_halo], torch.ones_like(halo_losses))
    v_halo = outside.auxiliaries(depth, halo, v_halo)
    at_initial = torch.zeros_like(initial)
    for layer in range(depth, 0, -1):
        found.v[layer] = v
        if layer < depth:
            outside.keep_auxiliaries(layer, batch, v)
        z, z_halo, m, m_halo, sent, sent_halo, new, new_halo = layers.pop()
        add_up(new, v)
        at_initial += vjp(new, [initial], v)[0]
        arriving, arriving_halo = vjp([new, new_halo], [sent, sent_halo], [v, v_halo])
        add_up(m, arriving)
        (v,) = vjp(m, [z], arriving)  # (11)
        (incomplete,) = vjp(m_halo, [z_halo], arriving_halo)  # (13)
        if layer > 1:
            v_halo = outside.auxiliaries(layer - 1, halo, incomplete)  # (12)
    if model.reads_initial:
        v = v + (first > 0) * at_initial
    add_up(encoded, v)
    return found


# -- estimators -------------------------------------------------------------------------------------


class Histories(Outside):
    """GAS, MVS-GNN on batches of one's own, GraphFM and LMC: H̄ and V̄ of every node.

    method: "gas", "mvs", "fm" or "lmc"; the rest are their options.
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
        return self.alpha * self.score(torch.tensor(shares, dtype=torch.float64))[:, None]

    def embeddings(self, layer, halo, incomplete):
        old = self.stored(self.H, layer, incomplete)[halo]
        if self.method == "fm":
            return (1 - self.momentum) * old + self.momentum * incomplete
        if self.method in ("gas", "mvs") or not self.forward:
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


class Mapped(Outside):
    """TOP: no halo, and A_BB + A_B,halo R, with R = Q_halo pinv(Q_B), in place of A_BB.

    bases: (n, rank) Q by layer; where there is none, messages are the features.
    """

    def __init__(self, graph, bases):
        self.graph, self.bases = graph, bases

    def heard(self, layer, a, batch, halo, sent, sent_halo):
        others = [i for i in range(len(a)) if i not in set(batch)]
        if layer not in self.bases:
            return a[batch][:, batch + others], torch.cat([sent, self.graph.x[others]])
        q = self.bases[layer]
        return a[batch][:, batch] + a[batch][:, others] @ q[others] @ truncated_inverse(q[batch]), sent


def truncated_inverse(q):
    """pinv of the columns of Q, or of its rows where they are fewer, that are told apart: those of a QR
    decomposition with pivots, as long as these are more than a hundredth of the first."""
    if q.shape[0] < q.shape[1]:
        return truncated_inverse(q.T).T
    _, r, order = linalg.qr(q.numpy(), mode="economic", pivoting=True)
    pivots = abs(r.diagonal())
    chosen = order[: int((pivots > 1e-2 * pivots[0]).sum())]
    found = torch.zeros(q.shape[1], q.shape[0]).double()
    found[chosen] = torch.from_numpy(linalg.pinv(q[:, chosen].numpy()))
    return found


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
    elif method == "top":
        found = one_step(model, graph, batch, [], Mapped(graph, histories.bases), step, weights)
    else:
        halo = sorted(set().union(*(graph.neighbours(i) for i in batch)) - set(batch))
        histories.batch, histories.depth = batch, len(model.convolutions)
        found = one_step(model, graph, batch, halo, histories, step, weights)
    factor = (1.0 if method == "gd" else scale) / int(graph.labelled.sum())
    return factor * found.loss, {name: factor * value for name, value in found.gradient.items()}
