"""Exact predictions of every node, layer by layer, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.data.ids import some_nodes
from lmc.data.normalization import OF_ALL_EDGES, normalize
from lmc.data.prepared_graph import PreparedGraph
from lmc.data.subgraph import heard, subgraph
from lmc.device import HOST, chosen_device, copied, device_of, free_memory, on_host
from lmc.nn.divided import Division, EveryRow, divided
from lmc.nn.fitting import check_model, in_type_of
from lmc.nn.model import Layer, LinearLayer, Model
from lmc.nn.module_context import computing_in, evaluation_mode, on_device, without_autocast
from lmc.nn.row_matrices import RowMatrix, StoredRowMatrix
from lmc.nn.rows import Rows
from lmc.nn.weights import weight_type
from lmc.precision import Precision, check_precision, computed_type
from lmc.processes import ALONE, Processes
from lmc.scratch import ScratchMatrix

ROWS, ROWS_FROM_DISK = 1 << 14, 1 << 12
"""That are computed together; fewer where memory may be short."""
COLUMNS = 32
"""That are added up together where sums take the place of messages: with fewer it takes longer."""


@torch.inference_mode(False)  # what is made there cannot be trained with
def predict(
    graph: Graph,
    model: Model,
    rows_at_once: int | None = None,
    *,
    nodes: Any = None,
    precision: Precision = "full",
    device: str | torch.device | None = None,
    processes: Processes = ALONE,
    shards: Tensor | None = None,
) -> Tensor:
    """(nodes, out) predictions in evaluation mode, rows in the graph's own order, or in that of `nodes`.

    They are on the host, wherever they are computed.

    The graph needs no labels, and its features are taken in the type of the model's weights.

    Besides the features one matrix of (nodes, width) is in memory at a time, and `COLUMNS` columns of one
    more, in pieces that fit wherever a step has left room. A layer that reads messages beside their sums
    (GraphSAGE, a residual) or cannot add them up (attention) has two matrices; a model whose layers read its
    input (GCNII) or that of their convolution (APPNP) has one more, and one whose head jumps to every
    convolution has them all. `lmc.SIGN` keeps the powers of the graph, for as long as the graph lives.

    Of a graph that stays on disk (`Graph.scratch`) all these matrices are files, and so is the result; memory
    is that of `rows_at_once` rows and their messages.

    Args:
        graph: the graph; it may be another one than the model was trained on, if it has as many features.
        model: the model, which is left as it was.
        rows_at_once: how many nodes are computed together; None for 16,384, or 4,096 where the graph stays on
            disk. Predictions do not depend on it.
        nodes: (any,) the nodes to predict, by row, or as text by the ids that `graph.id` has, or a mask
            (nodes,); None for all. Of a few, only what reaches them is computed.
        precision: `"bf16"` for messages and dense products in bfloat16; the others are alike here.
        device: `"cpu"`, `"cuda"`, `"cuda:1"`, `"mps"` or `"auto"`, where they are computed; None for where
            the model is. Matrices that do not fit there stay on the host, and go there some rows at a time.
        processes: that all call this with the same graph and model: each computes some of the rows.
        shards: (nodes,) the shard of each: a process then computes the rows of its shards, and holds those
            and the rows that they hear of, if layers read nothing but sums of others and the graph is in
            memory.
            None for runs of rows, of which every process gets all.

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
    if rows_at_once is None:
        rows_at_once = ROWS if graph.scratch is None else ROWS_FROM_DISK
    rows_at_once = checks.whole_number("rows_at_once", rows_at_once, 1)
    if isinstance(graph, PreparedGraph):
        wanted = None if nodes is None else graph.places_of(some_nodes(graph, nodes))
        by_cluster = graph.by_cluster, model, rows_at_once
        rows = predict(*by_cluster, nodes=wanted, precision=precision, device=device)
        return graph.in_own_order(rows) if wanted is None else rows
    full = weight_type(model) or graph.x.dtype
    check_precision(precision, full)
    computed = computed_type(precision, full)
    with on_device(model, device_of(model) if device is None else chosen_device(device, full)):
        if nodes is None:
            return _predict_all(in_type_of(model, graph), model, rows_at_once, computed, processes, shards)
        wanted = some_nodes(graph, nodes)
        around = _reaching(graph, wanted, model)
        if around is None:
            return _predict_all(in_type_of(model, graph), model, rows_at_once, computed)[wanted]
        part = in_type_of(model, subgraph(graph, around))
        return _predict_all(part, model, rows_at_once, computed)[torch.searchsorted(around, wanted)]


