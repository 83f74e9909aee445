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


def no_model(features, classes):
    """Not a model."""
    return torch.nn.Linear(features, classes)
