"""From a model of PyG to one that trains by mini-batches, on the very same parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from lmc.errors import ArgumentError
from lmc.nn.fitting import compiled_hint
from lmc.nn.gnn import GNN, as_module
from lmc.nn.model import Model
from lmc.nn.pyg_options import recipe_of

if TYPE_CHECKING:
    from torch_geometric.nn.models.basic_gnn import BasicGNN


def from_pyg(model: BasicGNN) -> GNN:
    """A model of `torch_geometric.nn.models` (GCN, GraphSAGE, GIN, GAT, PNA, EdgeCNN) for every estimator.

    Parameters, buffers and modes are shared: after training, the model that was given is trained, and it
    saves and loads as before. Edge weights and features of the graph go to the convolutions that take
    them. For a model of another kind, see `lmc.GNN`.

    Raises:
        ArgumentError: one line that names the module which cannot work, and why.

    >>> import lmc
    >>> from torch_geometric.nn import GraphSAGE
    >>> graph = lmc.synthetic(nodes=200)
    >>> model = GraphSAGE(graph.num_features, 16, 2, graph.num_classes)
    >>> result = lmc.fit(graph, lmc.from_pyg(model), lmc.LMC(), parts=8, parts_per_batch=2, epochs=1)
    """
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    if isinstance(model, Model):
        raise ArgumentError("model: is an lmc model already; from_pyg takes one of PyG")
    if isinstance(model, type):
        raise ArgumentError(
            f"model: {model.__name__} is a class; from_pyg takes a model, {model.__name__}(...)"
        )
    kind = type(model).__name__
    if not isinstance(model, BasicGNN):
        names = "GCN, GraphSAGE, GIN, GAT, PNA, EdgeCNN"
        hint = compiled_hint(model) or "lmc.GNN(layers=[...]) takes the convolutions of any other"
        raise ArgumentError(f"model: {kind} is none of torch_geometric's {names}; {hint}")
    if type(model).forward is not BasicGNN.forward:
        raise ArgumentError(f"model: {kind} has a forward of its own; lmc.GNN(layers=[...]) takes its parts")
    between = [_between(model, norm) for norm in model.norms]
    if model.jk_mode is None:
        between[-1] = []
    layers = [nn.Sequential(conv, *rest) for conv, rest in zip(model.convs, between, strict=True)]
    width = model.in_channels[0] if isinstance(model.in_channels, tuple) else model.in_channels
    ends = {"head": getattr(model, "lin", None), "jump": getattr(model, "jk", None)}
    wrapped = GNN(layers, **ends, in_features=width if width > 0 else None)
    wrapped.follow(model)
    wrapped.recipe = recipe_of(model)
    return wrapped


def _between(model: Any, norm: nn.Module) -> list[nn.Module]:
    """What follows a convolution; the order of norm and activation is the model's."""
    act = [] if model.act is None else [as_module(model.act)]
    return [*act, norm, model.dropout] if model.act_first else [norm, *act, model.dropout]
