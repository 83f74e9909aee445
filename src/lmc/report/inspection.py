"""What a graph is like, and what its batches hold, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csgraph
from torch import Tensor

from lmc import checks
from lmc.batching.choice import Choice, choose_batches
from lmc.batching.partition import partition
from lmc.batching.samplers import batches, between_clusters
from lmc.data import rules
from lmc.data.edges import counted
from lmc.data.graph import Graph
from lmc.data.rules import Task
from lmc.nn.model import MOST_LAYERS
from lmc.training.memory_need import Need, need

# A batch of about a half, an eighth and a fortieth of the graph.
_SHARES = (2, 8, 40)
# Two clusters or more in the smallest of these batches, unless clusters would be tiny.
_MOST_PARTS, _LEAST_CLUSTER = 80, 25


class Degrees(NamedTuple):
    """How many neighbours nodes have: other nodes that send to them or receive from them."""

    smallest: int
    median: float
    mean: float
    largest: int
    isolated: int
    """Nodes without any."""


class Features(NamedTuple):
    """What is in `graph.x`."""

    width: int
    dtype: str
    zeros: float | None
    """The share of entries that are zero; None where there are no features, as for the next two."""
    smallest: float | None
    largest: float | None


class Split(NamedTuple):
    """How many nodes are in each mask, and in none."""

    train: int
    val: int
    test: int
    unused: int


class Labels(NamedTuple):
    """What is in `graph.y`."""

    task: Task
    classes: int
    """The width of a prediction: classes, labels, or targets."""
    labelled: int
    """Nodes whose labels are counted: those with a class; of several labels, those in a mask."""
    counts: tuple[int, ...]
    """How many of them have each class or label; empty in a regression."""


class PerBatch(NamedTuple):
    """A number per batch, over the batches of an epoch."""

    mean: float
    largest: int


@dataclass(frozen=True)
class Holding:
    """What batches hold when the graph is cut into `parts` clusters and each has some of them.

    Attributes:
        parts: clusters in the graph.
        parts_per_batch: clusters in a batch.
        batches: batches in an epoch.
        nodes: in a batch.
        halo: their neighbours outside.
        messages: entries of the block, self-loops included: what the nodes receive.
        inside: the share of all messages that come from within their batch.
        need: memory of training with the batch that needs most, estimated for LMC at alpha = 0.
    """

    parts: int
    parts_per_batch: int
    batches: int
    nodes: PerBatch
    halo: PerBatch
    messages: PerBatch
    inside: float
    need: Need


@dataclass(frozen=True)
class Inspection:
    """What `inspect` finds.

    Attributes:
        nodes: how many nodes.
        edges: how many entries of the adjacency: an undirected edge counts twice.
        directed: whether some edge has no reverse of the same weight.
        self_loops: how many of the edges.
        repeated: how many of the edges another one has the same ends as, before it.
        weighted: whether edges have weights.
        degrees: neighbours per node.
        components: connected parts of the graph, the direction of edges aside.
        largest_component: the share of nodes in the largest of them.
        features: what is in x.
        labels: what is in y.
        split: the sizes of the masks.
        homophily: the share of edges whose two ends have the same class, without self-loops and without
            unlabelled nodes; None where there are no classes or no such edge.
        model: hidden width and layers of the GCN that memory is estimated for.
        choice: the batches of a run that is not told how to make them.
        holdings: what batches hold, for some ways to make them.
    """

    nodes: int
    edges: int
    directed: bool
    self_loops: int
    repeated: int
    weighted: bool
    degrees: Degrees
    components: int
    largest_component: float
    features: Features
    labels: Labels
    split: Split
    homophily: float | None
    model: tuple[int, int]
    choice: Choice
    holdings: tuple[Holding, ...]


def inspect(
    graph: Graph, parts: Sequence[int] | None = None, hidden: int = 256, layers: int = 3
) -> Inspection:
    """Look at a graph, and at its batches in the first epoch of seed 0.

    Args:
        graph: the graph.
        parts: numbers of clusters to cut it into by METIS. From each come batches of a half, an eighth and a
            fortieth of the clusters, one cluster at least. None for the batches of a run
            that is not told how to make them, and the first two of 80 clusters, or fewer on a small graph.
        hidden: hidden width of the GCN that memory is estimated for.
        layers: its number of layers.

    >>> import lmc
    >>> found = inspect(lmc.synthetic(nodes=1000, seed=1))
    >>> found.nodes, found.edges, found.components, found.split.train
    (1000, 9374, 1, 501)
    >>> [(holding.parts, holding.parts_per_batch) for holding in found.holdings]
    [(32, 16), (40, 20), (40, 5)]
    """
    hidden, layers = (
        checks.whole_number("hidden", hidden, 1),
        checks.whole_number("layers", layers, 1, MOST_LAYERS),
    )
    widths = [hidden] * (layers - 1) + [max(1, graph.num_classes)]  # there is an output without labels, too
    choice, chosen = choose_batches(graph.num_nodes), []
    if parts is None:
        parts = [max(1, min(_MOST_PARTS, graph.num_nodes // _LEAST_CLUSTER))]
        chosen = _holdings(graph, choice.parts, widths, [choice.parts_per_batch])
    parts = [checks.whole_number(f"parts[{i}]", number, 1) for i, number in enumerate(parts)]
    others = [holding for number in parts for holding in _holdings(graph, number, widths)]
    if chosen:  # three in all, which a terminal has room for
        others = [holding for holding in others if holding not in chosen][:2]
    components, largest_component = _components(graph)
    return Inspection(
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        directed=not graph.is_undirected,
        self_loops=int((graph.adjacency.indices == graph.adjacency.row_ids()).sum()),
        repeated=graph.num_edges - counted(graph.adjacency).num_entries,
        weighted=graph.edge_weight is not None,
        degrees=_degrees(graph),
        components=components,
        largest_component=largest_component,
        features=_features(graph.x),
        labels=_labels(graph),
        split=_split(graph),
        homophily=_homophily(graph),
        model=(hidden, layers),
        choice=choice,
        holdings=(*chosen, *others),
    )


# -- the graph -----------------------------------------------------------------------------------


def _degrees(graph: Graph) -> Degrees:
    degrees = graph.neighbours.row_lengths().numpy()
    return Degrees(
        smallest=int(degrees.min()),
        median=float(np.median(degrees)),
        mean=float(degrees.mean()),
        largest=int(degrees.max()),
        isolated=int((degrees == 0).sum()),
    )


def _components(graph: Graph) -> tuple[int, float]:
    """How many there are, and the share of nodes in the largest."""
    number, of_node = csgraph.connected_components(graph.neighbours.to_scipy(), directed=False)
    return int(number), int(np.bincount(of_node).max()) / graph.num_nodes


def _features(x: Tensor) -> Features:
    dtype = str(x.dtype).removeprefix("torch.")
    if x.numel() == 0:
        return Features(x.shape[1], dtype, None, None, None)
    smallest, largest = torch.aminmax(x)
    # Counted without making a mask: x may be larger than memory.
    zeros = 1 - int(torch.count_nonzero(x)) / x.numel()
    return Features(x.shape[1], dtype, zeros, float(smallest), float(largest))


def _split(graph: Graph) -> Split:
    train, val, test = (int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask))
    return Split(train, val, test, unused=graph.num_nodes - train - val - test)


def _labels(graph: Graph) -> Labels:
    y, task = graph.y, graph.task
    labelled, counts = graph.train_mask | graph.val_mask | graph.test_mask, torch.zeros(0)
    if task == "multiclass":
        labelled = ~rules.unlabelled(y, task)
        counts = torch.bincount(y[labelled], minlength=graph.num_classes)
    elif task == "multilabel":  # other rows may hold anything
        counts = (y[labelled] > 0).sum(dim=0)
    return Labels(task, graph.num_classes, int(labelled.sum()), tuple(int(count) for count in counts))


def _homophily(graph: Graph) -> float | None:
    if graph.task != "multiclass":
        return None
    target, source = graph.adjacency.row_ids(), graph.adjacency.indices
    of_target, of_source = graph.y[target], graph.y[source]
    counted = (target != source) & (of_target != -1) & (of_source != -1)
    edges = int(counted.sum())
    return int((counted & (of_target == of_source)).sum()) / edges if edges else None


# -- its batches ---------------------------------------------------------------------------------


def _holdings(
    graph: Graph, parts: int, widths: list[int], sizes: Sequence[int] | None = None
) -> list[Holding]:
    clusters = partition(graph, parts)
    found = int(clusters.max()) + 1
    sizes = sizes or sorted({max(1, round(found / share)) for share in _SHARES}, reverse=True)
    return [_holding(graph, clusters, found, size, widths) for size in sizes]


def _holding(graph: Graph, clusters: Tensor, parts: int, size: int, widths: list[int]) -> Holding:
    nodes, halo, messages, needs = [], [], [], []
    inside, remembered = 0, len(between_clusters(graph, clusters))
    for batch in batches(graph, clusters, size, balance="labels"):
        block = batch.block()
        nodes.append(batch.num_nodes)
        halo.append(batch.num_halo)
        messages.append(block.num_entries)
        read = block.num_entries + batch.halo_block().num_entries
        inside += int((block.indices < batch.num_nodes).sum())
        needs.append(
            need(
                widths,
                graph.num_features,
                batch.num_nodes,
                batch.num_halo,
                graph.num_nodes,
                graph.x.element_size(),
                # Derivatives travel along a block of their own if edges have a direction.
                messages=read * (1 if graph.is_undirected else 2),
                remembered_nodes=remembered,
                # What the default keeps of a GCN: sums of all layers but the first, and those that come back.
                kept=sum(widths[:-1]) + sum(widths[2:]),
                computes_halo=True,
            )
        )
    return Holding(
        parts=parts,
        parts_per_batch=size,
        batches=len(nodes),
        nodes=_per_batch(nodes),
        halo=_per_batch(halo),
        messages=_per_batch(messages),
        inside=inside / sum(messages),
        need=max(needs, key=lambda each: each.step),
    )


def _per_batch(numbers: list[int]) -> PerBatch:
    return PerBatch(sum(numbers) / len(numbers), max(numbers))
