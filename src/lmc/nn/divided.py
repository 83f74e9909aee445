"""Which rows a process computes and holds while all nodes are predicted, and how it gets those of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lmc.batching.shard_sampler import shards_of, sorted_union
from lmc.data.graph import Graph
from lmc.data.normalization import OF_SUMS, Norm, keep_normalized, messages, normalize
from lmc.data.set_once import with_arrays
from lmc.data.stored import put_rows, stored, taken
from lmc.data.weighed_rows import Messages
from lmc.device import on_host
from lmc.nn.model import LinearLayer, Model
from lmc.nn.row_matrices import RowMatrix
from lmc.processes import ALONE, Processes
from lmc.scratch import ScratchMatrix
from lmc.sparse import CSR

ROWS = 1 << 18
"""Nodes whose edges are looked at together."""


@dataclass(frozen=True)
class EveryRow:
    """Rows of all nodes, in the graph's order: a process computes a run of them, and is told all others.

    Attributes:
        graph: the graph.
        rows_at_once: how many are computed together.
        processes: that share the work.
    """

    graph: Graph
    rows_at_once: int
    processes: Processes = ALONE

    @cached_property
    def parts(self) -> list[slice]:
        """The consecutive rows that this process computes together, some at a time."""
        return self._parts_of(self.processes.rank)

    def nodes(self, part: slice) -> Tensor:
        """(part,) the numbers of consecutive rows in the graph."""
        return torch.arange(part.start, part.stop)

    def complete(self, out: RowMatrix) -> None:
        """Have every process know the rows of all, a part of each at a time."""
        if self.processes.count == 1:
            return
        parts = [self._parts_of(rank) for rank in range(self.processes.count)]
        own = parts[self.processes.rank]
        for place in range(max(map(len, parts))):
            rows = on_host(out[own[min(place, len(own) - 1)]])
            padded = rows.new_zeros(self.rows_at_once, rows.shape[1])
            padded[: len(rows)] = rows
            for of_rank, found in zip(parts, self.processes.gather(padded), strict=True):
                if place < len(of_rank):
                    part = of_rank[place]
                    out[part] = found[: part.stop - part.start].to(out.blocks[0].device)

    def of_all(self, rows: Tensor) -> Tensor:
        """(nodes, width) in the graph's order, on every process."""
        return rows

    def _parts_of(self, rank: int) -> list[slice]:
        """A run of all parts; of fewer parts than processes, each has one all the same."""
        parts, count = _runs(0, self.graph.num_nodes, self.rows_at_once), self.processes.count
        if len(parts) < count:
            return [parts[min(rank, len(parts) - 1)]]
        return parts[rank * len(parts) // count : (rank + 1) * len(parts) // count]


@dataclass(frozen=True)
class OwnRows:
    """Rows of own nodes, shard by shard, and after them those of the nodes that own ones hear of.

    Which rows are computed together depends on the shards alone, so that any number of processes has the same
    bits.

    Attributes:
        graph: has these nodes, in this order; its normalised adjacencies have the rows of own nodes alone,
            with entries in the order of the whole graph.
        parts: the rows of own nodes that are computed together.
        own: (own nodes,) for each process.
        sent: (any,) own rows, for one process after the other.
        counts: how many of them for each process, and how many rows come from each.
        rows_at_once: how many rows go to others together, when all get all.
        held: (rows,) the number of each in the whole graph.
        processes: that share the work.
    """

    graph: Graph
    parts: list[slice]
    own: list[Tensor]
    sent: Tensor
    counts: tuple[list[int], list[int]]
    rows_at_once: int
    held: Tensor
    processes: Processes = ALONE

    @staticmethod
    def of(
        graph: Graph, model: Model, rows_at_once: int, shards: Tensor, processes: Processes = ALONE
    ) -> OwnRows:
        """Those of this process.

        Args:
            graph: the whole graph.
            model: whose layers are all linear.
            rows_at_once: how many are computed together, at most.
            shards: (nodes,) the shard of each.
            processes: that all call this.
        """
        number = int(shards.max()) + 1
        of_shard = [(shards == shard).nonzero()[:, 0] for shard in range(number)]
        mine = [shards_of(rank, processes.count, number) for rank in range(processes.count)]
        own_of_all = [torch.cat([of_shard[shard] for shard in each]) for each in mine]
        own, parts, end = own_of_all[processes.rank], list[slice](), 0
        for shard in mine[processes.rank]:
            parts += _runs(end, end := end + len(of_shard[shard]), rows_at_once)
        norms = {layer.aggregation for layer in model.layers if isinstance(layer, LinearLayer)}
        columns = _heard(graph, own, norms)
        elsewhere = torch.ones(graph.num_nodes, dtype=torch.bool)
        elsewhere[own] = False
        process = torch.empty(graph.num_nodes, dtype=torch.int64)
        for rank, nodes in enumerate(own_of_all):
            process[nodes] = rank
        heard = columns[elsewhere[columns]]
        heard = heard[process[heard].argsort(stable=True)]
        received = torch.bincount(process[heard], minlength=processes.count)
        asked = torch.stack(processes.gather(received))  # row: by whom, column: of whom
        sent, coming = asked[:, processes.rank].tolist(), received.tolist()
        place = torch.empty(graph.num_nodes, dtype=torch.int64)
        place[own] = torch.arange(len(own))
        told = place[processes.exchange(heard, coming, sent)]
        held = torch.cat([own, heard])
        local = _with_rows(graph, held, len(own), norms)
        return OwnRows(local, parts, own_of_all, told, (sent, coming), rows_at_once, held, processes)

    def nodes(self, part: slice) -> Tensor:
        """(part,) the numbers of consecutive rows in the whole graph."""
        return self.held[part]

    def complete(self, out: RowMatrix) -> None:
        """Get the rows of the nodes that own ones hear of, some columns at a time."""
        if self.processes.count == 1:
            return
        sent, coming = self.counts
        for number, block in enumerate(out.blocks):
            width, rows = block.shape[1], on_host(block[self.sent.to(block.device)])
            sizes = ([count * width for count in counts] for counts in (sent, coming))
            found = self.processes.exchange(rows.flatten(), *sizes)
            out.put(number, slice(len(block) - sum(coming), len(block)), found.reshape(-1, width))

    def of_all(self, rows: Tensor) -> Tensor:
        """(nodes, width) in the order of the whole graph, on every process."""
        rows = on_host(rows)
        shape, folder = (sum(map(len, self.own)), rows.shape[1]), self.graph.scratch
        found = rows.new_empty(shape) if folder is None else ScratchMatrix(folder, shape, rows.dtype)
        for part in _runs(0, max(map(len, self.own)), self.rows_at_once):
            own = self.own[self.processes.rank][part]
            padded = rows.new_zeros(part.stop - part.start, rows.shape[1])
            padded[: len(own)] = rows[part.start : part.start + len(own)]
            for nodes, each in zip(self.own, self.processes.gather(padded), strict=True):
                put_rows(found, nodes[part], each[: len(nodes[part])])
        return found if isinstance(found, Tensor) else found.values


Division = EveryRow | OwnRows


class _Asked(NamedTuple):
    """What the rows of a process follow from, beside shards."""

    norms: set[Norm]
    rows_at_once: int
    processes: Processes


_on_disk: WeakKeyDictionary[Graph, tuple[_Asked, Tensor, OwnRows]] = WeakKeyDictionary()
"""Rows of graphs on disk, whose files are made once."""


def divided(
    graph: Graph, model: Model, rows_at_once: int, shards: Tensor | None, processes: Processes
) -> Division:
    """Rows of own nodes where the graph has shards, and sums are all that layers read of other nodes."""
    linear = [layer for layer in model.layers if isinstance(layer, LinearLayer)]
    sums = len(linear) == len(model.layers) and model.precomputed(graph) is None
    # Of a graph on disk, the rows of a shard must lie together, and be made without all others.
    rows_lie = graph.cluster_starts is not None and all(layer.aggregation in OF_SUMS for layer in linear)
    if shards is None or not sums or not (graph.scratch is None or rows_lie):
        return EveryRow(graph, rows_at_once, processes)
    if graph.scratch is None:
        return OwnRows.of(graph, model, rows_at_once, shards, processes)
    known = _on_disk.get(graph)
    asked = _Asked({layer.aggregation for layer in linear}, rows_at_once, processes)
    if known is None or known[0] != asked or not torch.equal(known[1], shards):
        known = asked, shards, OwnRows.of(graph, model, rows_at_once, shards, processes)
        _on_disk[graph] = known
    return known[2]


def _heard(graph: Graph, own: Tensor, norms: set[Norm]) -> Tensor:
    """(any,) whose messages own nodes receive, in order."""
    found = [
        sorted_union([messages(graph, norm).take(nodes).indices.long()])
        for norm in norms
        for nodes in torch.split(own, ROWS)
    ]
    return sorted_union(found)


def _with_rows(graph: Graph, held: Tensor, own: int, norms: set[Norm]) -> Graph:
    """The graph of some nodes, with what the first `own` of them receive, weighed as in the whole graph."""
    inside = torch.arange(own)
    if graph.scratch is not None:
        x = taken(graph.scratch, graph.x, held)
        edges = _stored_rows(graph, graph.adjacency, held, own)
        local = with_arrays(graph, adjacency=edges, x=x, within=None)
        for norm in norms:
            keep_normalized(local, norm, _stored_rows(graph, messages(graph, norm), held, own))
        return local
    known = graph.adjacency.with_values(None).localized(inside, held)
    indptr = torch.cat([known.indptr, known.indptr[-1:].expand(len(held) - own)])
    local = with_arrays(
        graph, adjacency=CSR(indptr, known.indices, None, len(held)), x=graph.x.index_select(0, held)
    )
    for norm in norms:
        keep_normalized(local, norm, normalize(graph, norm).localized(inside, held))
    return local


def _stored_rows(graph: Graph, rows: Messages, held: Tensor, own: int) -> CSR:
    """(held, held) what the first `own` of some nodes receive of them, on disk; nothing for the others."""
    assert graph.scratch is not None
    most = int(graph.adjacency.row_lengths()[held[:own]].sum()) + own  # with every self-loop

    def pieces() -> Iterator[tuple[slice, CSR]]:
        for part in _runs(0, own, ROWS):
            yield part, rows.localized(torch.arange(part.start, part.stop), held)
        yield slice(own, len(held)), _empty(len(held) - own, graph.adjacency, len(held))

    return stored(graph.scratch, _empty(len(held), graph.adjacency, len(held)), most, pieces())


def _empty(rows: int, like: CSR, columns: int) -> CSR:
    return CSR(torch.zeros(rows + 1, dtype=torch.int64), like.indices[:0], None, columns)


def _runs(start: int, stop: int, length: int) -> list[slice]:
    """From start to stop, so many at a time."""
    return [slice(first, min(first + length, stop)) for first in range(start, stop, length)]
