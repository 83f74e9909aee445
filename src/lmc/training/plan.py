"""A plan: how a run keeps to the memory that it is given.

Batches get as many clusters as fit beside what the process and every node take; histories are in memory where
they fit, too, and otherwise on disk, with what is left as their cache.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from lmc import memory_use
from lmc.batching.choice import LEAST_CLUSTER, choose_batches
from lmc.batching.samplers import ClusterSampler
from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.estimators.disk_history import BYTES_OF_A_READ
from lmc.estimators.estimator import Estimator
from lmc.malloc import trim_free_memory
from lmc.nn.fitting import in_type_of
from lmc.nn.inference import ROWS, ROWS_FROM_DISK
from lmc.nn.model import LayerWidths, Model
from lmc.precision import Precision
from lmc.training.memory_check import RunNeeds
from lmc.training.optimizers import make_optimizer
from lmc.training.options import Histories, TrainingOptions
from lmc.training.trial_step import BatchSizes, StepBytes, step_bytes

BYTES_PER_NODE = 64
"""Clusters, places and degrees of nodes, and what it takes to make them, about."""
LEAST_CACHE = 1 << 25
"""Bytes of histories on disk that are held in memory at least."""
RESERVE = 60_000_000
"""For kernels and modules that are loaded later, sums of features while they are made, and small buffers."""
TYPICAL = 4
"""Groups of clusters that tell what a step reads."""
STACKS = 5 * (8 << 20)
"""Of these threads: addresses that are counted where the system limits data, though hardly any are used."""
IF_KEPT = 2.0
"""Times what a step takes, where malloc keeps large buffers for steps to come, which is faster."""
CLUSTERS = 16
"""Of a batch, where clusters are made for it."""


@dataclass(frozen=True)
class Plan:
    """How a run keeps to its memory, in bytes where nothing else is said.

    Attributes:
        memory: what it is given.
        parts: clusters in the graph.
        parts_per_batch: clusters in a batch.
        histories: where historical values are.
        history_cache: how much of them is in memory, where they are on disk.
        background: whether the next batch is built while the current one trains.
        process: what the process holds before.
        of_nodes: what is kept for every node.
        step: of a step, with its batch, and the next one if that is built meanwhile.
        reserve: for what begins or is loaded later.
        all_histories: of all nodes that may be outside of a batch.
        read: of histories in an epoch after the first, where they are on disk, about.
        written: likewise.
        sizes: of the largest batch.
        features: where they are.
        keeps_buffers: whether there is room for large buffers that are kept from step to step.
    """

    memory: int
    parts: int
    parts_per_batch: int
    histories: Histories
    history_cache: int
    background: bool
    process: int
    of_nodes: int
    step: int
    reserve: int
    all_histories: int
    read: int
    written: int
    sizes: BatchSizes
    features: str
    keeps_buffers: bool

    @property
    def total(self) -> int:
        """All that is in memory."""
        in_memory = self.all_histories if self.histories == "memory" else self.history_cache
        return self.process + self.of_nodes + self.reserve + self.step + in_memory

    def applied_to(self, options: TrainingOptions) -> TrainingOptions:
        """The options of the run that keeps to it."""
        return replace(
            options,
            parts=self.parts,
            parts_per_batch=self.parts_per_batch,
            batch_share=None,
            histories=self.histories,
            history_cache=self.history_cache,
            background=self.background,
        )

    def lines(self) -> Iterator[tuple[str, str]]:
        """What a person reads of it, name by name."""
        sizes = self.sizes
        yield "clusters", f"{self.parts:,}, {self.parts_per_batch:,} a batch"
        yield "largest batch", f"{sizes.nodes:,} nodes, {sizes.halo:,} outside"
        yield "features", self.features
        if self.histories == "memory":
            yield "histories", f"in memory, {shown(self.all_histories)}"
        else:
            yield "histories", f"on disk, {shown(self.all_histories)}; {shown(self.history_cache)} in memory"
            yield "in an epoch", f"{shown(self.read)} of them read, {shown(self.written)} written"
        yield "next batch", "built while a step is done" if self.background else "built after a step"
        parts = f"process {shown(self.process)}, nodes {shown(self.of_nodes)}, step {shown(self.step)}"
        yield "memory", f"{shown(self.total)} of {shown(self.memory)}: {parts}, {shown(self.reserve)} free"

    def __str__(self) -> str:
        return "\n".join(f"  {name:<14}{value}" for name, value in self.lines())


def shown(size: int) -> str:
    """Bytes as a person reads them.

    >>> shown(2_000_000_000), shown(81_500_000)
    ('2 GB', '81.5 MB')
    """
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"


def shown_from_above(size: int) -> str:
    """The same, of which no less would do.

    >>> shown_from_above(300_400_000)
    '301 MB'
    """
    digit = 10 ** max(0, len(str(int(size))) - 3)
    return shown(-(-int(size) // digit) * digit)


def make_plan(
    graph: Graph, model: Model, estimator: Estimator, options: TrainingOptions, memory: int, to_disk: bool
) -> Plan:
    """The plan of a run in so many bytes of memory; ArgumentError with the least that would do.

    Args:
        graph: what is trained on.
        model: what is trained.
        estimator: how gradients are estimated, on groups of clusters.
        options: of the run; what they say of clusters stays.
        memory: bytes.
        to_disk: whether there is a folder for histories.
    """
    graph = graph.by_cluster
    if estimator.passes_over_graph or estimator.expected_sizes(graph, model):
        rule = "has no clusters to choose; its own sizes say what a step takes"
        raise ArgumentError(f"memory={shown(memory)}: {type(estimator).__name__} {rule}")
    _load(graph, model, estimator, options)
    process, of_nodes = _held(), BYTES_PER_NODE * graph.num_nodes
    reserve = RESERVE + (STACKS if memory_use.is_data_limited() else 0)
    room = memory - process - of_nodes - reserve
    batches = options.batches
    if graph.cluster_starts is None and options.parts is None:
        parts = fitting_parts(graph, model, estimator, options.precision, memory)
        batches = replace(batches, parts=parts, parts_per_batch=1, batch_share=None)
    clusters = ClusterSampler.cut(graph, batches).clusters
    sampler = ClusterSampler(graph, clusters)
    needs = RunNeeds(graph, model, estimator, len(sampler.outside), options.precision or estimator.precision)
    all_histories = needs.kept_bytes * needs.remembered_nodes
    least_cache = min(all_histories, LEAST_CACHE)
    parts, evaluation = int(clusters.max()) + 1, evaluation_bytes(graph, needs.layer_widths)

    @cache
    def tried(count: int) -> tuple[BatchSizes, StepBytes]:
        sizes = BatchSizes.of_largest(graph, clusters, count)
        return sizes, step_bytes(graph, model, estimator, sizes, options.precision)

    def needed_by(count: int, ahead: int) -> int:
        step = tried(count)[1]
        return max(step.with_batches(ahead), evaluation + ahead * step.blocks)

    def fits(count: int, ahead: int) -> bool:
        return needed_by(count, ahead) + least_cache <= room

    ahead = 1 if options.background and fits(1, 1) else 0
    if ahead == 0 and not fits(1, 0):
        least = shown_from_above(memory - room + needed_by(1, 0) + least_cache)
        advice = "with one cluster a batch; more clusters, or fewer hidden units, need less"
        raise ArgumentError(f"memory={shown(memory)}: {least} is the least that would do, {advice}")
    asked = options.parts_per_batch, options.batch_share
    most = choose_batches(graph.num_nodes, None, *asked, made=parts).parts_per_batch
    count = _largest_that_fits(most, lambda count: fits(count, ahead))
    sizes, needed = tried(count)[0], needed_by(count, ahead)
    in_memory = options.histories == "memory" and needed + all_histories <= room
    if not in_memory and not to_disk:
        least = shown_from_above(memory - room + needed + all_histories)
        raise ArgumentError(
            f"memory={shown(memory)}: with histories in memory {least} is the least that would do; "
            "out= names a folder for them"
        )
    held = least_cache if in_memory else min(all_histories, room - needed)
    in_a_step = _read_in_a_step(graph, clusters, sampler.outside, needs.row_bytes, count)
    from_disk = 1 - held / max(1, all_histories)
    return Plan(
        memory=memory,
        parts=parts,
        parts_per_batch=count,
        histories="memory" if in_memory else "disk",
        history_cache=held,
        background=bool(ahead),
        process=process,
        of_nodes=of_nodes,
        step=needed,
        reserve=reserve,
        all_histories=all_histories,
        read=round(-(-parts // count) * in_a_step * from_disk),
        written=all_histories,
        sizes=sizes,
        features="in memory" if graph.scratch is None else "on disk",
        keeps_buffers=in_memory and IF_KEPT * needed + all_histories <= room,
    )


def fitting_parts(
    graph: Graph, model: Model, estimator: Estimator, precision: Precision | None, memory: int
) -> int:
    """Into how many clusters a graph is cut so that CLUSTERS fit a batch, if all edges led outside."""
    nodes = graph.num_nodes
    batch = min(nodes, 1024)
    messages = graph.num_edges * batch // nodes
    sizes = BatchSizes(batch, min(messages, nodes - batch), 0, messages, messages)
    each = step_bytes(graph.by_cluster, model, estimator, sizes, precision).with_batches(1) / batch
    fitting = (memory - _held() - BYTES_PER_NODE * nodes) / each
    needed = math.ceil(nodes * CLUSTERS / fitting) if fitting >= 1 else nodes
    most = max(1, nodes // LEAST_CLUSTER)
    return min(most, max(needed, choose_batches(nodes).parts))


def evaluation_bytes(graph: Graph, widths: list[LayerWidths]) -> int:
    """What an evaluation takes beside its matrices: some rows, what they receive, and what becomes of it."""
    widest = max(graph.num_features, *(max(layer) for layer in widths))
    rows = min(ROWS if graph.scratch is None else ROWS_FROM_DISK, graph.num_nodes)
    return rows * (4 * widest * graph.x.itemsize + 16 * graph.num_edges // graph.num_nodes)


def _load(graph: Graph, model: Model, estimator: Estimator, options: TrainingOptions) -> None:
    """Have in memory what every step reads: kernels, what torch loads, and all that is made of the graph."""
    step_bytes(graph, model, estimator, BatchSizes(1, 1, 0, 1, 0), options.precision)
    make_optimizer(options.optimizer, model, options.lr, 0.0, 0.0)
    if graph.scratch is None:  # else it is on disk, and need not be made for a plan
        method = copy.copy(estimator)
        method.model, method.graph = model, in_type_of(model, graph)
        method.prepare_graph()


def _read_in_a_step(
    graph: Graph, clusters: Tensor, outside: Tensor, row_bytes: list[int], count: int
) -> float:
    """Bytes of histories that a step reads, on average over some groups of so many clusters.

    A few rows of a cluster are read each by itself, of many the whole extent.
    """
    parts, found = int(clusters.max()) + 1, 0
    remembered = torch.bincount(clusters[outside], minlength=parts)
    for seed in range(TYPICAL):
        chosen = torch.randperm(parts, generator=torch.Generator().manual_seed(seed))[:count]
        halo = graph.batch(torch.isin(clusters, chosen).nonzero()[:, 0]).halo
        wanted = torch.bincount(clusters[halo], minlength=parts)
        for size in row_bytes:
            alone = wanted * BYTES_OF_A_READ < remembered * size
            found += int(torch.where(alone, wanted, remembered * (wanted > 0)).sum()) * size
    return found / TYPICAL


def _held() -> int:
    """Bytes that the process holds, once kernels are loaded and what is free went back."""
    trim_free_memory()
    return memory_use.anonymous()


def _largest_that_fits(most: int, fits: Callable[[int], bool]) -> int:
    """About the largest count up to `most` that fits, where 1 does: by doubling, then by halves."""
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
