"""Exact predictions of every node, layer by layer, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data.graph import Graph
from lmc.data.normalization import normalize
from lmc.nn.model import Layer, LinearLayer, Model, check_model
from lmc.nn.module_context import evaluation_mode
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows
from lmc.sparse import CSR

COLUMNS = 32
"""That are added up together where sums take the place of messages: with fewer it takes longer."""


def predict(graph: Graph, model: Model, rows_at_once: int = 1 << 14) -> Tensor:
    """(nodes, out) predictions in evaluation mode, rows in the graph's own order.

    Besides the features one matrix of (nodes, width) is in memory at a time, and two of (nodes, `COLUMNS`).
    A layer that reads messages beside their sums (GraphSAGE, a residual) or cannot add them up (attention, a
    maximum) has two, a model whose layers read its input (GCNII) has one more, and one whose head jumps to
    every layer has them all.

    Args:
        graph: the graph; it may be another one than the model was trained on, if it has as many features.
        model: the model, which is left as it was.
        rows_at_once: how many nodes are computed together.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> model = lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2)
    >>> torch.allclose(lmc.predict(graph, model), model(graph), atol=1e-6)
    True
    """
    check_model(model)
    model.widths(graph)
    rows_at_once = checks.whole_number("rows_at_once", rows_at_once, 1)
    with evaluating(model), torch.no_grad():
        return _Inference(graph, model, rows_at_once).run()


@dataclass(frozen=True)
class _Inference:
    """A pass over the graph, some rows at a time; see `predict`."""

    graph: Graph
    model: Model
    rows_at_once: int

    def run(self) -> Tensor:
        """(nodes, out) predictions."""
        model, seen = self.model, list[Tensor]()

        def read(z: Tensor, part: slice, rows: Rows) -> Tensor:
            return model.read([*(message[part] for message in seen), z], rows)

        message, initial = self._encoded()
        for place, layer in enumerate(model.layers, start=1):
            onward = read if place == len(model.layers) else _sending(model.layers[place])
            message = self._through(layer, message, initial, onward)
            seen += [message] if model.jumps else []
        return message

    def _encoded(self) -> tuple[Tensor, Tensor]:
        """(nodes, width) the first messages, and what every layer reads of the model's input."""
        model, z = self.model, self._each(self.model.encoder, self.graph.x)
        initial = z.new_empty(len(z), 0)
        if model.reads_initial:
            initial = self._by_rows(lambda part, _: model.initial(z[part]))
        return self._each(model.layers[0].message, z), initial

    def _through(self, layer: Layer, message: Tensor, initial: Tensor, onward: Onward) -> Tensor:
        """(nodes, width) what the boundary after a layer becomes; messages may be lost."""
        is_read_again = message is self.graph.x or self.model.jumps
        if isinstance(layer, LinearLayer) and not layer.reads_own and not is_read_again:
            _replace_by_sums(normalize(self.graph, layer.aggregation), message)

            def updated(part: slice, rows: Rows) -> Tensor:
                return onward(layer.update(message[part], message[part], initial[part]), part, rows)

            return self._by_rows(updated, room=message)

        def received(part: slice, rows: Rows) -> Tensor:
            return onward(layer.of_rows(self.graph, part, message, initial, rows), part, rows)

        return self._by_rows(received)

    def _each(self, function: NodeWise, z: Tensor) -> Tensor:
        return z if function.is_identity else self._by_rows(lambda part, rows: function(z[part], rows))

    def _by_rows(self, compute: Callable[[slice, Rows], Tensor], room: Tensor | None = None) -> Tensor:
        """(nodes, width) from consecutive nodes to their rows, which replace those of `room` if they fit."""
        out = room
        for start in range(0, self.graph.num_nodes, self.rows_at_once):
            nodes = torch.arange(start, min(start + self.rows_at_once, self.graph.num_nodes))
            part = slice(start, start + len(nodes))
            rows = compute(part, Rows(nodes, (0,), inside=False))
            if out is None or (start == 0 and (out.shape[1:], out.dtype) != (rows.shape[1:], rows.dtype)):
                out = rows.new_empty(self.graph.num_nodes, *rows.shape[1:])
            out[part] = rows
        assert out is not None  # a graph has a node or more
        return out


Onward = Callable[[Tensor, slice, Rows], Tensor]
"""From rows of a boundary, their place and their nodes to what is kept of them."""


def _sending(layer: Layer) -> Onward:
    def message(z: Tensor, part: slice, rows: Rows) -> Tensor:
        sent: Tensor = layer.message(z, rows)
        return sent

    return message


def _replace_by_sums(matrix: CSR, message: Tensor) -> None:
    """Put `matrix @ message` in the place of (nodes, width) messages, some columns at a time."""
    for first in range(0, message.shape[1], COLUMNS):
        some = message[:, first : first + COLUMNS]
        some.copy_(matrix @ some.contiguous())


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode in this context; after it, every module is in its old mode."""
    return evaluation_mode(model, lambda module: True)
