"""From the option `shards` to what makes steps of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmc.batching.choice import Choice
from lmc.batching.descriptors import ClusterDescriptors
from lmc.batching.samplers import BatchOptions, ClusterSampler, Sampler, WholeGraph, ever_outside
from lmc.batching.shard_sampler import ShardedSampler, shards_of
from lmc.batching.shards import cut_into_shards
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.data.set_once import with_arrays
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator
from lmc.estimators.history_estimator import HistoryEstimator
from lmc.estimators.shard_places import ShardPlaces
from lmc.estimators.sharded import Sharded
from lmc.estimators.spider import Spider
from lmc.estimators.top import TOP
from lmc.nn.inference import predict
from lmc.nn.model import Model
from lmc.precision import Precision
from lmc.processes import Processes
from lmc.training.options import TrainingOptions


def check_divides(shards: int, count: int) -> None:
    """Raise ArgumentError unless so many processes can share so many shards."""
    if shards % count:
        rule = f"{count} processes cannot share them; shards must be a multiple of {count}"
        raise ArgumentError(f"shards={shards}: {rule}")


def check_sharing(estimator: Estimator, options: TrainingOptions, processes: Processes) -> None:
    """Raise ArgumentError where a method has no steps over shards, or processes cannot share them."""
    shards = options.shards
    check_divides(shards, processes.count)
    if shards == 1:
        return
    if isinstance(estimator, Spider):
        raise ArgumentError(f"shards={shards}: Spider has one batch a step; must be 1")
    if isinstance(estimator, TOP) and estimator.basis == "history":
        raise ArgumentError(f"shards={shards}: bases of histories read those of all nodes; must be 1")
    if options.histories == "disk":
        raise ArgumentError(f"shards={shards}: histories='disk' are of the whole graph; must be in memory")


def shared_sampler(
    graph: Graph, estimator: Estimator, options: BatchOptions, processes: Processes
) -> Sampler:
    """What yields a method's batches; the first process cuts the graph for all."""
    if processes.count == 1:
        return in_shards(graph, estimator, estimator.make_sampler(graph, options), options.shards, processes)
    sampler = estimator.make_sampler(graph, options) if processes.rank == 0 else None
    processes.meet()
    clusters = torch.zeros(0, dtype=torch.int64)
    if isinstance(sampler, ClusterSampler):
        clusters, options = sampler.clusters, replace(options, choice=sampler.choice)
    chosen = processes.share_bytes(json.dumps(options.choice).encode()).decode()
    cut = torch.from_numpy(np.frombuffer(processes.share_bytes(clusters.numpy().tobytes()), np.int64).copy())
    if sampler is None:
        choice = None if chosen == "null" else Choice(*json.loads(chosen))
        sampler = estimator.make_sampler(graph, replace(options, choice=choice, clusters=cut))
    return in_shards(graph, estimator, sampler, options.shards, processes)


def in_shards(
    graph: Graph, estimator: Estimator, sampler: Sampler, shards: int, processes: Processes
) -> Sampler:
    """The sampler with a batch of each shard; itself where there is one, or where a batch is everything."""
    if shards == 1 or isinstance(sampler, WholeGraph):
        return sampler
    if not isinstance(sampler, ClusterSampler):
        rule = f"batches of {type(estimator).__name__} are not made of clusters; must be 1"
        raise ArgumentError(f"shards={shards}: {rule}")
    if graph.shards == shards:
        of_cluster = torch.arange(shards).repeat_interleave(int(sampler.clusters[-1] + 1) // shards)
    else:
        of_cluster = cut_into_shards(graph, sampler.clusters, shards)
    return ShardedSampler(sampler, of_cluster, shards_of(processes.rank, processes.count, shards))


def remembered_in(
    graph: Graph, estimator: Estimator, sampler: Sampler, processes: Processes
) -> Tensor | ShardPlaces | None:
    """Which nodes have a place in histories."""
    if not isinstance(sampler, ShardedSampler) or not isinstance(estimator, HistoryEstimator):
        return ever_outside(sampler)
    of_process = [shards_of(rank, processes.count, sampler.shards) for rank in range(processes.count)]
    places = ShardPlaces(graph, sampler.clusters, sampler.of_cluster, of_process, processes.rank)
    if graph.scratch is not None and processes.count > 1:
        graph.within = places.members
    return places


def of_this_training(graph: Graph, processes: Processes) -> Graph:
    """The graph; of one on disk that processes share, one that may be told which nodes are of use here."""
    return graph if graph.scratch is None or processes.count == 1 else with_arrays(graph)


def steps_of(
    estimator: Estimator, sampler: Sampler, processes: Processes, overlap: bool = False
) -> Estimator:
    """What estimates a step: the bound estimator itself, or over its shards."""
    if not isinstance(sampler, ShardedSampler):
        return estimator
    nodes = estimator.nodes if isinstance(estimator, HistoryEstimator) and estimator.stores else None
    places = nodes if isinstance(nodes, ShardPlaces) else None
    return Sharded(estimator, sampler, places, processes, overlap)


def predicted_by(
    processes: Processes, graph: Graph, model: Model, sampler: Sampler, precision: Precision = "full"
) -> Tensor:
    """(nodes, out) predictions of all nodes, by processes that call this together."""
    shards = sampler.of_node if isinstance(sampler, ShardedSampler) else None
    return predict(graph, model, precision=precision, processes=processes, shards=shards)


def agreed_stop(processes: Processes, reason: str | None) -> str | None:
    """Why the run is to end after this step: what the first process says that has a reason."""
    if processes.count == 1:
        return reason
    if not any(map(bool, processes.gather(torch.tensor(reason is not None)))):
        return None
    return next(filter(None, processes.texts(reason or "")))


def gather_descriptors(seen: ClusterDescriptors, sampler: Sampler, processes: Processes) -> None:
    """Have every process know what the steps of all have shown of clusters."""
    if processes.count > 1 and isinstance(sampler, ShardedSampler) and seen.now is not None:
        each = processes.count * sampler.of_cluster // sampler.shards  # the process of every cluster
        of_all = torch.stack(processes.gather(seen.now))
        seen.now = of_all[each, torch.arange(len(each))]


def shard_states(stepping: Estimator) -> Iterator[dict[str, Tensor]]:
    """What is of one shard each, in their order, on the first process; nothing where there is one shard."""
    if isinstance(stepping, Sharded):
        yield from stepping.states()


def load_shards(stepping: Estimator, files: Sequence[Callable[[], dict[str, Tensor]]]) -> None:
    """Go on from the states of shards; ValueError where no such run wrote them.

    Args:
        stepping: what estimates a step.
        files: give the state of a shard each, in their order; the first process alone asks them.
    """
    wanted = stepping.kept_shards if isinstance(stepping, Sharded) else 0
    if len(files) != wanted:
        raise ValueError(f"it has files of {len(files)} shards; must be {wanted}")
    if isinstance(stepping, Sharded):
        for number, read in enumerate(files):
            stepping.load_state_of(number, read)


def taken(sampler: Sampler, coming: Iterator[Batch], epoch: int, step: int) -> Any:
    """What a step takes: the next batch, or one of each shard."""
    return sampler.turn(coming, epoch, step) if isinstance(sampler, ShardedSampler) else next(coming)


def takes(sampler: Sampler, epoch: int) -> Any:
    """What all steps of an epoch take."""
    return sampler.turns(epoch) if isinstance(sampler, ShardedSampler) else sampler.epoch(epoch)
