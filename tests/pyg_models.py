"""Models of PyG with their options, as functions of (in, hidden, out)."""

import torch
from torch_geometric.nn import LayerNorm, models

import lmc
from estimating import graph_of

HISTOGRAM = torch.tensor([2, 4, 9, 9, 6, 3, 2, 1])


def pna(*sizes, **options):
    aggregators, scalers = ["mean", "max", "std"], ["identity", "amplification", "attenuation"]
    return models.PNA(*sizes, aggregators=aggregators, scalers=scalers, deg=HISTOGRAM, **options)


def gat(*sizes, **options):
    return models.GAT(*sizes, heads=2, **options)


LINEAR = {
    "GCN": models.GCN,
    "SAGE mean": models.GraphSAGE,
    "SAGE sum": lambda *sizes, **options: models.GraphSAGE(*sizes, aggr="sum", **options),
    "GIN": models.GIN,
}
OTHER = {
    "SAGE max": lambda *sizes, **options: models.GraphSAGE(*sizes, aggr="max", **options),
    "GAT": gat,
    "GATv2": lambda *sizes, **options: gat(*sizes, v2=True, **options),
    "PNA": pna,
    "EdgeCNN": models.EdgeCNN,
}
EVERY = LINEAR | OTHER

# Options that every model has.
OPTIONS = {
    "one layer": {"num_layers": 1},
    "three layers": {"num_layers": 3},
    "batch norm": {"norm": "BatchNorm"},
    "batch norm, act first": {"norm": "BatchNorm", "act_first": True},
    "layer norm, elu": {"norm": LayerNorm(6, mode="node"), "act": "elu"},
    "leaky relu": {"act": "leaky_relu", "act_kwargs": {"negative_slope": 0.3}},
    "no activation": {"act": None},
    "a function": {"act": torch.tanh},
    "jk last": {"jk": "last", "norm": "BatchNorm"},
    "jk cat": {"jk": "cat", "num_layers": 3},
    "jk max": {"jk": "max", "norm": "BatchNorm"},
    "jk lstm": {"jk": "lstm"},
}

# Options of one model.
PARTICULAR = {
    "GCN improved": lambda *s: models.GCN(*s, improved=True),
    "GCN without loops": lambda *s: models.GCN(*s, add_self_loops=False),
    "GCN as it is": lambda *s: models.GCN(*s, normalize=False, bias=False),
    "SAGE without root": lambda *s: models.GraphSAGE(*s, root_weight=False),
    "SAGE of unit length": lambda *s: models.GraphSAGE(*s, normalize=True),
    "SAGE project": lambda *s: models.GraphSAGE(*s, project=True),
    "SAGE of two kinds": lambda *s: models.GraphSAGE(*s, aggr=["mean", "max"]),
    "GIN eps": lambda *s: models.GIN(*s, eps=0.4, train_eps=True),
    "GAT residual": lambda *s: gat(*s, residual=True),
    "GAT of edges": lambda *s: gat(*s, edge_dim=2),
    "GATv2 of edges, shared": lambda *s: gat(*s, v2=True, edge_dim=2, share_weights=True),
    "PNA of edges, towers": lambda *s: pna(*s, edge_dim=2, towers=3, divide_input=False),
    "PNA trained norm": lambda *s: pna(*s, train_norm=True),
}


def make(kind, features=5, hidden=6, out=3, seed=0, **options):
    """A model in float64; biases and scales are away from zero and one, so that an error in them shows."""
    torch.manual_seed(seed)
    if kind in PARTICULAR:
        model = PARTICULAR[kind](features, hidden, 2, out)
    else:
        model = EVERY[kind](features, hidden, options.pop("num_layers", 2), out, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.3 * torch.randn(parameter.shape)
    return model.double()


def graph_with(kind="directed weighted", columns=2):
    """With features of the edges, too."""
    data = graph_of(kind).to_pyg()
    generator = torch.Generator().manual_seed(1)
    data.edge_attr = torch.randn(data.num_edges, columns, generator=generator, dtype=torch.float64)
    return lmc.Graph.from_pyg(data, num_classes=3)


def by_pyg(model, graph):
    """PyG's own forward on the whole graph."""
    data, given = graph.to_pyg(), {}
    if model.supports_edge_weight:
        weight = data.get("edge_weight")  # how often edges repeat is kept in float32
        given["edge_weight"] = None if weight is None else weight.to(data.x.dtype)
    if model.supports_edge_attr and getattr(model.convs[0], "edge_dim", None) is not None:
        given["edge_attr"] = data.edge_attr
    return model(data.x, data.edge_index, **given)
