"""A trial on ten nodes: whether the modules of a model can work on batches at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmc.batch import Edges
from lmc.errors import ArgumentError
from lmc.files import one_line
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.linear_convolutions import GINConvLayer
from lmc.nn.modes import paused
from lmc.nn.parts import Chain, Modules
from lmc.nn.rows import Rows

if TYPE_CHECKING:
    from lmc.nn.gnn import GNN
    from lmc.nn.model import NodeWise

NODES, HALF = 10, 5
ENDS = torch.triu(torch.ones(NODES, NODES), diagonal=1).T.nonzero().flip(1).T
"""(2, edges): each node hears all before it, so that those of the second half have more to hear."""
NO_FORM = "has no bipartite form, conv((x_source, x_target), edge_index)"


def input_width(model: GNN) -> int | None:
    """How many features the model takes, where its first module says so."""
    layer: Any = model.layers[0]
    first = [*model.encoder.modules(), *layer.message.modules(), layer.conv]
    if isinstance(layer, GINConvLayer):  # which leaves the width to its network
        first += layer.conv.nn.modules()
    for module in first:
        for name in ("in_features", "in_channels", "num_features"):
            width = getattr(module, name, None)
            width = width[0] if isinstance(width, tuple) else width
            if isinstance(width, int) and width > 0:
                return width
    return None


def try_on_ten_nodes(model: GNN, width: int, edge_attr: Tensor | None = None) -> None:
    """Raise ArgumentError for the first module that mixes nodes, or has no bipartite form.

    Args:
        model: what is tried, as in evaluation.
        width: of the features.
        edge_attr: (any, columns) edge features of the kind that convolutions will get, if known.
    """
    example = next(model.parameters(), torch.empty(0))
    random = torch.Generator().manual_seed(0)

    def draw(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=random).to(example)

    with paused(model, lambda module: True), torch.no_grad():
        z = _node_wise(model.encoder, draw(NODES, width), "encoder")
        initial, seen = model.initial(z), []
        layer: Any
        for place, layer in enumerate(model.layers):
            message = _node_wise(layer.message, z, f"layers[{place}], before the convolution")
            seen.append(message)
            columns = _edge_columns(layer, edge_attr)
            attr = None if columns is None else draw(ENDS.shape[1], columns)
            edges = Edges(ENDS, None, attr)
            if isinstance(layer, ConvolutionLayer):
                z = _bipartite(layer, message, edges, initial, place)
            else:
                title = f"layers[{place}] ({type(layer.conv).__name__})"
                z = _called(title, layer.update, message, message, initial)
        _node_wise(model.head, model.seen(seen, z), "head")


def _edge_columns(layer: Any, edge_attr: Tensor | None) -> int | None:
    if edge_attr is not None:
        return edge_attr.shape[1]
    known = getattr(layer.conv, "edge_dim", None)
    return known if isinstance(known, int) else None


def _node_wise(function: NodeWise, z: Tensor, where: str) -> Tensor:
    """The value for all rows; every module of a chain must give half of them what it gives to all."""
    if isinstance(function, Chain):
        for part in function.parts:
            z = _node_wise(part, z, where)  # type: ignore[arg-type]
        return z
    shown = function.chain[0] if isinstance(function, Modules) else function
    title = f"{where}: {type(shown).__name__}"
    whole, half = (_called(title, function, z[:rows], _rows(rows)) for rows in (NODES, HALF))
    if len(whole) != NODES:
        raise ArgumentError(f"{title} gives {len(whole)} rows for {NODES} nodes: it pools over the graph")
    if not torch.allclose(whole[:HALF], half, rtol=1e-3, atol=1e-5):
        raise ArgumentError(f"{title} mixes nodes: a row changes with the other rows")
    return whole


def _bipartite(layer: ConvolutionLayer, message: Tensor, edges: Edges, initial: Tensor, place: int) -> Tensor:
    """The value for all nodes; the first half alone, as targets of all sources, must be the same."""
    title = f"layers[{place}] ({type(layer.conv).__name__})"
    given = (edges, message, message[:0], initial, _rows(NODES))
    whole = _called(f"{title}: {NO_FORM}", layer.receive, *given)
    to_half = edges.where(edges.ends[1] < HALF)
    halves = (to_half, message[:HALF], message[HALF:], initial[:HALF], _rows(HALF))
    half = _called(f"{title}: {NO_FORM}", layer.receive, *halves)
    if len(whole) != NODES or len(half) != HALF:
        raise ArgumentError(f"{title}: gives {len(half)} rows for {HALF} targets; must be one each")
    if not torch.allclose(whole[:HALF], half, rtol=1e-3, atol=1e-5):
        raise ArgumentError(f"{title}: mixes nodes: a row changes with nodes that send it nothing")
    return whole


def _called(title: str, function: Any, *given: Any) -> Tensor:
    try:
        out = function(*given)
    except ArgumentError:
        raise
    except Exception as error:  # whatever a module of anybody's making raises
        raise ArgumentError(f"{title} ({one_line(error)})") from None
    if not isinstance(out, Tensor):
        raise ArgumentError(f"{title}: gives a {type(out).__name__}; must be a tensor")
    return out


def _rows(count: int) -> Rows:
    return Rows(torch.arange(count), (0,), inside=False)
