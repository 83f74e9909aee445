"""Whether each row that a module gives depends on its own messages alone: tried on ten nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lmc.data.batch import Edges
from lmc.errors import ArgumentError
from lmc.files import one_line
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.linear_convolutions import GINConvLayer
from lmc.nn.module_context import evaluation_mode
from lmc.nn.node_wise import Chain, NodeWiseModule
from lmc.nn.rows import Rows

if TYPE_CHECKING:
    from lmc.data.graph import Graph
    from lmc.nn.gnn import GNN
    from lmc.nn.node_wise import NodeWise

NODES, HALF = 10, 5
NO_FORM = "has no bipartite form, conv((x_source, x_target), edge_index)"


def _ends() -> Tensor:
    """(2, edges) in the order of the targets.

    Every node receives from both halves; those of the second half receive more.
    """
    received = [(node, shift) for node in range(NODES) for shift in ((1, 6) if node < HALF else (1, 3, 6, 8))]
    return torch.tensor([[(node + shift) % NODES, node] for node, shift in received]).T


ENDS = _ends()


class UndecidedError(Exception):
    """A module failed on made-up input, which says nothing about real input."""


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


def check_locality(model: GNN, width: int, graph: Graph | None = None) -> bool:
    """Raise ArgumentError for the first module that mixes nodes, or has no bipartite form.

    Args:
        model: what is tried, as in evaluation.
        width: of the features.
        graph: whose features are taken; None for random ones.

    Returns:
        True; False if a module may have failed only because the features were not real ones.
    """
    random = torch.Generator().manual_seed(0)
    example = next(model.parameters(), torch.empty(0))

    def draw(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=random).to(example)

    if graph is None:
        x, attr = draw(NODES, width), None
    else:
        x = graph.x[torch.arange(NODES) % graph.num_nodes].to(example)
        attr = graph.edge_attr
    try:
        with evaluation_mode(model, lambda module: True), torch.no_grad():
            _try(model, x, attr, draw, real=graph is not None)
    except UndecidedError:
        return False
    return True


def _try(model: GNN, x: Tensor, edge_attr: Tensor | None, draw: Any, real: bool) -> None:
    z = _node_wise(model.encoder, x, "encoder", real)
    initial, seen, place = model.initial(z), list[Tensor](), -1
    layer: Any
    for layer in model.layers:
        place += layer.opens  # of the convolution
        message = _node_wise(layer.message, z, f"layers[{place}], before the convolution", real)
        read = layer.what_it_reads(seen, initial)
        seen.append(message)
        title = f"layers[{place}] ({type(layer.conv).__name__})"
        if not isinstance(layer, ConvolutionLayer):
            z = _called(title, layer.update, message, message, read)
            continue
        columns = getattr(layer.conv, "edge_dim", None) if edge_attr is None else edge_attr.shape[1]
        known = isinstance(columns, int)
        attr = draw(ENDS.shape[1], columns) if known else None
        try:
            z = _bipartite(layer, message, Edges(ENDS, None, attr, _made_types(layer.conv)), title)
        except ArgumentError:
            if known or not layer.takes_attr:
                raise
            raise UndecidedError from None
    read_by_head = [*(seen[place - 1] for place in model.jumped_to), z]
    if not model.jumps:
        _node_wise(model.head, z, "head", real)
        return
    whole, half = (
        _called("jump", model.read, [r[:n] for r in read_by_head], _rows(n)) for n in (NODES, HALF)
    )
    _compare("jump", whole, half)


def _made_types(conv: Any) -> Tensor:
    """(edges,) of all the types that the convolution knows."""
    return torch.arange(ENDS.shape[1]) % getattr(conv, "num_relations", 1)


def _node_wise(function: NodeWise, z: Tensor, where: str, real: bool) -> Tensor:
    """The value for all rows; every module of a chain must give half of them what it gives to all."""
    if isinstance(function, Chain):
        for part in function.parts:
            z = _node_wise(part, z, where, real)  # type: ignore[arg-type]
        return z
    shown = function.module if isinstance(function, NodeWiseModule) else function
    title = f"{where}: {type(shown).__name__}"
    try:
        whole, half = (_called(title, function, z[:rows], _rows(rows)) for rows in (NODES, HALF))
    except ArgumentError:
        if where == "encoder" and not real:
            raise UndecidedError from None
        raise
    _compare(title, whole, half)
    return whole


def _compare(title: str, whole: Tensor, half: Tensor) -> None:
    if len(whole) != NODES:
        raise ArgumentError(f"{title} gives {len(whole)} rows for {NODES} nodes: it pools over the graph")
    if not torch.allclose(whole[:HALF], half, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ArgumentError(f"{title} mixes nodes: a row changes with the other rows")


def _bipartite(layer: ConvolutionLayer, message: Tensor, edges: Edges, title: str) -> Tensor:
    """The value for all nodes; the first half alone, as targets of all sources, must be the same."""
    given = (edges, message, message[:0], _rows(NODES))
    whole = _called(f"{title}: {NO_FORM}", layer.receive, *given)
    to_half = edges.where(edges.ends[1] < HALF)
    halves = (to_half, message[:HALF], message[HALF:], _rows(HALF))
    half = _called(f"{title}: {NO_FORM}", layer.receive, *halves)
    if len(whole) != NODES or len(half) != HALF:
        raise ArgumentError(f"{title}: gives {len(half)} rows for {HALF} targets; must be one each")
    if not torch.allclose(whole[:HALF], half, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ArgumentError(f"{title}: mixes nodes: a row changes with what others receive")
    return whole


def _called(title: str, function: Any, *given: Any) -> Tensor:
    try:
        out = function(*given)
    except Exception as error:  # modules of users may raise anything
        raise ArgumentError(f"{title} ({one_line(error)})") from None
    if not isinstance(out, Tensor):
        raise ArgumentError(f"{title}: gives a {type(out).__name__}; must be a tensor")
    return out


def _rows(count: int) -> Rows:
    return Rows(torch.arange(count), (0,), inside=False)
