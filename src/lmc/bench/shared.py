"""What several processes cost and give: time, memory, and what goes from one to the other."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.table import Table
from torch import Tensor

from lmc.batching.partition import partition
from lmc.batching.samplers import ClusterSampler
from lmc.batching.shard_sampler import ShardedSampler, shards_of
from lmc.batching.shards import cut_into_shards
from lmc.data.graph import Graph
from lmc.errors import RunError
from lmc.estimators.shard_places import ShardPlaces

PARTS, PER_BATCH, EPOCHS = 80, 10, 4
WIDTH, LAYERS = 256, 3
MODEL = ("--model", "gcn", "--hidden", WIDTH, "--layers", LAYERS, "--norm", "batch", "--dropout", 0.5)
RUN = ("--alpha", "0", "--parts", PARTS, "--parts-per-batch", PER_BATCH, "--epochs", EPOCHS)
KEPT = ("--checkpoint", "none", "--evaluate-every", EPOCHS, "--device", "cpu", "--json")


class Cost(NamedTuple):
    """Of an epoch: seconds, and the most bytes that the first process held."""

    seconds: float
    memory: int


class Rows(NamedTuple):
    """Historical rows that go from one process to another in an epoch, for each node of the graph.

    Attributes:
        once: where each row that is read elsewhere goes once.
        batches: as it is.
        of_one: with batches of one cluster each.
    """

    once: float
    batches: float
    of_one: float


def cost(data: str, root: str | None, shards: int, processes: int) -> Cost:
    """Of a run with these shards, by so many processes of this machine that share its cores."""
    where = () if root is None else ("--root", root)
    how = () if processes == 1 else ("--processes", processes)
    with tempfile.TemporaryDirectory() as folder:
        given = (
            "--data",
            data,
            *where,
            *MODEL,
            *RUN,
            *KEPT,
            "--shards",
            shards,
            *how,
            "--out",
            Path(folder) / "a",
        )
        command = [sys.executable, "-m", "lmc", "train", *map(str, given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{processes} processes: {done.stderr.strip().splitlines()[-1]}")
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    seconds = [record["seconds"] for record in records[1:]]  # the first one also compiles
    return Cost(statistics.median(seconds), max(record["memory"] for record in records))


def rows_exchanged(
    graph: Graph, shards: int, clusters: Tensor | None = None, per_batch: int = PER_BATCH
) -> Rows:
    """With a process for each shard.

    Args:
        graph: the graph.
        shards: how many.
        clusters: (nodes,) the cluster of each; None for those of `cost`.
        per_batch: clusters in a batch.
    """
    clusters = partition(graph, PARTS) if clusters is None else clusters
    cut = Cut.of(graph, clusters, shards)
    most = (int(clusters.max()) + 1) // shards
    return Rows(cut.once, cut.in_an_epoch(min(per_batch, most)), cut.in_an_epoch(1))


class Cut(NamedTuple):
    """A graph in shards, each of a process of its own."""

    graph: Graph
    clusters: Tensor
    of_cluster: Tensor
    places: list[ShardPlaces]

    @staticmethod
    def of(graph: Graph, clusters: Tensor, shards: int) -> Cut:
        """By so many processes."""
        of_cluster = cut_into_shards(graph, clusters, shards)
        of_process = [shards_of(rank, shards, shards) for rank in range(shards)]
        each = (ShardPlaces(graph, clusters, of_cluster, of_process, rank) for rank in range(shards))
        return Cut(graph, clusters, of_cluster, list(each))

    @property
    def once(self) -> float:
        """Rows a node that somebody else reads, each counted once for each shard that does."""
        inboxes = sum(len(each) - sum(map(len, each.own.values())) for each in self.places)
        return inboxes / self.graph.num_nodes

    def in_an_epoch(self, per_batch: int) -> float:
        """Rows a node that are sent, by batches of so many clusters."""
        whole = ClusterSampler(self.graph, self.clusters, per_batch, balance="labels")
        sampler = ShardedSampler(whole, self.of_cluster)
        groups = [sampler.turn(iter(()), 0, step).groups for step in range(sampler.steps)]
        rows = sum(len(each.exchange(of_step).targets) for of_step in groups for each in self.places)
        return rows / self.graph.num_nodes


def table(graph: Graph, one: Cost, several: Cost, processes: int) -> Table:
    """One process with all cores beside several that share them."""
    rows = rows_exchanged(graph, processes)
    found = Table(title=f"LMC {PARTS}/{PER_BATCH}, alpha 0, in {processes} shards")
    for column in ("", "1 process", f"{processes} processes", "ratio"):
        found.add_column(column, justify="left" if not column else "right")
    found.add_row("epoch, s", *(f"{each:.2f}" for each in (one[0], several[0], several[0] / one[0])))
    megabytes = (f"{each / 1e6:,.0f}" for each in (one.memory, several.memory))
    found.add_row("memory of the first process, MB", *megabytes, f"{several.memory / one.memory:.2f}")
    found.add_row("rows a node and epoch, each once", "", f"{rows.once:.3f}", "")
    for name, each in (("as sent", rows.batches), ("with batches of one cluster", rows.of_one)):
        found.add_row(f"rows a node and epoch, {name}", "", f"{each:.3f}", f"{each / rows.once:.2f}")
    return found
