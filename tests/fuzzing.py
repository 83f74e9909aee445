"""Graphs and configurations of every kind that a user may have, the strange ones first of all."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch_geometric.nn import GAT, GraphSAGE

import lmc
from lmc.runs.registry import METHODS

SCALES = [1.0, 0.0, 1e-30, 1e-6, 1e6, 1e30]


@dataclass
class Strange:
    """The arrays of a graph, before anyone has looked at them."""

    arrays: dict
    clusters: torch.Tensor

    def graph(self):
        return lmc.Graph(**self.arrays)


@st.composite
def edge_lists(draw, n):
    """(2, edges): none, a star, a clique, a path, disconnected parts, or anything; perhaps repeated."""
    node = np.arange(n)
    shape = draw(st.sampled_from(["none", "star", "clique", "path", "parts", "any"]))
    if shape == "none":
        ends = np.empty((2, 0), dtype=np.int64)
    elif shape == "star":
        ends = np.stack([np.zeros(n, dtype=np.int64), node])
    elif shape == "clique":
        ends = np.stack([node.repeat(n), np.tile(node, n)])
    elif shape == "path":
        ends = np.stack([node[:-1], node[1:]])
    else:
        pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3 * n))
        ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        if shape == "parts":
            ends = ends[:, (ends[0] < n // 2) == (ends[1] < n // 2)]
    if draw(st.booleans()):
        ends = np.concatenate([ends, ends[::-1]], axis=1)
    if draw(st.booleans()):
        ends = np.concatenate([ends, ends[:, : n // 2]], axis=1)
    if draw(st.booleans()):
        ends = np.concatenate([ends, np.stack([node, node])], axis=1)
    return ends


@st.composite
def strange_graphs(draw, max_nodes=24):
    """One node or more; all that a graph may lawfully be."""
    n = draw(st.integers(1, max_nodes))
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    ends = draw(edge_lists(n))
    columns = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    x = (random.standard_normal((n, columns)) * draw(st.sampled_from(SCALES))).astype(dtype)
    task = draw(st.sampled_from(["one class", "classes", "multilabel", "regression"]))
    y = {
        "one class": lambda: np.zeros(n, dtype=np.int64),
        "classes": lambda: random.integers(-1, 4, n),
        "multilabel": lambda: random.integers(0, 2, (n, 3)),
        "regression": lambda: random.standard_normal(n) * draw(st.sampled_from(SCALES[:5])),
    }[task]()
    clusters = torch.tensor(draw(st.sampled_from([np.zeros(n, int), np.arange(n), random.integers(0, 4, n)])))
    role = random.integers(0, 4, n)
    if draw(st.booleans()):  # labels in one cluster only
        role[clusters != clusters[0]] = 3
    if draw(st.booleans()):  # nothing to validate on
        role[role == 1] = 0
    role[0], y[0] = 0, abs(y[0])  # there must be something to learn from
    arrays = {
        "edge_index": ends,
        "x": x,
        "y": y,
        "train_mask": role == 0,
        "val_mask": role == 1,
        "test_mask": role == 2,
    }
    if draw(st.booleans()):
        weights = random.choice([0.0, 1e-30, 0.5, 1.0, 1e6], ends.shape[1])
        arrays["edge_weight"] = weights.astype(dtype)
    return Strange(arrays, clusters)


@st.composite
def models(draw, graph):
    """Any model that takes the graph."""
    hidden, layers = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    norm = draw(st.sampled_from([None, "batch", "layer"]))
    dropout = draw(st.sampled_from([0.0, 0.5]))
    kind = draw(st.sampled_from(["gcn", "gcnii", "sign", "sage", "gat"]))
    sizes = graph.num_features, hidden, graph.num_classes
    torch.manual_seed(draw(st.integers(0, 99)))
    if kind == "gcn":
        linear = {"linear_in": draw(st.booleans()), "linear_out": draw(st.booleans())}
        return lmc.GCN(*sizes, layers=layers, norm=norm, dropout=dropout, **linear).to(graph.x.dtype)
    if kind == "gcnii":
        return lmc.GCNII(*sizes, layers=layers, norm=norm, dropout=dropout).to(graph.x.dtype)
    if kind == "sign":
        return lmc.SIGN(graph, layers, hidden, norm=norm, dropout=dropout).to(graph.x.dtype)
    module = (GraphSAGE if kind == "sage" else GAT)(
        graph.num_features, hidden, layers, graph.num_classes, dropout=dropout
    )
    return lmc.from_pyg(module.to(graph.x.dtype))


PRECISION = st.sampled_from(["full", "half"])
# What is drawn of the options of a method; those of the others are as they come.
METHOD_OPTIONS = {
    "lmc": {
        "alpha": st.sampled_from([0.0, 0.4, 1.0]),
        "score": st.sampled_from(["2x-x^2", "1", "x^2", "x", "sin"]),
        "compensate_forward": st.booleans(),
        "compensate_backward": st.booleans(),
        "precision": PRECISION,
    },
    "gas": {"precision": PRECISION},
    "fm": {"precision": PRECISION},
    "sage": {"fanouts": st.sampled_from([None, [-1], [2], [1]]), "batch_size": st.integers(1, 9)},
    "top": {
        "rank": st.sampled_from([1, 3, 64]),
        "basis": st.sampled_from(["random", "history"]),
        "precision": PRECISION,
    },
    "vrgcn": {
        "fanouts": st.sampled_from([None, [-1], [1]]),
        "batch_size": st.integers(1, 9),
        "precision": PRECISION,
    },
    "fastgcn": {"sizes": st.sampled_from([None, [1], [9]]), "batch_size": st.integers(1, 9)},
    "ladies": {"sizes": st.sampled_from([None, [1], [9]]), "batch_size": st.integers(1, 9)},
    "sign": {"batch_size": st.integers(1, 9)},
    "saint": {
        "sampler": st.sampled_from(["node", "edge", "walk"]),
        "batch_size": st.integers(1, 9),
        "coverage": st.integers(1, 3),
    },
    "mvs": {"batch_size": st.integers(1, 9), "every": st.sampled_from([None, 1, 2]), "precision": PRECISION},
}
ALL_HEARD = {"fanouts": st.just([-1])}
EXACT_ON_EVERYTHING = {name: {} for name in METHODS if METHODS[name].clusters or name == "gd"} | {
    "sage": ALL_HEARD,
    "vrgcn": ALL_HEARD,
    "sign": {},
    "mvs": {},
}


def estimators():
    """Every estimator, with any of its options."""
    return st.one_of(
        *(st.builds(method.load(), **METHOD_OPTIONS.get(name, {})) for name, method in METHODS.items())
    )


def estimators_exact_on_everything():
    """Those that have the gradient on the batch of all nodes, with options such that they have."""
    return st.one_of(
        *(
            st.builds(METHODS[name].load(), **METHOD_OPTIONS.get(name, {}) | options)
            for name, options in EXACT_ON_EVERYTHING.items()
        )
    )


trainings = st.fixed_dictionaries(
    {
        "parts": st.integers(1, 40),
        "lr": st.sampled_from([0.0, 1e-8, 1e-2, 10.0, 1e6]),
        "optimizer": st.sampled_from(["adam", "sgd"]),
        "clip": st.sampled_from([None, 1.0]),
        "init": st.sampled_from(["zero", "exact"]),
        "partition": st.sampled_from(["metis", "stream", "bfs", "random"]),
        "fixed": st.booleans(),
        "background": st.booleans(),
        "seed": st.integers(0, 9),
        "scheduler": st.sampled_from([None, "cosine", "plateau"]),
    }
)
