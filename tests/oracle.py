"""LMC straight from the paper: equations (6) to (13), dense, node by node, in numpy.

No code of the library takes part; the only input is numbers. A layer's update is u(h_i, m_i) = M' m_i + c_i
with a matrix M and a vector c_i that does not depend on messages (the bias of a GCN, the initial residual of
GCNII), plus g(h_i) where a layer has a residual; messages are g(h) = max(h, 0), and g(h) = h in the first
layer of a model without an encoder.
"""

import numpy as np

SCORES = {
    "x^2": lambda x: x**2,
    "2x-x^2": lambda x: 2 * x - x**2,
    "x": lambda x: x,
    "1": lambda x: 1.0,
    "sin": np.sin,
}


def relu(h):
    return np.maximum(h, 0.0)


def step_function(h):
    return (h > 0).astype(float)


def softmax_minus_label(logits, y):
    e = np.exp(logits - logits.max())
    p = e / e.sum()
    p[y] -= 1.0
    return p


class DenseLMC:
    """One model, `H[l][i]` and `V[l][i]` the historical values of every node, by layer.

    adjacency: (n, n) normalised; neighbours: list of sets, a node not its own neighbour.
    """

    residual = False

    def own(self, l):
        """Whether a layer adds its own input, which needs equal widths."""
        return self.residual and self.width(l) == self.width_in(l)

    def __init__(self, adjacency, neighbours, x, y, labelled, alpha, score):
        self.A, self.neighbours, self.x, self.y, self.labelled = adjacency, neighbours, x, y, labelled
        self.alpha, self.score = alpha, SCORES[score]
        self.H = self.V = None

    # A model says how a layer maps messages, and what each parameter's derivative is.
    def depth(self):
        raise NotImplementedError

    def estimate(self, batch, scale):
        """The gradients of equation (6) and (7), with the weights of appendix A.3.1."""
        n, L = len(self.x), self.depth()
        inside = set(batch)
        halo = sorted(set().union(*(self.neighbours[i] for i in batch)) - inside)
        reach = inside | set(halo)
        share = {i: len(self.neighbours[i] & reach) / len(self.neighbours[i]) for i in halo}
        beta = {i: self.alpha * self.score(share[i]) for i in halo}
        if self.H is None:
            self.H = [None] + [np.zeros((n, self.width(l))) for l in range(1, L + 1)]
            self.V = [None] + [np.zeros((n, self.width(l))) for l in range(1, L)]

        # Forward. now[l][i] is h-bar for batch nodes and h-hat for the halo.
        now = [{i: self.h0(i) for i in reach}]
        m = [None]
        for l in range(1, L + 1):
            g = {i: self.g(l, now[l - 1][i]) for i in reach}
            message, h = {}, {}
            for i in sorted(reach):
                # For i in the batch all its sources are in reach, so this is (8); for the halo it is (10).
                message[i] = sum(
                    (self.A[i, j] * g[j] for j in sorted(reach) if self.A[i, j] != 0),
                    np.zeros(self.width_in(l)),
                )
                value = message[i] @ self.M(l) + self.c(l, i)
                if self.own(l):
                    value = value + g[i]
                if i in inside:
                    h[i] = value
                else:
                    h[i] = (1 - beta[i]) * self.H[l][i] + beta[i] * value  # (9)
            for i in batch:
                self.H[l][i] = h[i]
            now.append(h)
            m.append(message)

        # Backward. v[i] is V-bar for batch nodes and V-hat for the halo.
        count = int(self.labelled.sum())
        v = {i: self.loss_derivative(now[L][i], i) / count for i in reach}
        gradient = self.zero_gradient()
        for i in batch:
            if self.labelled[i]:
                self.add_head(gradient, now[L][i], self.y[i], scale / count)  # (6)
        for l in range(L, 0, -1):
            for i in batch:
                self.add_layer(gradient, l, i, m[l][i], v[i], scale)  # (7)
            before = {}
            for i in sorted(reach):
                total = sum(
                    (self.A[j, i] * (self.M(l) @ v[j]) for j in sorted(reach) if self.A[j, i] != 0),
                    np.zeros(self.width_in(l)),
                )
                if self.own(l):
                    total = total + v[i]
                value = self.dg(l, now[l - 1][i]) * total  # (11), and (13) for the halo
                if i in inside or l == 1:
                    before[i] = value
                else:
                    before[i] = (1 - beta[i]) * self.V[l - 1][i] + beta[i] * value  # (12)
            if l > 1:
                for i in batch:
                    self.V[l - 1][i] = before[i]
            v = before
        for i in batch:
            self.add_encoder(gradient, i, v[i], scale)
        return gradient


