"""Models of PyG's convolutions of several hops, with their options, beside the same modules called by PyG."""

import torch
from torch import nn
from torch_geometric import nn as pyg

import lmc

# (in, out) to a convolution; those without weights give as many columns as they take.
HOPS = {
    "LGConv": lambda i, o: pyg.LGConv(),
    "SGConv": lambda i, o: pyg.SGConv(i, o, K=3),
    "SSGConv": lambda i, o: pyg.SSGConv(i, o, alpha=0.2, K=3),
    "APPNP": lambda i, o: pyg.APPNP(K=4, alpha=0.2),
    "TAGConv": lambda i, o: pyg.TAGConv(i, o, K=3),
    "ChebConv": lambda i, o: pyg.ChebConv(i, o, K=5),
    "ARMAConv": lambda i, o: pyg.ARMAConv(i, o, num_stacks=2, num_layers=3),
    "MixHopConv": lambda i, o: pyg.MixHopConv(i, o),
    "GatedGraphConv": lambda i, o: pyg.GatedGraphConv(max(i, o), num_layers=2),
}
OPTIONS = {
    "LGConv as it is": lambda i, o: pyg.LGConv(normalize=False),
    "SGConv of one hop": lambda i, o: pyg.SGConv(i, o),
    "SGConv without loops and bias": lambda i, o: pyg.SGConv(i, o, K=2, add_self_loops=False, bias=False),
    "SSGConv of one hop": lambda i, o: pyg.SSGConv(i, o, alpha=0.3),
    "SSGConv without loops and bias": lambda i, o: pyg.SSGConv(
        i, o, alpha=0.5, K=2, add_self_loops=False, bias=False
    ),
    "APPNP without loops": lambda i, o: pyg.APPNP(K=2, alpha=0.5, add_self_loops=False, cached=True),
    "APPNP as it is": lambda i, o: pyg.APPNP(K=2, alpha=0.1, normalize=False),
    "TAGConv of one hop": lambda i, o: pyg.TAGConv(i, o, K=1),
    "TAGConv as it is": lambda i, o: pyg.TAGConv(i, o, K=2, normalize=False, bias=False),
    "ChebConv of one hop": lambda i, o: pyg.ChebConv(i, o, K=2),
    "ChebConv of two hops": lambda i, o: pyg.ChebConv(i, o, K=3, bias=False),
    "ChebConv, random walk": lambda i, o: pyg.ChebConv(i, o, K=4, normalization="rw"),
    "ChebConv as it is": lambda i, o: pyg.ChebConv(i, o, K=4, normalization=None),
    "ARMAConv of one hop": lambda i, o: pyg.ARMAConv(i, o, bias=False),
    "ARMAConv, one weight": lambda i, o: pyg.ARMAConv(i, o, 3, 3, shared_weights=True, act=None),
    "ARMAConv, softmax": lambda i, o: pyg.ARMAConv(i, o, 2, 2, act=nn.Softmax(dim=-1)),
    "ARMAConv, a function": lambda i, o: pyg.ARMAConv(i, o, 2, 2, act=torch.tanh),
    "MixHopConv, some powers": lambda i, o: pyg.MixHopConv(i, o, [3, 1], add_self_loops=False, bias=False),
    "MixHopConv, powers in disorder": lambda i, o: pyg.MixHopConv(i, o, [1, 2, 0, 1]),
    "GatedGraphConv of one hop": lambda i, o: pyg.GatedGraphConv(max(i, o) + 2, 1, bias=False),
}
EVERY_HOP = HOPS | OPTIONS


class ByPyG(nn.Module):
    """Two convolutions of a kind, a norm and a tanh between, and linear maps around, as PyG calls them."""

    def __init__(self, kind, features=5, hidden=6, out=3, linear_in=True):
        super().__init__()
        width = hidden if linear_in else features
        self.encoder = nn.Linear(features, hidden) if linear_in else nn.Identity()
        self.first = EVERY_HOP[kind](width, hidden)
        x = torch.randn(4, width)
        between = self.first(x, torch.tensor([[0, 1], [1, 0]])).shape[1]
        self.norm = nn.LayerNorm(between)
        self.second = EVERY_HOP[kind](between, hidden)
        after = self.second(torch.randn(4, between), torch.tensor([[0, 1], [1, 0]])).shape[1]
        self.head = nn.Linear(after, out)
        for conv in (self.first, self.second):
            conv.reset_parameters()  # and what it has kept

    def forward(self, data):
        weight = data.get("edge_weight")
        weight = None if weight is None else weight.to(data.x)
        h = self.first(self.encoder(data.x), data.edge_index, weight)
        h = self.second(self.norm(h).tanh(), data.edge_index, weight)
        return self.head(h.tanh())

    def wrapped(self):
        layers = [self.first, nn.Sequential(self.norm, nn.Tanh(), self.second)]
        encoder = None if isinstance(self.encoder, nn.Identity) else self.encoder
        return lmc.GNN(layers, encoder, nn.Sequential(nn.Tanh(), self.head))


def make_hops(kind, seed=0, **options):
    """Such a model in float64; biases and scales are away from zero and one, so that errors in them show."""
    torch.manual_seed(seed)
    model = ByPyG(kind, **options)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "bias" in name:
                parameter += 0.3 * torch.randn(parameter.shape)
    return model.double()
