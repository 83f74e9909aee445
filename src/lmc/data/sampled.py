"""Some of the messages that nodes receive, each for as many as it stands for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lmc import kernels
from lmc.data.batch import Batch, Edges, message_per_entry
from lmc.data.normalization import Norm, messages
from lmc.data.weighed_rows import Messages, WeighedRows
from lmc.sparse import CSR

if TYPE_CHECKING:
    from lmc.data.graph import Graph


@dataclass(frozen=True, eq=False)
class SampledBlock(Batch):
    """Nodes that receive at one layer, and those of their messages that were drawn.

    Local rows are `nodes` and then `halo`, those who send to them and are not among them.

    Attributes:
        heard: (nodes, graph's nodes) from whom each node hears, itself among them if it does; values are how
            many messages each stands for: one over the chance that it was drawn.
        places: (heard,) the local row of every sender.

    >>> import lmc
    >>> path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], [True, True, False])
    >>> heard = CSR(torch.tensor([0, 2]), torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), 3)
    >>> block = SampledBlock.of_heard(path, torch.tensor([1]), heard)
    >>> block.members.tolist(), block.block("sum").to_dense().tolist()
    ([1, 2], [[0.0, 2.0]])
    """

    heard: CSR = field(kw_only=True)
    places: Tensor = field(kw_only=True)

    @staticmethod
    def of_heard(graph: Graph, nodes: Tensor, heard: CSR) -> SampledBlock:
        """The messages between `nodes` (any,) and those that they hear."""
        members, places = kernels.kernels_for().number(nodes, heard.indices)
        return SampledBlock(graph, nodes, members[len(nodes) :], 1.0, heard=heard, places=places)

    def on(self, graph: Graph) -> Batch:
        """The same draws on a graph with the same nodes and neighbours, but other edges; kept."""
        if graph not in self._elsewhere:
            self._elsewhere[graph] = replace(self, graph=graph, _built={}, _elsewhere={}, _copies={})
        return self._elsewhere[graph]

    def transposed_block(self, norm: Norm = "gcn") -> CSR:
        """(members, nodes) `block`, transposed: the way back of its messages; stacked rows are rows here."""
        key = (messages(self.graph, norm), "transposed")
        if key not in self._built:
            self._built[key] = replace(self.block(norm), stacked=1).transpose()
        return self._built[key]

    def received(self, norm: Norm, message: Tensor) -> Tensor:
        """(nodes, width) sums of what was drawn, of (members, width) messages; differentiable."""
        return self.received_at(self, norm, message)

    def received_at(self, at: SampledBlock, norm: Norm, message: Tensor) -> Tensor:
        """`received`, by the blocks of this one where it is placed."""
        forth, back = at.block(norm), at.transposed_block(norm)
        received: Tensor = _Sums.apply(message, forth, back)  # type: ignore[no-untyped-call]
        return received

    def drawn_edges(self, norm: Norm) -> Edges:
        """`weighed_edges` with the weights of the whole graph, whatever a message stands for."""
        return message_per_entry(self._picked(messages(self.graph, norm))[0])

    def weighed(self, matrix: Messages) -> CSR:
        """(nodes, members) entries that were drawn, times how many each stands for, in float64."""
        block, stand_for = self._picked(matrix)
        return block.with_values(stand_for if block.values is None else stand_for * block.values)

    def _rows_of(self, which: Literal["nodes", "halo"], matrix: Messages) -> CSR:
        if (matrix, which) not in self._built:
            block = self.weighed(matrix)
            assert block.values is not None
            self._built[matrix, which] = block.with_values(block.values.to(self.graph.x.dtype))
        return self._built[matrix, which]

    def _localized(self, matrix: Messages, places: Tensor) -> CSR:
        """Entries that were drawn, as they are."""
        return self._picked(matrix)[0]

    def _picked(self, matrix: Messages) -> tuple[CSR, Tensor]:
        """The entries of a matrix that were drawn, under local numbers; and how many each stands for."""
        rows, heard = self.nodes, self.heard
        if isinstance(matrix, WeighedRows):
            matrix, rows = matrix.take(rows), torch.arange(len(rows))
        if matrix.stacked > 1:
            rows = (rows[:, None] * matrix.stacked + torch.arange(matrix.stacked)).flatten()
        given = (matrix.indptr, matrix.indices, rows, matrix.stacked, heard.indptr, heard.indices)
        ends, entry, which = kernels.kernels_for().pick(*given)
        values = None if matrix.values is None else matrix.values[entry]
        assert heard.values is not None
        local = CSR(ends, self.places[which], values, len(self.members), matrix.stacked)
        return local, heard.values[which]


def heard_among(senders: CSR, nodes: Tensor, drawn: Tensor) -> CSR:
    """(nodes, graph's nodes) those of the drawn nodes that each hears; itself first, if it was drawn.

    Args:
        senders: (graph's nodes, graph's nodes) from whom each node may hear, itself not among them.
        nodes: (any,) who hears.
        drawn: (any,) who is heard, each once.

    Values are those of `senders`, and -1 where a node hears itself; None where those have none.
    """
    localize = kernels.kernels_for().localize
    offsets, local, values = localize(senders.indptr, senders.indices, senders.values, nodes, drawn)
    own = torch.isin(nodes, drawn).nonzero()[:, 0]
    others = CSR(offsets, local, values, len(drawn))
    row, order = torch.cat([own, others.row_ids().long()]).sort(stable=True)
    columns = torch.cat([nodes[own], drawn[local.long()]])[order]
    if values is not None:
        values = torch.cat([values.new_full((len(own),), -1), values])[order]
    indptr = torch.searchsorted(row, torch.arange(len(nodes) + 1))
    return CSR(indptr, columns, values, senders.num_cols)


class _Sums(torch.autograd.Function):
    """A sparse matrix times a dense one, with the transposed matrix for the way back."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, matrix: CSR, transposed: CSR) -> Tensor:
        ctx.transposed = transposed
        return matrix.times(dense, dense[:0])

    @staticmethod
    def backward(ctx: Any, *derivatives: Tensor) -> tuple[Tensor, None, None]:
        (derivative,) = derivatives
        rows = derivative.reshape(ctx.transposed.num_cols, -1)  # those that are stacked, one below the other
        return ctx.transposed.times(rows, rows[:0]), None, None
