"""LMC straight from the paper: equations (6) to (13), dense, node by node, in numpy.

No code of the library takes part; the only input is numbers. A layer's update is u(h_i, m_i) = M' m_i + c_i
with a matrix M and a vector c_i that does not depend on messages (the bias of a GCN, the initial residual of
GCNII), plus g(h_i) where a layer has a residual; messages are g(h) = max(h, 0), and g(h) = h in the first
layer of a model without an encoder.
"""

import numpy as np

SCORES = {
    "x^2": lambda x: x**2,
    "2x^2": lambda x: min(1.0, 2 * x**2),
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
    """One model; `mix` has the historical values of every node.

    adjacency: (n, n) normalised; neighbours: list of sets, a node not its own neighbour.
    """

    residual = False

    def own(self, l):
        """Whether a layer adds its own input, which needs equal widths."""
        return self.residual and self.width(l) == self.width_in(l)

    def __init__(self, adjacency, neighbours, x, y, labelled, alpha=1.0, score="1", backward_score=None):
        self.A, self.neighbours, self.x, self.y, self.labelled = adjacency, neighbours, x, y, labelled
        self.alpha, self.score, self.backward_score = alpha, SCORES[score], SCORES[backward_score or score]
        self.mix = MixOfValues(self)

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
        self.mix.begin(batch, share, n)

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
            self.mix.learn_forward(l, message, g)
            for i in sorted(reach):
                if i in inside:
                    h[i] = self.updated(l, i, message[i], g)
                else:
                    h[i] = self.mix.embedding(l, i, message[i], g)
            self.mix.keep_embeddings(l, batch, h, message)
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
            before, total = {}, {}
            for i in sorted(reach):
                total[i] = sum(
                    (self.A[j, i] * v[j] for j in sorted(reach) if self.A[j, i] != 0),
                    np.zeros(self.width(l)),
                )
            if l > 1:
                self.mix.learn_backward(l, total, v)
            for i in sorted(reach):
                if i in inside or l == 1:
                    before[i] = self.sent_back(l, i, total[i], v, now)
                else:
                    before[i] = self.mix.auxiliary(l, i, total[i], v, now)
            if l > 1:
                self.mix.keep_auxiliaries(l, batch, before, total)
            v = before
        for i in batch:
            self.add_encoder(gradient, i, v[i], scale)
        return gradient

    def updated(self, l, i, message, g):
        """The boundary after a layer, of what arrives."""
        value = message @ self.M(l) + self.c(l, i)
        return value + g[i] if self.own(l) else value

    def sent_back(self, l, i, total, v, now):
        """(11), and (13) for the halo: the derivative before a layer, of what comes back."""
        at_message = self.M(l) @ total
        return self.dg(l, now[l - 1][i]) * (at_message + v[i] if self.own(l) else at_message)


class MixOfValues:
    """The paper's: `H[l][i]` and `V[l][i]` are the values of node i when it was last in a batch."""

    def __init__(self, model):
        self.model, self.H, self.V = model, None, None

    def begin(self, batch, share, n):
        model = self.model
        self.forward = {i: model.alpha * model.score(x) for i, x in share.items()}
        self.backward = {i: model.alpha * model.backward_score(x) for i, x in share.items()}
        if self.H is None:
            self.H = [None] + [np.zeros((n, model.width(l))) for l in range(1, model.depth() + 1)]
            self.V = [None] + [np.zeros((n, model.width(l))) for l in range(1, model.depth())]

    def embedding(self, l, i, message, g):  # (9)
        beta = self.forward[i]
        return (1 - beta) * self.H[l][i] + beta * self.model.updated(l, i, message, g)

    def auxiliary(self, l, i, total, v, now):  # (12)
        beta = self.backward[i]
        return (1 - beta) * self.V[l - 1][i] + beta * self.model.sent_back(l, i, total, v, now)

    def learn_forward(self, l, message, g):
        pass

    def learn_backward(self, l, total, v):
        pass

    def keep_embeddings(self, l, batch, h, message):
        for i in batch:
            self.H[l][i] = h[i]

    def keep_auxiliaries(self, l, batch, v, total):
        for i in batch:
            self.V[l - 1][i] = v[i]


class MixOfSums:
    """`R[l][i]` is what node i received in layer l when it was last in a batch, `U[l][i]` what came back.

    Where h^0 are the features and nothing is done to them, what is received in the first layer is known.
    With `finds` the mix is by least squares, from what the rows of every batch show.
    """

    def __init__(self, model, finds):
        self.model, self.finds, self.R, self.told = model, finds, None, {}

    def begin(self, batch, share, n):
        self.batch, self.share, model = batch, share, self.model
        layers = range(1, model.depth() + 1)
        if self.R is None:
            self.R = [None] + [np.zeros((n, model.width_in(l))) for l in layers]
            self.U = [None] + [np.zeros((n, model.width(l))) for l in layers]
        turn = batch if share else []  # of batches with more than 1024 rows, a part
        self.asked = [i for i in turn if model.neighbours[i] - set(batch)]

    def beta(self, direction, l, i):
        model, x = self.model, self.share[i]
        if not self.finds:
            return model.alpha * (model.score if direction == "forward" else model.backward_score)(x)
        if x == 1:
            return 1.0
        tenth = int(x * 10)
        told = [(abs(t - tenth), self.told.get((direction, l, t), (0.0, 0.0))) for t in range(10)]
        along, squares = (sum(0.05**away * one[which] for away, one in told) for which in (0, 1))
        middle = (tenth + 0.5) / 10
        beta = middle**2 if direction == "forward" else min(1.0, 2 * middle**2)
        if squares > 0:
            beta = min(1.0, max(0.0, along / squares))
        return beta if beta >= 0.05 else 0.0

    def embedding(self, l, i, message, g):
        model = self.model
        if l == 1 and model.features_are_sent:
            message = model.A[i] @ model.x
        else:
            beta = self.beta("forward", l, i)
            message = (1 - beta) * self.R[l][i] + beta * message
        return model.updated(l, i, message, g)

    def auxiliary(self, l, i, total, v, now):
        beta = self.beta("backward", l, i)
        return self.model.sent_back(l, i, (1 - beta) * self.U[l][i] + beta * total, v, now)

    def learn_forward(self, l, message, g):
        if not (l == 1 and self.model.features_are_sent):
            self.learn("forward", l, self.R[l], message, lambda i, j: self.model.A[i, j] * g[j])

    def learn_backward(self, l, total, v):
        self.learn("backward", l, self.U[l], total, lambda i, j: self.model.A[j, i] * v[j])

    def keep_embeddings(self, l, batch, h, message):
        for i in batch:
            self.R[l][i] = message[i]

    def keep_auxiliaries(self, l, batch, v, total):
        for i in batch:
            self.U[l][i] = total[i]

    def learn(self, direction, l, old, truth, from_one):
        for key in [key for key in self.told if key[:2] == (direction, l)] if self.asked else []:
            self.told[key] = tuple(0.9 * value for value in self.told[key])
        for i in self.asked:
            near = self.model.neighbours[i]
            tenth = int(len(near & set(self.batch)) / len(near) * 10)
            ahead = sum(from_one(i, j) for j in self.batch) - old[i]
            along, squares = self.told.get((direction, l, tenth), (0.0, 0.0))
            self.told[direction, l, tenth] = (along + (truth[i] - old[i]) @ ahead, squares + ahead @ ahead)


class DenseGCN(DenseLMC):
    """h^l = W' m + b; the loss reads h^L."""

    features_are_sent = True

    def __init__(self, weights, biases, *arguments, **mixed):
        super().__init__(*arguments, **mixed)
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

    features_are_sent = False

    def __init__(self, encoder, weights, initial_weights, head, a, theta, *arguments, **mixed):
        super().__init__(*arguments, **mixed)
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
