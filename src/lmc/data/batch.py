"""Batch: a node set with its halo, and the rows of the normalised adjacency that it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from lmc import checks, kernels
from lmc.data import rules
from lmc.data.ids import numbered
from lmc.data.normalization import Norm, messages, messages_back, normalized, propagated_to
from lmc.data.typed_adjacency import TYPED, typed_adjacency
from lmc.data.weighed_rows import Messages
from lmc.device import Copies
from lmc.errors import ArgumentError
from lmc.sparse import CSR

if TYPE_CHECKING:
    from lmc.data.graph import Graph


@dataclass(frozen=True)
class Edges:
    """Messages one by one, for convolutions that look at each.

    Attributes:
        ends: (2, edges) int64, sources above targets, in the order of the targets.
        weight: (edges,) or None.
        attr: (edges, columns) or None.
        type: (edges,) int64 or None.
    """

    ends: Tensor
    weight: Tensor | None
    attr: Tensor | None
    type: Tensor | None = None

    def where(self, which: Tensor) -> Edges:
        """Those where `which` (edges,) is True, or of these numbers."""
        weight, attr, kind = (
            None if every is None else every[which] for every in (self.weight, self.attr, self.type)
        )
        return replace(self, ends=self.ends[:, which], weight=weight, attr=attr, type=kind)

    def sent_from(self, first: int) -> Edges:
        """Those whose source has this number or a larger one."""
        return self.where(self.ends[0] >= first)

    def within(self, count: int, targets: Tensor) -> Edges:
        """Those from one of the first `count` rows to a row where `targets` (rows,) is True."""
        source, target = self.ends
        return self.where((source < count) & targets[target])

    def after_one(self) -> Edges:
        """With one more row before all others, which sends itself two messages of weight and features one."""

        def after(value: int, kept: Tensor | None) -> Tensor | None:
            return None if kept is None else torch.cat([kept.new_full((2, *kept.shape[1:]), value), kept])

        ends = torch.cat([self.ends.new_zeros(2, 2), self.ends + 1], 1)
        return Edges(ends, after(1, self.weight), after(1, self.attr), after(0, self.type))


LEAST_TELLING, TELLING = 512, 16
"""Batch rows in the sample of those that tell what is lost outside, before those without neighbours there are
left out: one of 16, and more where a batch has few."""


Part = Literal["nodes", "halo", "members"]
"""Which of its local rows: those of the batch, those outside, or both."""
ListEdges = Callable[[Any], "Edges"]
"""From a batch to the messages that a convolution wants of it."""


class Telling(NamedTuple):
    """Some batch rows, each with neighbours outside.

    Attributes:
        rows: (rows,) int64, their local numbers.
        share: (rows,) of their neighbours, those inside.
    """

    rows: Tensor
    share: Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """The nodes of a step, their 1-hop neighbours outside, and the messages between them.

    Local rows are `nodes` first, then `halo`; every array below that speaks of both has this order.
    Memory is proportional to the batch and its messages, never to the graph.

    Attributes:
        graph: where it comes from.
        nodes: (batch,) int64, the graph's own ids, in the order they were given in.
        halo: (halo,) int64, the neighbours of `nodes` outside of them, in the order of first appearance.
        scale: what an estimate over `nodes` is multiplied by to stand for all nodes.
        weights: (batch,) how much each of `nodes` counts in the estimate, besides `scale`; None where all
            count the same.
        shard: which its nodes are of, where the graph is cut into shards.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], [True, True, False])
    >>> batch = path.batch([0, 1], scale=1.5)
    >>> batch
    Batch(2 nodes, 1 halo, scale 1.5)
    >>> batch.block("sum").to_dense().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    graph: Graph
    nodes: Tensor
    halo: Tensor
    scale: float
    weights: Tensor | None = None
    shard: int | None = None
    _built: dict[tuple[Messages, str], CSR] = field(default_factory=dict)
    _elsewhere: dict[Graph, Batch] = field(default_factory=dict)
    _copies: dict[torch.device, Copies] = field(default_factory=dict)

    @staticmethod
    def of(graph: Graph, nodes: Any, scale: Any = 1.0, weights: Any = None) -> Batch:
        """The batch of any node set; see `Graph.batch`."""
        nodes = rules.node_set(numbered(graph, nodes), graph.num_nodes, "batch")
        if not (isinstance(scale, (int, float)) and 0 < scale < math.inf):
            raise ArgumentError(f"scale={scale!r}: must be a positive number")
        if weights is not None:
            weights = rules.node_weights(weights, nodes.numel()).to(graph.x.dtype)
        return Batch.of_known(graph, nodes, float(scale), weights)

    @staticmethod
    def of_known(
        graph: Graph, nodes: Tensor, scale: float, weights: Tensor | None = None, shard: int | None = None
    ) -> Batch:
        """`of`, for (batch,) int64 nodes that are known to be a set of the graph's nodes."""
        neighbours = graph.neighbours
        members = kernels.kernels_for().members(neighbours.indptr, neighbours.indices, nodes)
        return Batch(graph, nodes, members[len(nodes) :], scale, weights, shard)

    @property
    def num_nodes(self) -> int:
        """How many nodes are in the batch."""
        return self.nodes.numel()

    @property
    def num_halo(self) -> int:
        """How many neighbours are outside."""
        return self.halo.numel()

    @cached_property
    def members(self) -> Tensor:
        """(batch + halo,) the graph's id of every local row."""
        return torch.cat([self.nodes, self.halo])

    @property
    def host(self) -> Batch:
        """The batch on the host: this one, unless it is `placed` on a device."""
        return self

    def ids(self, part: Part) -> Tensor:
        """(rows,) the graph's ids of some local rows, where tensors are that are indexed by them."""
        found: Tensor = getattr(self, part)
        return found

    def rows_of(self, source: Tensor, part: Part) -> Tensor:
        """(rows, width) of (graph's nodes, width), those of some local rows."""
        return source.index_select(0, self.ids(part))

    # -- messages: each block is built when first asked for, then kept ----------------------------

    def block(self, norm: Norm = "gcn") -> CSR:
        """(batch, batch + halo): what the batch receives; whole rows of `lmc.normalize(graph, norm)`.

        As it, stacked where there is a row for each node and type of edges; so are the blocks below.
        """
        return self._rows_of("nodes", messages(self.graph, norm))

    def halo_block(self, norm: Norm = "gcn") -> CSR:
        """(halo, batch + halo): what the halo receives from within reach; the rest is cut off."""
        return self._rows_of("halo", messages(self.graph, norm))

    def transposed_block(self, norm: Norm = "gcn") -> CSR:
        """`block` of the transposed adjacency, for the backward pass; the same object if symmetric."""
        return self._rows_of("nodes", messages_back(self.graph, norm))

    def transposed_halo_block(self, norm: Norm = "gcn") -> CSR:
        """`halo_block` of the transposed adjacency; the same object if symmetric."""
        return self._rows_of("halo", messages_back(self.graph, norm))

    def renormalized(self, norm: Norm = "gcn") -> CSR:
        """(batch, batch): Cluster-GCN's adjacency, normalised as if there were nothing outside."""
        key = (self.graph.adjacency, f"renormalized {norm}")
        if key not in self._built:
            self._built[key] = self._renormalized(norm)
        return self._built[key]

    def _renormalized(self, norm: Norm) -> CSR:
        graph, typed = self.graph, norm in TYPED
        received = self._localized(graph.numbered_edges if typed else graph.adjacency, self._inside)
        inside = received.keep(received.indices < self.num_nodes).with_columns(self.num_nodes).ordered()
        if not typed:
            return normalized(inside, norm, graph.x.dtype)
        types = graph.num_edge_types
        assert graph.edge_type is not None  # which the line above refuses
        return typed_adjacency(inside, graph.edge_type[inside.values], types, str(norm), graph.x.dtype)

    def received_features(self, norm: Norm = "gcn") -> Tensor:
        """(batch, features) what the batch receives where messages are the features themselves."""
        return self.rows_of(propagated_to(self.graph, norm, self.nodes), "nodes")

    def features_received_by_halo(self, norm: Norm = "gcn") -> Tensor:
        """(halo, features) the same of the halo, from all its neighbours."""
        return self.rows_of(propagated_to(self.graph, norm, self.halo), "halo")

    @cached_property
    def edges(self) -> Edges:
        """What the batch receives, message by message; sources are batch rows, then halo rows."""
        return self._edges_to(self._inside)

    @cached_property
    def halo_edges(self) -> Edges:
        """What the halo receives from within reach; sources are halo rows, then batch rows.

        A target thus has the same number as the source that it is, as in `edges`.
        """
        return self._halo_first(self._edges_to(self._outside))

    def listed(self, by: ListEdges) -> Edges:
        """The messages that a convolution wants of it."""
        return by(self)

    def weighed_edges(self, norm: Norm) -> Edges:
        """`edges` with the weights of `block(norm)`, and with the self-loops that it adds."""
        return message_per_entry(self.block(norm))

    def weighed_halo_edges(self, norm: Norm) -> Edges:
        """`halo_edges` with the weights of `halo_block(norm)`, and with the self-loops that it adds."""
        return self._halo_first(message_per_entry(self.halo_block(norm)))

    def _halo_first(self, edges: Edges) -> Edges:
        """The same messages, halo rows before batch rows among the sources."""
        source, target = edges.ends
        inside = source < self.num_nodes
        source = torch.where(inside, source + self.num_halo, source - self.num_nodes)
        return replace(edges, ends=torch.stack([source, target]))

    def _edges_to(self, places: Tensor) -> Edges:
        graph, dtype = self.graph, self.graph.x.dtype
        if graph.edge_attr is None and graph.edge_type is None:
            block = self._localized(graph.adjacency, places)
            weight, attr, kind = block.values, None, None
        else:
            block = self._localized(graph.numbered_edges, places)
            known = (graph.edge_weight, graph.edge_attr, graph.edge_type)
            weight, attr, kind = (None if array is None else array[block.values] for array in known)
        index = torch.stack([block.indices, block.row_ids()]).long()
        weight, attr = (None if array is None else array.to(dtype) for array in (weight, attr))
        return Edges(index, weight, attr, None if kind is None else kind.long())

    def arriving(self, nodes: Tensor) -> CSR:
        """(nodes, graph's nodes) the numbers of all edges to some nodes, also from beyond the halo."""
        return self.graph.numbered_edges.take(nodes)

    def on(self, graph: Graph) -> Batch:
        """The same rows on a graph with the same nodes and neighbours, but other edges between them; kept."""
        if graph not in self._elsewhere:
            self._elsewhere[graph] = type(self)(graph, self.nodes, self.halo, *self._counted)
        return self._elsewhere[graph]

    @property
    def _counted(self) -> tuple[float, Tensor | None, int | None]:
        """How it counts, and where: what batches have that are made of it."""
        return self.scale, self.weights, self.shard

    @cached_property
    def induced(self) -> InducedBatch:
        """The batch as if there were nothing outside: no halo, and `renormalized` as its block."""
        return InducedBatch(self.graph, self.nodes, self.halo[:0], *self._counted)

    @cached_property
    def alone(self) -> Batch:
        """The batch without its halo, whose messages still have their weights of the whole graph."""
        return Batch(self.graph, self.nodes, self.halo[:0], *self._counted)

    def _rows_of(self, which: Literal["nodes", "halo"], matrix: Messages) -> CSR:
        if (matrix, which) not in self._built:
            places = self._inside if which == "nodes" else self._outside
            self._built[matrix, which] = self._localized(matrix, places)
        return self._built[matrix, which]

    def _localized(self, matrix: Messages, places: Tensor) -> CSR:
        """These local rows, with the entries whose column is a local row, under its local number."""
        return matrix.localized(places, self.members)

    @property
    def _inside(self) -> Tensor:
        """(batch,) the local numbers of batch rows."""
        return torch.arange(self.num_nodes)

    @property
    def _outside(self) -> Tensor:
        """(halo,) the local numbers of halo rows."""
        return torch.arange(self.num_nodes, self.num_nodes + self.num_halo)

    # -- what is known of its nodes --------------------------------------------------------------

    @cached_property
    def y(self) -> Tensor:
        """(batch + halo, ...) labels."""
        return self.graph.y[self.members]

    @cached_property
    def train_mask(self) -> Tensor:
        """(batch + halo,) bool: which labels are learned from."""
        return self.graph.train_mask[self.members]

    @cached_property
    def global_degree(self) -> Tensor:
        """(halo,) how many neighbours each halo node has in the graph: `Graph.degrees`."""
        return self.graph.degrees[self.halo]

    @cached_property
    def local_degree(self) -> Tensor:
        """(halo,) how many of these are in the batch or the halo."""
        return self._localized(self.graph.neighbours, self._outside).row_counts()

    @cached_property
    def local_share(self) -> Tensor:
        """(halo,) x: the share of a halo node's neighbours that are in the batch or the halo."""
        return self.local_degree.to(self.graph.x.dtype) / self.global_degree

    @cached_property
    def telling(self) -> Telling:
        """A sample of the batch rows with neighbours outside: their sums are known with and without those."""
        stride = min(TELLING, max(1, self.num_nodes // LEAST_TELLING))
        rows = torch.arange(0, self.num_nodes, stride)
        neighbours = self._localized(self.graph.neighbours, rows)
        inside = neighbours.keep(neighbours.indices < self.num_nodes).row_counts()
        everyone = self.graph.degrees[self.nodes[rows]]
        some_outside = inside < everyone
        share = inside[some_outside].to(self.graph.x.dtype) / everyone[some_outside]
        return Telling(rows[some_outside], share)

    def telling_block(self, norm: Norm = "gcn") -> CSR:
        """(telling rows, batch + halo): what they receive from the batch alone."""
        return self._inside_of(messages(self.graph, norm))

    def transposed_telling_block(self, norm: Norm = "gcn") -> CSR:
        """`telling_block` of the transposed adjacency; the same object if symmetric."""
        return self._inside_of(messages_back(self.graph, norm))

    def _inside_of(self, matrix: Messages) -> CSR:
        if (matrix, "telling") not in self._built:
            some = self._localized(matrix, self.telling.rows)
            self._built[matrix, "telling"] = some.keep(some.indices < self.num_nodes)
        return self._built[matrix, "telling"]

    def __repr__(self) -> str:
        return (
            f"Batch({checks.counted(self.num_nodes, 'node')}, {self.num_halo:,} halo, scale {self.scale:g})"
        )


def message_per_entry(block: CSR) -> Edges:
    """A message for each entry, with its value as its weight."""
    return Edges(torch.stack([block.indices, block.row_ids()]).long(), block.values, None)


class InducedBatch(Batch):
    """The subgraph that a batch induces: no halo, normalised within."""

    def block(self, norm: Norm = "gcn") -> CSR:
        """(batch, batch): `renormalized`."""
        return self.renormalized(norm)

    def transposed_block(self, norm: Norm = "gcn") -> CSR:
        """(batch, batch): its transpose, the same object if symmetric."""
        forward = self.renormalized(norm)
        if (forward, "transposed") not in self._built:
            self._built[forward, "transposed"] = forward.transpose()
        return self._built[forward, "transposed"]

    def arriving(self, nodes: Tensor) -> CSR:
        """(nodes, graph's nodes) the numbers of the edges from within the batch."""
        every = super().arriving(nodes)
        return every.keep(torch.isin(every.indices, self.nodes))

    def received_features(self, norm: Norm = "gcn") -> Tensor:
        """(batch, features) from within the batch alone."""
        x = self.rows_of(self.graph.x, "nodes")
        return self.block(norm).times(x, x[:0])
