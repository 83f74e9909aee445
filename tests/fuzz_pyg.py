"""Random models of PyG, and random stacks of its convolutions with whatever comes between them."""

import torch
from hypothesis import strategies as st
from torch import nn as tnn
from torch_geometric import nn
from torch_geometric.nn import models

from fuzz_graphs import CLASSES, FEATURES

HISTOGRAM = torch.tensor([2, 4, 9, 9, 6, 3, 2, 1])
AGGREGATORS = ["mean", "max", "std", "sum", "min", "var"]
SCALERS = ["identity", "amplification", "attenuation", "linear"]
ACTS = ["relu", "elu", "leaky_relu", "tanh", "prelu", "gelu", "softplus", None]
NORMS = [
    (None, {}),
    ("BatchNorm", {}),
    ("BatchNorm", {"momentum": 0.3, "eps": 1e-2}),
    ("BatchNorm", {"affine": False}),
    ("LayerNorm", {"mode": "node"}),
    ("LayerNorm", {"mode": "node", "affine": False}),
]

booleans = st.booleans()
heads = st.sampled_from([1, 2])


def options(**choices):
    return st.fixed_dictionaries(choices)


OF_KIND = {
    "GCN": options(improved=booleans, add_self_loops=booleans, bias=booleans)
    | options(normalize=st.just(False), add_self_loops=st.just(False)),
    "GraphSAGE": options(
        aggr=st.sampled_from(["mean", "sum", "max", "min", ["mean", "max"], "std"]),
        normalize=booleans,
        root_weight=booleans,
        project=booleans,
    ),
    "GIN": options(
        eps=st.sampled_from([0.0, 0.4]), train_eps=booleans, aggr=st.sampled_from(["add", "mean", "max"])
    ),
    "GAT": options(
        heads=heads,
        v2=booleans,
        add_self_loops=booleans,
        residual=booleans,
        edge_dim=st.sampled_from([None, 2]),
        fill_value=st.sampled_from(["mean", "add", 0.5]),
    ),
    "PNA": options(
        aggregators=st.lists(st.sampled_from(AGGREGATORS), min_size=1, max_size=3, unique=True),
        scalers=st.lists(st.sampled_from(SCALERS), min_size=1, max_size=3, unique=True),
        edge_dim=st.sampled_from([None, 2]),
        pre_layers=heads,
        post_layers=heads,
        train_norm=booleans,
        deg=st.just(HISTOGRAM),
    ),
    "EdgeCNN": options(aggr=st.sampled_from(["max", "mean", "sum"])),
}


@st.composite
def pyg_models(draw):
    """A model of `torch_geometric.nn.models` with any of its options."""
    kind = draw(st.sampled_from(sorted(OF_KIND)))
    norm, norm_kwargs = draw(st.sampled_from(NORMS))
    shared = {
        "act": draw(st.sampled_from(ACTS)),
        "act_first": draw(booleans),
        "norm": norm,
        "norm_kwargs": norm_kwargs,
        "jk": draw(st.sampled_from([None, None, "last", "cat", "max", "lstm"])),
    }
    out = draw(st.sampled_from([CLASSES, None]))
    torch.manual_seed(draw(st.integers(0, 99)))
    own = draw(OF_KIND[kind])
    return getattr(models, kind)(FEATURES, 6, draw(st.integers(1, 3)), out, **shared, **own)


def mlp(*widths):
    return tnn.Sequential(tnn.Linear(widths[0], widths[1]), tnn.Tanh(), tnn.Linear(widths[1], widths[-1]))


