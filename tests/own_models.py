"""Functions of a user that make models, for `module:function`."""

import torch
from torch_geometric import nn

import lmc


def make(features, classes, width=8, scale=1.0):
    """Modules that no settings of ours describe."""
    head = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(width, classes))
    torch.nn.init.constant_(head[1].bias, scale)
    return lmc.GNN([nn.GraphConv(features, width)], head=head)


def of_pyg(features, classes, **options):
    """A model of PyG, with an activation that is a function."""
    return nn.GraphSAGE(features, 8, 2, classes, act=torch.sin, **options)


def raises(features, classes, width=0):
    """Fails when it makes a model."""
    return lmc.GCN(features, classes // width, classes)


class _Fails(nn.GraphConv):
    most = 100  # it does not fail where it is tried on a few nodes

    def forward(self, x, edge_index, edge_weight=None, size=None):
        if len(x[0]) > self.most:
            return {}["a weight"]
        return super().forward(x, edge_index, edge_weight, size)


def raises_later(features, classes):
    """Makes a model that fails on more than a few nodes."""
    return lmc.GNN([_Fails(features, classes)])


class _FailsInStep(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) if not torch.is_grad_enabled() else [][len(x)]


def raises_in_step(features, classes):
    """Makes a model that fails where derivatives are asked for."""
    return lmc.GNN([nn.GraphConv(features, 8)], head=_FailsInStep(8, classes))


def no_model(features, classes):
    """Not a model."""
    return torch.nn.Linear(features, classes)
