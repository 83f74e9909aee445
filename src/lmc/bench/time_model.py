"""How long an epoch would take on many machines: from what was measured on one, and a network that is stated.

A step is computed, its rows of other shards come in one message from each other machine, and so do the
gradients of all shards when it ends. What is left out: evaluation, checkpoints, waiting for whoever is late,
and that the network may be shared with others.
"""

from __future__ import annotations

from typing import NamedTuple

from rich.table import Table

from lmc.batching.partition import partition
from lmc.bench.shared import LAYERS, WIDTH, Cut
from lmc.data.graph import Graph
from lmc.estimators.lmc import LMC
from lmc.nn.fitting import layer_widths
from lmc.nn.gcn import GCN

MACHINES = (8, 16, 32, 64)
PARTS, SHARE = 1280, 8
"""Clusters, and a step has this part of them, however many machines share it."""


class Network(NamedTuple):
    """What each machine has of it.

    Attributes:
        rate: bytes a second, in each direction.
        latency: seconds until a message begins to arrive.
    """

    rate: float
    latency: float


NETWORKS = {
    "1 Gbit/s, 0.2 ms": Network(125e6, 2e-4),
    "10 Gbit/s, 0.1 ms": Network(1.25e9, 1e-4),
    "100 Gbit/s, 0.02 ms": Network(12.5e9, 2e-5),
}


class Work(NamedTuple):
    """Of an epoch.

    Attributes:
        seconds: that one machine computes for it.
        steps: it has.
        rows: bytes of histories that all machines receive together.
        gradient: bytes of all parameters.
    """

    seconds: float
    steps: int
    rows: float
    gradient: int


def epoch_seconds(work: Work, machines: int, network: Network, overlap: bool = False) -> float:
    """Of an epoch that so many machines share, a shard each.

    >>> work = Work(seconds=8.0, steps=4, rows=16e6, gradient=1_000_000)
    >>> network = Network(rate=1e6, latency=0.5)
    >>> epoch_seconds(work, 2, network)  # a step: 1 s to compute, 0.5 + 2 s for rows, 0.5 + 1 s for gradients
    20.0
    >>> epoch_seconds(work, 2, network, overlap=True)
    16.0
    """
    computed = work.seconds / work.steps / machines
    rows = network.latency + work.rows / machines / work.steps / network.rate
    gradients = network.latency + (machines - 1) * work.gradient / network.rate
    return work.steps * ((max(computed, rows) if overlap else computed + rows) + gradients)


def table(graph: Graph, seconds: float) -> Table:
    """Epochs on many machines, without and with `overlap=True`, for the model of `lmc bench --processes`.

    Args:
        graph: whose rows are counted.
        seconds: that one machine computes for an epoch, as measured.
    """
    model = GCN(graph.num_features, WIDTH, graph.num_classes, layers=LAYERS, norm="batch")
    row_bytes = 4 * LMC(alpha=0.0).remembered(model, layer_widths(model, graph)).width
    gradient = 4 * sum(parameter.numel() for parameter in model.parameters())
    found = Table(title=f"seconds of an epoch by the model, from {seconds:.2f} on one machine")
    for column in ("machines", "rows a node and epoch", *NETWORKS):
        found.add_column(column, justify="right")
    clusters = partition(graph, PARTS)
    for machines in MACHINES:
        per_batch = max(1, PARTS // SHARE // machines)
        rows = Cut.of(graph, clusters, machines).in_an_epoch(per_batch)
        steps = -(-PARTS // machines // per_batch)
        work = Work(seconds, steps, rows * graph.num_nodes * row_bytes, gradient)
        times = [
            " / ".join(f"{epoch_seconds(work, machines, network, overlap):.2f}" for overlap in (False, True))
            for network in NETWORKS.values()
        ]
        found.add_row(str(machines), f"{rows:.2f}", *times)
    return found
