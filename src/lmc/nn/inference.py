"""Exact predictions of every node, layer by layer, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data import rules
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.data.subgraph import heard, subgraph
from lmc.errors import GraphError
from lmc.nn.model import Model, check_model, in_type_of
from lmc.nn.module_context import evaluation_mode, without_autocast
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows


def predict(graph: Graph, model: Model, rows_at_once: int = 1 << 15, *, nodes: Any = None) -> Tensor:
    """(nodes, out) predictions in evaluation mode, rows in the graph's own order, or in that of `nodes`.

    The graph needs no labels, and its features are taken in the type of the model's weights. At most two
    matrices of (nodes, width) are in memory at a time, besides the features; a model whose layers read its
    input (GCNII) has a third, and one whose head jumps to every layer has them all.

    Args:
        graph: the graph; it may be another one than the model was trained on, if it has as many features.
        model: the model, which is left as it was.
        rows_at_once: how many nodes are computed together.
        nodes: (any,) the nodes to predict; None for all. Of a few, only what reaches them is computed.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> model = lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2)
    >>> torch.allclose(lmc.predict(graph, model), model(graph), atol=1e-6)
    True
    >>> lmc.predict(graph, model, nodes=[7, 3]).shape
    torch.Size([2, 10])
    """
    check_graph(graph)
    check_model(model)
    rows_at_once = checks.whole_number("rows_at_once", rows_at_once, 1)
    if nodes is None:
        return _predict_all(in_type_of(model, graph), model, rows_at_once)
    wanted = rules.tensor("nodes", list(nodes) if isinstance(nodes, range) else nodes)
    if wanted.ndim != 1 or wanted.numel() == 0:
        raise GraphError(f"nodes has shape {tuple(wanted.shape)}: must be (nodes,), one or more")
    wanted = rules.node_ids("nodes", wanted, graph.num_nodes).long()
    around = _reaching(graph, wanted, model)
    if around is None:
        return _predict_all(in_type_of(model, graph), model, rows_at_once)[wanted]
    part = in_type_of(model, subgraph(graph, around))
    return _predict_all(part, model, rows_at_once)[torch.searchsorted(around, wanted)]


def _reaching(graph: Graph, nodes: Tensor, model: Model) -> Tensor | None:
    """The nodes in whose subgraph predictions for `nodes` are exact; None where all nodes do no worse.

    A hop for each layer, and one more: the weights of messages depend on all that their source receives.
    """
    if graph.edge_weight is not None and bool((graph.edge_weight < 0).any()):
        return None  # the sums of rows that are cut off could be negative, which no normalisation takes
    return heard(graph, nodes, len(model.layers) + 1, most=graph.num_nodes // 2)


def _predict_all(graph: Graph, model: Model, rows_at_once: int) -> Tensor:
    """(nodes, out) predictions of every node."""
    model.widths(graph)
    nodes = torch.arange(graph.num_nodes)

    def by_rows(compute: Callable[[slice], Tensor]) -> Tensor:
        parts = [slice(i, i + rows_at_once) for i in range(0, graph.num_nodes, rows_at_once)]
        first = compute(parts[0])
        out = first.new_empty(graph.num_nodes, first.shape[1])
        out[parts[0]] = first
        for part in parts[1:]:
            out[part] = compute(part)
        return out

    def each(function: NodeWise, z: Tensor) -> Tensor:
        if function.is_identity:
            return z
        return by_rows(lambda part: function(z[part], Rows(nodes[part], (0,), inside=False)))

    with evaluating(model), torch.no_grad(), without_autocast():
        z = each(model.encoder, graph.x)
        nothing = z.new_empty(graph.num_nodes, 0)
        initial = by_rows(lambda part: model.initial(z[part])) if model.reads_initial else nothing
        seen = []
        for layer in model.layers:
            message = each(layer.message, z)
            z = nothing  # frees its memory before the next is made
            if model.jumps:
                seen.append(message)

            def received(part: slice) -> Tensor:
                rows = Rows(nodes[part], (0,), inside=False)
                return layer.of_rows(graph, part, message, initial, rows)  # noqa: B023

            z = by_rows(received)
        read = [*seen[1:], z]
        if model.head.is_identity:
            return z
        return by_rows(
            lambda part: model.read([s[part] for s in read], Rows(nodes[part], (0,), inside=False))
        )


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode in this context; after it, every module is in its old mode."""
    return evaluation_mode(model, lambda module: True)