# From (in, out) to a convolution. All but those of the second table must be accepted by lmc.GNN.
ACCEPTED = {
    "GCN": lambda i, o: nn.GCNConv(i, o),
    "GCN improved": lambda i, o: nn.GCNConv(i, o, improved=True),
    "GCN plain": lambda i, o: nn.GCNConv(i, o, normalize=False),
    "GraphConv": lambda i, o: nn.GraphConv(i, o),
    "GraphConv mean": lambda i, o: nn.GraphConv(i, o, aggr="mean"),
    "GraphConv max": lambda i, o: nn.GraphConv(i, o, aggr="max"),
    "SAGE": lambda i, o: nn.SAGEConv(i, o),
    "SAGE max": lambda i, o: nn.SAGEConv(i, o, aggr="max", project=True),
    "SAGE softmax": lambda i, o: nn.SAGEConv(i, o, aggr="softmax"),
    "SAGE power mean": lambda i, o: nn.SAGEConv(i, o, aggr=["sum", "std"], normalize=True),
    "GIN": lambda i, o: nn.GINConv(mlp(i, 4, o), train_eps=True),
    "GINE": lambda i, o: nn.GINEConv(mlp(i, 4, o), edge_dim=2),
    "GAT": lambda i, o: nn.GATConv(i, o // 2, heads=2),
    "GAT mean": lambda i, o: nn.GATConv(i, o, heads=2, concat=False, edge_dim=2),
    "GATv2": lambda i, o: nn.GATv2Conv(i, o // 2, heads=2, edge_dim=2, residual=True),
    "Transformer": lambda i, o: nn.TransformerConv(i, o // 2, heads=2, edge_dim=2, beta=True),
    "Transformer plain": lambda i, o: nn.TransformerConv(i, o, heads=2, concat=False, root_weight=False),
    "ResGated": lambda i, o: nn.ResGatedGraphConv(i, o),
    "ResGated edges": lambda i, o: nn.ResGatedGraphConv(i, o, edge_dim=2),
    "Edge": lambda i, o: nn.EdgeConv(mlp(2 * i, 4, o)),
    "Edge mean": lambda i, o: nn.EdgeConv(mlp(2 * i, 4, o), aggr="mean"),
    "NN": lambda i, o: nn.NNConv(i, o, mlp(2, 4, i * o)),
    "General": lambda i, o: nn.GeneralConv(i, o, in_edge_channels=2, attention=True, heads=2),
    "GMM": lambda i, o: nn.GMMConv(i, o, dim=2, kernel_size=2),
    "GEN": lambda i, o: nn.GENConv(i, o, edge_dim=2, norm="layer"),
    "MF": lambda i, o: nn.MFConv(i, o, max_degree=3),
    "LE": lambda i, o: nn.LEConv(i, o),
    "PNA": lambda i, o: nn.PNAConv(i, o, ["mean", "max"], ["identity", "amplification"], HISTOGRAM),
    "FeaSt": lambda i, o: nn.FeaStConv(i, o, heads=2),
}
MAY_BE_REFUSED = {
    "SG": lambda i, o: nn.SGConv(i, o, K=2),
    "SSG": lambda i, o: nn.SSGConv(i, o, alpha=0.1, K=2),
    "TAG": lambda i, o: nn.TAGConv(i, o, K=2),
    "Cheb": lambda i, o: nn.ChebConv(i, o, K=2),
    "ARMA": lambda i, o: nn.ARMAConv(i, o, num_layers=2),
    "AGNN": lambda i, o: nn.AGNNConv(),
    "SuperGAT": lambda i, o: nn.SuperGATConv(i, o),
    "EG": lambda i, o: nn.EGConv(i, o, num_heads=1, num_bases=2),
    "ClusterGCN": lambda i, o: nn.ClusterGCNConv(i, o),
    "PDN": lambda i, o: nn.PDNConv(i, o, edge_dim=2, hidden_channels=4),
    "GCN mean": lambda i, o: nn.GCNConv(i, o, aggr="mean"),
    "GCN max": lambda i, o: nn.GCNConv(i, o, aggr="max"),
    "GatedGraph": lambda i, o: nn.GatedGraphConv(o, num_layers=2),
    "LG": lambda i, o: nn.LGConv(),
    "Dir": lambda i, o: nn.DirGNNConv(nn.SAGEConv(i, o)),
    "MixHop": lambda i, o: nn.MixHopConv(i, o // 2, powers=[0, 1]),
    "CG": lambda i, o: nn.CGConv(i, dim=2),
}
CONVOLUTIONS = ACCEPTED | MAY_BE_REFUSED


class Stack(tnn.Module):
    """Convolutions with something between them, called as people call them on a whole graph."""

    def __init__(self, encoder, between, convolutions, head, jump):
        super().__init__()
        self.encoder, self.head, self.jump = encoder, head, jump
        self.between, self.convolutions = tnn.ModuleList(between), tnn.ModuleList(convolutions)

    def layers(self):
        return [tnn.Sequential(*b, c) for b, c in zip(self.between, self.convolutions, strict=True)]

    def forward(self, x, edge_index, given):
        """given: from a convolution to what it takes beside the edges."""
        z, seen = self.encoder(x), []
        for between, convolution in zip(self.between, self.convolutions, strict=True):
            h = between(z)
            seen.append(h)
            z = convolution(h, edge_index, **given(convolution))
        return self.head(z if self.jump is None else self.jump([*seen[1:], z]))


@st.composite
def stacks(draw):
    """One to three convolutions of any kinds; their names, and the stack of them."""
    mostly = [*ACCEPTED] * 4 + [*MAY_BE_REFUSED]
    kinds = draw(st.lists(st.sampled_from(mostly), min_size=1, max_size=3))
    torch.manual_seed(draw(st.integers(0, 99)))
    width, between = 6, []
    for place in range(len(kinds)):
        parts = []
        if place > 0:
            norm = draw(st.sampled_from([None, tnn.BatchNorm1d, tnn.LayerNorm]))
            act = draw(st.sampled_from([tnn.ReLU, tnn.ELU, tnn.Tanh]))
            parts = [*([] if norm is None else [norm(width)]), act()]
        between.append(tnn.Sequential(*parts))
    jump = nn.JumpingKnowledge(draw(st.sampled_from(["cat", "max"]))) if draw(booleans) else None
    read = width * len(kinds) if jump is not None and jump.mode == "cat" else width
    convolutions = [CONVOLUTIONS[kind](width, width) for kind in kinds]
    return kinds, Stack(tnn.Linear(FEATURES, width), between, convolutions, tnn.Linear(read, CLASSES), jump)
