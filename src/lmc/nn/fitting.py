"""Whether a model is one for a graph."""

from __future__ import annotations

import warnings

import torch

from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.model import Layer, LayerWidths, LinearLayer, Model
from lmc.nn.weights import weight_type


def check_model(model: object) -> None:
    """Raise ArgumentError unless it is a model of ours."""
    if not isinstance(model, Model):
        hint = (
            "such as lmc.GCN; lmc.from_pyg(model) wraps PyG's own, lmc.GNN(layers=[...]) takes convolutions"
        )
        raise ArgumentError(
            f"model: {type(model).__name__} is not an lmc model, {compiled_hint(model) or hint}"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ArgumentError(f"model: parameter {name!r} is on the device 'meta', without a value")


def compiled_hint(model: object) -> str:
    """What to give in place of a module that `torch.compile` has wrapped; nothing for any other."""
    inner = getattr(model, "_orig_mod", None)
    return "" if inner is None else f"torch.compile has wrapped {type(inner).__name__}: give it uncompiled"


def in_type_of(model: Model, graph: Graph) -> Graph:
    """The graph with features of the type of the model's weights; itself where they agree.

    >>> import lmc
    >>> double = lmc.Graph([[0], [1]], torch.ones(2, 3).double())
    >>> in_type_of(lmc.GCN(3, 4, 2), double).x.dtype
    torch.float32
    """
    own = weight_type(model)
    return graph.to(own) if own in (torch.float32, torch.float64) else graph


def warn_of_unread_edges(model: Model, graph: Graph) -> None:
    """Say so where edges have weights or features, and no layer reads them: each message counts as one."""
    if graph.edge_weight is not None and not any(map(_reads_weights, model.layers)):
        _warn_of_unread("weights", "")
    if graph.edge_attr is not None and not any(map(_reads_features, model.layers)):
        _warn_of_unread("features", "; edge_weight= of the graph is for weights")


def _warn_of_unread(what: str, hint: str) -> None:
    text = f"edge {what} of the graph are not read: no layer of the model takes any{hint}"
    warnings.warn(text, stacklevel=5)  # of the line that calls bind, which torch wraps


def _reads_weights(layer: Layer) -> bool:
    if isinstance(layer, ConvolutionLayer):
        return layer.takes_weight
    return not (isinstance(layer, LinearLayer) and "plain" in str(layer.aggregation))


def _reads_features(layer: Layer) -> bool:
    return isinstance(layer, ConvolutionLayer) and layer.takes_attr


def layer_widths(model: Model, graph: Graph) -> list[LayerWidths]:
    """The widths of every layer's values; ArgumentError where the model is not one for this graph."""
    check_model(model)
    _check_parameters(model)
    own = weight_type(model)
    if own in (torch.float32, torch.float64) and own != graph.x.dtype:
        rule = f"its weights are of {own}; graph.to({own}) makes them agree"
        features = f"{graph.num_features} features of {graph.x.dtype}"
        raise ArgumentError(f"model: does not take the graph's {features} ({rule})")
    widths, out = model.all_widths(graph)
    if out < graph.num_classes or (out > graph.num_classes and graph.task != "multiclass"):
        raise ArgumentError(f"model: predicts {out} columns; the graph's labels need {graph.num_classes}")
    if out > graph.num_classes:
        rule = f"where there are {out}, num_classes={out} of the graph says so"
        text = f"model: predicts {out} classes, and the graph has {graph.num_classes}; {rule}"
        warnings.warn(text, stacklevel=1)  # of this line, so that a training says it once
    return widths


def _check_parameters(model: Model) -> None:
    if any(parameter.is_inference() for parameter in model.parameters()):
        rule = "nothing made there can be trained; make it outside"
        raise ArgumentError(f"model: was made in torch.inference_mode(): {rule}")
    known = {p for part in (model.encoder, model.layers, model.head) for p in part.parameters()}
    for name, parameter in model.named_parameters():
        if parameter not in known:
            raise ArgumentError(f"model: parameter {name!r} is in neither encoder, layers nor head")
