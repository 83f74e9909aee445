"""Which layer a convolution of PyG has that cannot be called on a pair as it is.

A new one is a line in `_makers`, under the very class that it is for: a subclass may have another forward.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from lmc.errors import ArgumentError
from lmc.nn.cluster_gcn_conv import ClusterGCNConvLayer
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.dir_gnn import DirGNNLayer
from lmc.nn.hooks import is_changed, is_linear
from lmc.nn.linear_convolutions import GCN2ConvLayer, GCNConvLayer, SAGEConvLayer
from lmc.nn.model import Layer
from lmc.nn.node_wise import Identity, NodeWise
from lmc.nn.paired_convolutions import AGNNLayer, PNALayer, SuperGATLayer
from lmc.nn.pdn import PDNLayer
from lmc.nn.refusals import why_refused
from lmc.nn.weighed_convolutions import AddedUp, EGLayer, FALayer, GCNConvOfMessages

Maker = Callable[[Any, NodeWise], Layer]
LINEAR = ("add", "sum", "mean")


def layer_of_known(conv: Any, message: NodeWise, title: str) -> Layer | None:
    """The layer of a convolution; None where it is none of these.

    Args:
        conv: the convolution.
        message: what comes before it, node by node.
        title: what it is called in errors.
    """
    make = _makers().get(type(conv))
    if make is None:
        return None
    try:
        return make(conv, message)
    except ArgumentError as error:
        raise ArgumentError(f"{title}: {error}") from None


@cache
def _makers() -> dict[type, Maker]:
    from torch_geometric import nn

    return {
        nn.AGNNConv: AGNNLayer,
        nn.ClusterGCNConv: _cluster_gcn,
        nn.DirGNNConv: _dir_gnn,
        nn.EGConv: EGLayer,
        nn.FAConv: FALayer,
        nn.GCN2Conv: _gcn2,
        nn.GCNConv: _gcn,
        nn.PDNConv: PDNLayer,
        nn.PNAConv: PNALayer,
        nn.SuperGATConv: SuperGATLayer,
    }


def _gcn(conv: Any, message: NodeWise) -> Layer:
    return (GCNConvLayer if GCNConvLayer.fits(conv) else GCNConvOfMessages)(conv, message)


def _gcn2(conv: Any, message: NodeWise) -> Layer:
    _check_linear(conv)
    return GCN2ConvLayer(conv, message)


def _cluster_gcn(conv: Any, message: NodeWise) -> Layer:
    _check_linear(conv)
    if not is_linear(conv.lin_out):
        raise ArgumentError(f"its lin_out is a {type(conv.lin_out).__name__}; must be a Linear without hooks")
    return ClusterGCNConvLayer(conv, message)


def _check_linear(conv: Any) -> None:
    if conv.aggr not in LINEAR:
        raise ArgumentError(f"aggr={conv.aggr!r}; must be one of {', '.join(LINEAR)}")


def _dir_gnn(conv: Any, message: NodeWise) -> Layer:
    return DirGNNLayer(conv, message, _one_way(conv.conv_in), _one_way(conv.conv_out))


def _one_way(conv: Any) -> ConvolutionLayer:
    """The layer of one of the two convolutions of a DirGNNConv, message by message."""
    title = type(conv).__name__
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        raise ArgumentError(f"{title}: flow={conv.flow!r}; must be 'source_to_target'")
    if hasattr(conv, "num_relations"):
        raise ArgumentError(f"{title}: needs edge_type, which DirGNNConv does not give to it")
    adds_up = SAGEConvLayer.fits(conv) and not conv.normalize
    layer = SAGEConvLayer(conv, Identity()) if adds_up else layer_of_known(conv, Identity(), title)
    if layer is not None and layer.reads_initial:
        raise ArgumentError(f"{title}: reads x_0, which DirGNNConv does not give to it")
    if layer is not None and is_changed(conv):
        raise ArgumentError(f"{title}: has hooks or methods of its own, which would not run")
    if isinstance(layer, SAGEConvLayer | GCNConvLayer | ClusterGCNConvLayer):
        return AddedUp(layer)
    if layer is None:
        refused = why_refused(conv)
        if refused is not None:
            raise ArgumentError(f"{title}: {refused}")
        return ConvolutionLayer(conv, Identity())
    assert isinstance(layer, ConvolutionLayer)
    return layer