def _reaching(graph: Graph, nodes: Tensor, model: Model) -> Tensor | None:
    """The nodes in whose subgraph predictions for `nodes` are exact; None where all nodes do no worse.

    A hop for each layer, and one more: the weights of messages depend on all that their source receives.
    """
    layers = [layer for layer in model.layers if isinstance(layer, LinearLayer)]
    if any(layer.aggregation in OF_ALL_EDGES for layer in layers):
        return None
    if graph.edge_weight is not None and bool((graph.edge_weight < 0).any()):
        return None  # the sums of rows that are cut off could be negative, which no normalisation takes
    if any(layer.both_ways for layer in model.layers) and not graph.is_undirected:
        return None  # what is heard is found along the edges
    return heard(graph, nodes, len(model.layers) + 1, most=graph.num_nodes // 2)


def _predict_all(
    graph: Graph,
    model: Model,
    rows_at_once: int,
    computed: torch.dtype,
    processes: Processes = ALONE,
    shards: Tensor | None = None,
) -> Tensor:
    """(nodes, out) predictions of every node, in the type of the features."""
    widths, here = model.widths(graph), device_of(model)
    with evaluating(model), torch.no_grad(), computing_in(computed, here):
        division = divided(graph, model, rows_at_once, shards, processes)
        inference = _Inference.on(division, model, widths)
        return on_host(division.of_all(inference.run())).to(graph.x.dtype)


def each_message(graph: Graph, model: Model, tell: Tell) -> None:
    """Tell what every node sends in every layer, in evaluation mode; memory is that of `predict`.

    Args:
        graph: the graph.
        model: the model, which is left as it was.
        tell: is called for each layer, from the first on.
    """
    with evaluating(model), torch.no_grad(), without_autocast(device_of(model)):
        _Inference.on(EveryRow(graph, ROWS), model, model.widths(graph), tell).through_layers()


Tell = Callable[[int, Callable[[slice], Tensor]], None]
"""Is told a layer, counted from 1, and what gives the messages of consecutive nodes, (part, width)."""


def _nobody(place: int, message: Callable[[slice], Tensor]) -> None:
    """Nobody is told."""


Onward = Callable[[Tensor, slice, Rows], Tensor]
"""From rows of a boundary, their place and their nodes to what is kept of them."""


@dataclass(frozen=True)
class _Before:
    """What a layer reads besides its messages, of any rows."""

    layer: Layer
    messages: list[Tensor]
    initial: Tensor
    here: torch.device

    def __getitem__(self, part: slice) -> Tensor:
        messages = [message[part] for message in self.messages]
        return self.layer.what_it_reads(messages, self.initial[part]).to(self.here)


@dataclass(frozen=True)
class _Inference:
    """A pass over the graph, some rows at a time; see `predict`.

    Attributes:
        division: which rows are computed here, and which are held.
        model: what.
        home: where matrices with a row for each node are.
        tell: who is told of messages.
    """

    division: Division
    model: Model
    home: torch.device
    tell: Tell = _nobody

    @staticmethod
    def on(division: Division, model: Model, widths: list[int], tell: Tell = _nobody) -> _Inference:
        """With its matrices where the model is, if they fit; those that are read again are counted, too.

        Those of a graph that stays on disk are on disk.
        """
        graph, here = division.graph, device_of(model)
        free, again = free_memory(here), len(model.read_again) + len(model.jumped_to) + model.reads_initial
        numbers = (3 + again) * max(
            graph.num_features, *widths
        ) * graph.num_nodes + 2 * graph.adjacency.num_entries
        fits = graph.scratch is None and (free is None or numbers * graph.x.itemsize <= free)
        return _Inference(division, model, here if fits else HOST, tell)

    @property
    def graph(self) -> Graph:
        """Of the rows that are held."""
        return self.division.graph

    @cached_property
    def here(self) -> torch.device:
        """Where rows are computed."""
        return device_of(self.model)

    def run(self) -> Tensor:
        """(nodes, out) predictions."""
        if (parts := self.model.precomputed(self.graph)) is not None:
            z = RowMatrix(parts)
            return self._by_rows(lambda part, rows: self._predicted([z[part].to(self.here)], rows)).whole
        return self.through_layers()

    def through_layers(self) -> Tensor:
        """(nodes, out) predictions, by messages."""
        model, nothing = self.model, self.graph.x[:, :0].to(self.home)
        sent: list[Tensor] = []  # into every layer so far; nothing where it is not read again

        def read(z: Tensor, part: slice, rows: Rows) -> Tensor:
            jumped = (sent[place - 1][part].to(self.here) for place in model.jumped_to)
            return self._predicted([*jumped, z], rows)

        message, initial = self._encoded()
        for place, layer in enumerate(model.layers, start=1):
            if layer.opens and not model.jumps:
                sent = [nothing] * len(sent)  # what the convolution before it has read
            before = _Before(layer, list(sent), initial, self.here)
            sent.append(message.whole if place in self._kept else nothing)
            self.tell(place, message.__getitem__)
            onward = read if place == len(model.layers) else _sending(model.layers[place])
            message = self._through(layer, message, before, onward, place + 1)
        return message.whole

    def _predicted(self, seen: list[Tensor], rows: Rows) -> Tensor:
        """(rows, out) what the head makes of it, in the type of the features."""
        return self.model.read(seen, rows).to(self.graph.x.dtype)

    @cached_property
    def _kept(self) -> set[int]:
        """The layers, counted from 1, whose messages are read again."""
        return self.model.read_again | set(self.model.jumped_to)

    def _encoded(self) -> tuple[RowMatrix, Tensor]:
        """(nodes, width) the first messages, and what every layer reads of the model's input."""
        model, first = self.model, self.model.layers[0]
        z, initial = self.graph.x, self.graph.x.new_empty(self.graph.num_nodes, 0).to(self.home)
        if not model.encoder.is_identity:
            z = self._by_rows(lambda part, rows: model.encoder(self.graph.x[part].to(self.here), rows)).whole
        if model.reads_initial:
            initial = self._by_rows(lambda part, _: model.initial(z[part].to(self.here))).whole
        if first.message.is_identity:
            return RowMatrix([copied(z, self.home)]), initial
        return self._by_rows(lambda part, rows: first.message(z[part].to(self.here), rows), 1), initial

    def _through(
        self, layer: Layer, message: RowMatrix, before: _Before, onward: Onward, following: int
    ) -> RowMatrix:
        """(nodes, width) what the boundary after a layer becomes; messages in blocks are lost."""
        if isinstance(layer, LinearLayer) and len(message.blocks) > 1:
            adjacency = copied(normalize(self.graph, layer.aggregation), self.home)
            message.replace_by_sums(adjacency, self.division.parts)

            def updated(part: slice, rows: Rows) -> Tensor:
                received = message[part].to(self.here)
                return onward(layer.update(received, received[:, :0], before[part]), part, rows)

            return self._by_rows(updated, following, room=message)

        def received(part: slice, rows: Rows) -> Tensor:
            z = layer.of_rows(self.graph, part, message.whole, before[part], rows)
            return onward(z, part, rows)

        return self._by_rows(received, following)

    def _by_rows(
        self,
        compute: Callable[[slice, Rows], Tensor],
        reader: int = 0,
        room: RowMatrix | None = None,
    ) -> RowMatrix:
        """(nodes, width) from consecutive nodes to their rows.

        Args:
            compute: gives the rows.
            reader: the layer, counted from 1, that they are sent through; if their sums are all that anything
                reads of them, they are in blocks of columns.
            room: what they may replace.
        """
        out, takes_sums, is_first = room, self._takes_sums(reader), True
        for part in self.division.parts:
            rows = compute(part, Rows(self.division.nodes(part), (0,), inside=False))
            rows = on_host(rows) if self.home == HOST else rows
            columns = COLUMNS if takes_sums else rows.shape[1]
            if out is None or (is_first and not out.fits(rows, columns)):
                out = self._room(rows, columns)
            out[part], is_first = rows, False
        assert out is not None  # a graph has a node or more
        self.division.complete(out)
        return out

    def _room(self, rows: Tensor, columns: int) -> RowMatrix:
        """For as wide rows of all nodes."""
        graph = self.graph
        if graph.scratch is None:
            return RowMatrix.like(rows, graph.num_nodes, columns)
        return StoredRowMatrix.of(ScratchMatrix(graph.scratch, (graph.num_nodes, columns), rows.dtype))

    def _takes_sums(self, reader: int) -> bool:
        """Whether a layer, counted from 1, has no use for the messages themselves; on disk none has."""
        if self.graph.scratch is not None:
            return False
        if not 1 <= reader <= len(self.model.layers) or reader in self._kept:
            return False
        layer = self.model.layers[reader - 1]
        return isinstance(layer, LinearLayer) and not layer.reads_own


def _sending(layer: Layer) -> Onward:
    def message(z: Tensor, part: slice, rows: Rows) -> Tensor:
        sent: Tensor = layer.message(z, rows)
        return sent

    return message


def evaluating(model: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode in this context; after it, every module is in its old mode."""
    return evaluation_mode(model, lambda module: True)