class DenseGCN(DenseLMC):
    """h^l = W' m + b; the loss reads h^L."""

    def __init__(self, weights, biases, *arguments):
        super().__init__(*arguments)
        self.W, self.b = weights, biases

    def depth(self):
        return len(self.W)

    def width(self, l):
        return self.W[l - 1].shape[1]

    def width_in(self, l):
        return self.W[l - 1].shape[0]

    def h0(self, i):
        return self.x[i]

    def g(self, l, h):
        return h if l == 1 else relu(h)

    def dg(self, l, h):
        return np.ones_like(h) if l == 1 else step_function(h)

    def M(self, l):
        return self.W[l - 1]

    def c(self, l, i):
        return self.b[l - 1]

    def loss_derivative(self, h, i):
        return softmax_minus_label(h, self.y[i]) if self.labelled[i] else np.zeros_like(h)

    def zero_gradient(self):
        return {"W": [np.zeros_like(w) for w in self.W], "b": [np.zeros_like(b) for b in self.b]}

    def add_head(self, gradient, h, y, factor):
        pass

    def add_layer(self, gradient, l, i, m, v, factor):
        gradient["W"][l - 1] += factor * np.outer(m, v)
        gradient["b"][l - 1] += factor * v

    def add_encoder(self, gradient, i, v, factor):
        pass


class DenseGCNII(DenseLMC):
    """h^l = ((1-a) m + a h0') ((1-s) I + s W^l), h0' = relu(x E + e); logits relu(h^L) O + o."""

    def __init__(self, encoder, weights, initial_weights, head, a, theta, *arguments):
        super().__init__(*arguments)
        self.E, self.e = encoder
        self.W, self.U = weights, initial_weights  # U is W itself where the weights are shared
        self.O, self.o = head
        self.a = a
        self.s = [np.log(theta / l + 1) for l in range(1, len(weights) + 1)]
        self.initial_v = {}

    def depth(self):
        return len(self.W)

    def width(self, l):
        return len(self.e)

    width_in = width

    def h0(self, i):
        return self.x[i] @ self.E + self.e

    def g(self, l, h):
        return relu(h)

    def dg(self, l, h):
        return step_function(h)

    def map(self, l, weights):
        return (1 - self.s[l - 1]) * np.eye(len(self.e)) + self.s[l - 1] * weights[l - 1]

    def M(self, l):
        return (1 - self.a) * self.map(l, self.W)

    def c(self, l, i):
        return self.a * relu(self.h0(i)) @ self.map(l, self.U)

    def loss_derivative(self, h, i):
        if not self.labelled[i]:
            return np.zeros_like(h)
        return step_function(h) * (self.O @ softmax_minus_label(relu(h) @ self.O + self.o, self.y[i]))

    def zero_gradient(self):
        self.initial_v = {}
        return {
            "E": np.zeros_like(self.E),
            "e": np.zeros_like(self.e),
            "W": [np.zeros_like(w) for w in self.W],
            "U": [np.zeros_like(w) for w in self.W],
            "O": np.zeros_like(self.O),
            "o": np.zeros_like(self.o),
        }

    def add_head(self, gradient, h, y, factor):
        d = factor * softmax_minus_label(relu(h) @ self.O + self.o, y)
        gradient["O"] += np.outer(relu(h), d)
        gradient["o"] += d

    def add_layer(self, gradient, l, i, m, v, factor):
        p, q = (1 - self.a) * m, self.a * relu(self.h0(i))
        other = gradient["W"] if self.U is self.W else gradient["U"]
        gradient["W"][l - 1] += factor * self.s[l - 1] * np.outer(p, v)
        other[l - 1] += factor * self.s[l - 1] * np.outer(q, v)
        self.initial_v[i] = self.initial_v.get(i, 0.0) + self.a * (self.map(l, self.U) @ v)

    def add_encoder(self, gradient, i, v, factor):
        d = factor * (v + step_function(self.h0(i)) * self.initial_v[i])
        gradient["E"] += np.outer(self.x[i], d)
        gradient["e"] += d
