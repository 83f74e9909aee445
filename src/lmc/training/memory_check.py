"""Whether a run fits into memory, checked before it starts."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lmc import memory_use
from lmc.batching.samplers import ClusterSampler, Sampler, ever_outside
from lmc.data.graph import Graph
from lmc.device import HOST, free_memory
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator, LayerSizes
from lmc.estimators.lmc import LMC
from lmc.estimators.stored_rows import bytes_of_row
from lmc.nn.fitting import layer_widths
from lmc.nn.gcn import GCN
from lmc.nn.model import Model
from lmc.precision import Precision, computed_type, remembered_type
from lmc.training.memory_need import Need, need
from lmc.training.trial_step import BatchSizes, step_bytes

LARGEST_RATIO = 20
"""Of what a step of any model needs to what formulas say, which are for a GCN."""
TOO_MUCH = 1.5
"""Of what formulas say to what is free, more than which is too much whatever a step that is tried says."""


class RunNeeds:
    """What a run with these objects needs, for batches of any size; see `memory_need.need`.

    On a device a step must fit, and nothing else is counted: histories may stay on the host.
    """

    def __init__(
        self,
        graph: Graph,
        model: Model,
        estimator: Estimator,
        remembered_nodes: int,
        precision: Precision,
        device: torch.device = HOST,
        history_memory: int | None = None,
    ) -> None:
        self.device = device
        self.graph, self.model, self.estimator, self.precision = graph, model, estimator, precision
        self.layer_widths = layer_widths(model, graph)
        self.widths = [layer.boundary for layer in self.layer_widths]
        kept = estimator.remembered(model, self.layer_widths)
        self.ranks, self.history_memory = list(kept.bases.values()), history_memory
        stored = remembered_type(precision, graph.x.dtype)
        self.row_bytes = [bytes_of_row(width, stored) for kind in kept for width in kind.values()]
        self.kept_bytes = sum(self.row_bytes)
        # Bases are read at batch rows, too, which may never be outside.
        self.remembered_nodes = graph.num_nodes if self.ranks else remembered_nodes
        self.entries = graph.adjacency.num_entries

    def bytes_for(self, nodes: int, halo: int, messages: int) -> int:
        """Histories, and a step on a batch with this many nodes, neighbours outside, and messages."""
        found = need(
            self.widths,
            self.graph.num_features,
            nodes,
            halo,
            self.graph.num_nodes,
            self.step_itemsize,
            self.kept_bytes,
            messages,
            history_itemsize=1,
            remembered_nodes=self.remembered_nodes,
            computes_halo=self.estimator.computes_halo,
            ranks=self.ranks,
        )
        return self._counted(found)

    def bytes_for_drawn(self, sizes: list[LayerSizes]) -> int:
        """Histories, and a step over drawn messages: features, and for each layer what is sent and received.

        Each of these is there as value and derivative, and once more while it is computed; blocks are there
        forth and back, and those of the next batch meanwhile.
        """
        itemsize, every = self.step_itemsize, self.graph.num_nodes
        rows = sizes[-1].members * self.graph.num_features
        for size, width in zip(sizes, reversed(self.layer_widths), strict=True):
            rows += 3 * (size.members * width.message + size.nodes * (width.received + width.boundary))
        blocks = 4 * sum(size.messages for size in sizes) * (8 + itemsize)
        return self._counted(Need(every * self.kept_bytes, rows * itemsize + blocks))

    def _counted(self, need: Need) -> int:
        """A step, and of histories what is in memory; on a device those may stay on the host."""
        if self.device != HOST:
            return need.step
        in_memory = need.histories
        return need.step + (in_memory if self.history_memory is None else min(in_memory, self.history_memory))

    @property
    def step_itemsize(self) -> int:
        """Bytes of a number in a step."""
        return computed_type(self.precision, self.graph.x.dtype).itemsize

    @property
    def whole(self) -> int:
        """For the batch of all nodes, the largest there is."""
        return self.bytes_for(self.graph.num_nodes, 0, self.entries)

    def largest(self, clusters: Tensor, parts_per_batch: int) -> int:
        """For a batch of the largest clusters."""
        sizes = torch.bincount(clusters)
        chosen = torch.isin(clusters, sizes.argsort(descending=True)[:parts_per_batch])
        batch = self.graph.batch(chosen.nonzero()[:, 0])
        return self.bytes_for(batch.num_nodes, batch.num_halo, batch.block().num_entries)

    def tried(self, clusters: Tensor | None, parts_per_batch: int) -> int:
        """The same by a small step that is tried, for any model; None for all nodes."""
        if clusters is None:
            sizes = BatchSizes(self.graph.num_nodes, 0, self.entries, 0, 0)
        else:
            sizes = BatchSizes.of_largest(self.graph, clusters, parts_per_batch)
        step = step_bytes(self.graph, self.model, self.estimator, sizes, self.precision).with_batches(1)
        return self._counted(Need(self.kept_bytes * self.remembered_nodes, step))

    def guessed(self, parts: int) -> int:
        """For one of this many clusters, which are not made yet, as if each of its edges led outside."""
        nodes, messages = -(-self.graph.num_nodes // parts), self.entries // parts
        return self.bytes_for(nodes, min(messages, self.graph.num_nodes - nodes), messages)


def check_memory(
    graph: Graph,
    model: Model,
    estimator: Estimator,
    sampler: Sampler,
    precision: Precision,
    device: torch.device = HOST,
    history_memory: int | None = None,
) -> int | None:
    """Raise ArgumentError where the run needs more than is free, with a setting that fits.

    Returns:
        Bytes that are left beside a step, or for a step over the whole graph where that fits; None where
        nobody says.
    """
    free = memory_use.free() if device == HOST else free_memory(device)
    outside = ever_outside(sampler)
    remembered = graph.num_nodes if outside is None else len(outside)
    needs = RunNeeds(graph, model, estimator, remembered, precision, device, history_memory)
    if free is None:
        return None
    if sizes := estimator.expected_sizes(graph, model):
        if (needed := needs.bytes_for_drawn(sizes)) > free:
            advice = "a smaller batch_size, or fewer drawn for each layer, needs less"
            raise ArgumentError(
                f"{type(estimator).__name__}: training needs {_gb(needed)}, {_gb(free)} are free; {advice}"
            )
        return free - needed
    # Formulas are for a GCN, and may say a third too much: what they do not know or nearly allow is tried.
    by_formula = isinstance(model, GCN) or LARGEST_RATIO * needs.whole <= free
    if needs.whole <= free and by_formula:
        return free - needs.whole
    clusters, size, most = None, "parts_per_batch", 1
    if isinstance(sampler, ClusterSampler) and not estimator.passes_over_graph:
        clusters, (size, most) = sampler.clusters, sampler.largest
    if clusters is None:  # each step is one over the whole graph
        given, needed = type(estimator).__name__, needs.whole
    else:
        given, needed = f"{size}={most}", needs.largest(clusters, most)
    too_much = needed > TOO_MUCH * free
    if (needed > free or not by_formula) and not too_much:
        needed = needs.tried(clusters, most)
    if needed <= free:
        return free - needed
    advice = f"memory={_gb(free).replace(' ', '')!r} chooses what fits"
    if by_formula or too_much:
        if clusters is None:
            needs = RunNeeds(graph, model, LMC(), graph.num_nodes, precision, device)
        advice = next(_advice(needs, clusters, size, most, free), "fewer hidden units need less")
    raise ArgumentError(f"{given}: training needs {_gb(needed)}, {_gb(free)} are free; {advice}")


def _advice(needs: RunNeeds, clusters: Tensor | None, size: str, most: int, free: int) -> Iterator[str]:
    """Settings that fit, the nearest first; `size` is what says how many clusters a batch has, now `most`."""
    parts = 1
    if clusters is not None:
        parts = int(clusters.max()) + 1
        while most > 1:
            most //= 2
            if (needed := needs.largest(clusters, most)) <= free:
                yield f"parts={parts}, {size}={most} fits ({_gb(needed)})"
    while (parts := 2 * parts) <= needs.graph.num_nodes:
        if (needed := needs.guessed(parts)) <= free:
            method = "LMC with " if clusters is None else ""
            yield f"{method}parts={parts}, {size}=1 fits ({_gb(needed)})"


def _gb(size: int) -> str:
    return f"{size / 1e9:.2g} GB"
