"""From the option `shards` to what makes steps of it."""

from __future__ import annotations

from torch import Tensor

from lmc.batching.samplers import ClusterSampler, Sampler, WholeGraph, ever_outside
from lmc.batching.shard_sampler import ShardedSampler, shards_of
from lmc.batching.shards import cut_into_shards
from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator
from lmc.estimators.history_estimator import HistoryEstimator
from lmc.estimators.shard_places import ShardPlaces
from lmc.estimators.sharded import Sharded
from lmc.estimators.spider import Spider
from lmc.estimators.top import TOP
from lmc.processes import Processes
from lmc.training.options import TrainingOptions


def check_sharing(estimator: Estimator, options: TrainingOptions) -> None:
    """Raise ArgumentError where a method has no steps over shards."""
    shards = options.shards
    if shards == 1:
        return
    if isinstance(estimator, Spider):
        raise ArgumentError(f"shards={shards}: Spider has one batch a step; must be 1")
    if isinstance(estimator, TOP) and estimator.basis == "history":
        raise ArgumentError(f"shards={shards}: bases of histories read those of all nodes; must be 1")
    if options.histories == "disk":
        raise ArgumentError(f"shards={shards}: histories='disk' are of the whole graph; must be in memory")


def in_shards(
    graph: Graph, estimator: Estimator, sampler: Sampler, shards: int, processes: Processes
) -> Sampler:
    """The sampler with a batch of each shard; itself where there is one, or where a batch is everything."""
    if shards == 1 or isinstance(sampler, WholeGraph):
        return sampler
    if not isinstance(sampler, ClusterSampler):
        rule = f"batches of {type(estimator).__name__} are not made of clusters; must be 1"
        raise ArgumentError(f"shards={shards}: {rule}")
    of_cluster = cut_into_shards(graph, sampler.clusters, shards)
    return ShardedSampler(sampler, of_cluster, shards_of(processes.rank, processes.count, shards))


def remembered_in(
    graph: Graph, estimator: Estimator, sampler: Sampler, processes: Processes
) -> Tensor | ShardPlaces | None:
    """Which nodes have a place in histories."""
    if not isinstance(sampler, ShardedSampler) or not isinstance(estimator, HistoryEstimator):
        return ever_outside(sampler)
    of_process = [shards_of(rank, processes.count, sampler.shards) for rank in range(processes.count)]
    return ShardPlaces(graph, sampler.clusters, sampler.of_cluster, of_process, processes.rank)


def stepping(estimator: Estimator, sampler: Sampler, processes: Processes) -> Estimator:
    """What estimates a step: the bound estimator itself, or over its shards."""
    if not isinstance(sampler, ShardedSampler):
        return estimator
    nodes = estimator.nodes if isinstance(estimator, HistoryEstimator) and estimator.stores else None
    places = nodes if isinstance(nodes, ShardPlaces) else None
    return Sharded(estimator, sampler, places, processes)
