"""What a step needs, by trying it: on a graph of a few hundred nodes that has the proportions of a batch.

Tensors of a step have rows for batch nodes, halo nodes or messages. So what lives at most grows with a batch
of the same proportions, whatever the model is made of and whatever the method does.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.estimators.estimator import Estimator
from lmc.nn.model import Model
from lmc.precision import Precision
from lmc.sparse import ROWS_AT_ONCE
from lmc.training.live_bytes import most_live_bytes

ROWS = 600
"""Of the smaller trial, batch and halo together; the larger has twice as many."""
OVERHEAD = 1.1
"""Of arrays that are no tensors, and of what lies free between buffers, where large ones are not kept."""


class BatchSizes(NamedTuple):
    """How large a batch is.

    Attributes:
        nodes: in the batch.
        halo: neighbours outside.
        inside: messages between nodes of the batch.
        across: messages from the halo to the batch.
        among: messages between nodes of the halo.
    """

    nodes: int
    halo: int
    inside: int
    across: int
    among: int

    @staticmethod
    def of(batch: Batch) -> BatchSizes:
        """Those of a batch."""
        received, outside = batch.block("sum"), batch.halo_block("sum")
        across = int((received.indices >= batch.num_nodes).sum())
        among = int((outside.indices >= batch.num_nodes).sum())
        return BatchSizes(batch.num_nodes, batch.num_halo, received.num_entries - across, across, among)

    @staticmethod
    def of_largest(graph: Graph, clusters: Tensor, count: int) -> BatchSizes:
        """Those of a batch of the clusters with the most nodes and messages, which have many neighbours."""
        sizes, starts = torch.bincount(clusters), graph.adjacency.indptr
        for first in range(0, len(clusters), ROWS_AT_ONCE):
            some = clusters[first : first + ROWS_AT_ONCE]
            sizes.index_add_(0, some, starts[first : first + len(some) + 1].diff().long())
        chosen = torch.isin(clusters, sizes.argsort(descending=True)[:count])
        return BatchSizes.of(graph.batch(chosen.nonzero()[:, 0]))

    def times(self, share: float) -> BatchSizes:
        """So many times as large, with a node or more."""
        nodes, *others = (round(size * share) for size in self)
        return BatchSizes(max(1, nodes), *others)


class StepBytes(NamedTuple):
    """Bytes of a step.

    Attributes:
        step: tensors that it makes, at most at a time.
        blocks: what is built of a batch before it, perhaps while the step before is under way.
    """

    step: int
    blocks: int

    def with_batches(self, ahead: int) -> int:
        """Of a step with its own batch, and so many that are built ahead."""
        return self.step + (1 + ahead) * self.blocks


def step_bytes(
    graph: Graph, model: Model, estimator: Estimator, sizes: BatchSizes, precision: Precision | None = None
) -> StepBytes:
    """What a step on a batch of these sizes needs, beside graph, features, histories and weights.

    Args:
        graph: what is trained on; its features, labels and kinds of edges.
        model: what is trained; it is left as it was.
        estimator: how gradients are estimated; left as it was.
        sizes: of the batch.
        precision: as for `fit`.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=2000)
    >>> model = lmc.GCN(graph.num_features, 64, graph.num_classes)
    >>> sizes = BatchSizes.of(graph.batch(range(500)))
    >>> step_bytes(graph, model, lmc.LMC(), sizes).step > 500 * 3 * 64 * 4
    True
    """
    rows = sizes.nodes + sizes.halo
    shares = [min(1.0, times * ROWS / rows) for times in (1, 2)]
    small, large = (_tried(graph, model, estimator, sizes.times(share), precision) for share in shares)
    if shares[0] == 1:
        return small
    further = (1 - shares[1]) / (shares[1] - shares[0]) if shares[1] > shares[0] else 0.0
    step, blocks = (
        round(OVERHEAD * (more + further * max(0, more - less)))
        for less, more in zip(small, large, strict=True)
    )
    return StepBytes(step, blocks)


def _tried(
    graph: Graph, model: Model, estimator: Estimator, sizes: BatchSizes, precision: Precision | None
) -> StepBytes:
    trial, own, method = _graph_of(graph, sizes), copy.deepcopy(model), copy.deepcopy(estimator)
    own.train()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        method.bind(own, trial, precision=precision)
        batch = trial.batch(torch.arange(sizes.nodes), scale=2.0)
        blocks = most_live_bytes(lambda: method.prepare(batch))
        step = most_live_bytes(lambda: method.backward(batch))
    return StepBytes(step, blocks)


def _graph_of(graph: Graph, sizes: BatchSizes) -> Graph:
    """A graph with such a batch, its first nodes, that has everything which a graph has."""
    generator = torch.Generator().manual_seed(0)
    nodes = sizes.nodes + sizes.halo

    def some(low: int, high: int, count: int) -> Tensor:
        # Where nothing is outside, none of it is asked for.
        return torch.randint(low, max(high, low + 1), (count,), generator=generator)

    # Every halo node has a neighbour in the batch; each pair is two messages.
    across = max(sizes.halo, sizes.across) if sizes.halo else 0
    outside = torch.cat([torch.arange(sizes.nodes, nodes), some(sizes.nodes, nodes, across - sizes.halo)])
    inside, among = sizes.inside // 2, sizes.among // 2 if sizes.halo else 0
    one = [some(0, sizes.nodes, inside), some(0, sizes.nodes, across), some(sizes.nodes, nodes, among)]
    other = [some(0, sizes.nodes, inside), outside, some(sizes.nodes, nodes, among)]
    ends = torch.stack([torch.cat(one), torch.cat(other)])
    # Repeated messages would have weights of their own.
    ends = torch.unique(ends[:, ends[0] != ends[1]].sort(0)[0], dim=1)
    ends = torch.cat([ends, ends.flip(0)], 1)
    if not graph.is_undirected:
        ends = torch.cat([ends, torch.tensor([[0], [nodes - 1]])], 1)
    edges = ends.shape[1]
    given: dict[str, Any] = {}
    if graph.edge_weight is not None:
        given["edge_weight"] = torch.ones(edges)
    if graph.edge_attr is not None:
        given["edge_attr"] = torch.ones(edges, *graph.edge_attr.shape[1:])
    if graph.edge_type is not None:
        given["edge_type"] = torch.arange(edges) % graph.num_edge_types
    y = torch.zeros(nodes, *graph.y.shape[1:], dtype=graph.y.dtype)
    mask = torch.ones(nodes, dtype=torch.bool)
    width = graph.num_classes or None
    x = torch.rand(nodes, graph.num_features, generator=generator).to(graph.x.dtype)
    return Graph(ends, x, y, mask, task=graph.task, num_classes=width, **given)
