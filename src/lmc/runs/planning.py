"""`memory=`: a run that is planned before it begins, and that goes on by the same plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from lmc import checks, typed
from lmc.batching.prepare import prepare
from lmc.data.graph import Graph
from lmc.data.prepared import MANIFEST
from lmc.data.prepared_graph import PreparedGraph
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator
from lmc.files import write_atomically
from lmc.malloc import short_of_memory
from lmc.nn.model import Model
from lmc.runs.folder import PLAN, PREPARED
from lmc.runs.text_files import content_of, in_file, json_of
from lmc.training.callbacks import Callback
from lmc.training.options import TrainingOptions
from lmc.training.plan import fitting_parts, make_plan

OPTIONS = ("parts", "parts_per_batch", "histories", "history_cache", "background")
KEPT = (*OPTIONS, "keeps_buffers")


@contextmanager
def planned(
    graph: Graph,
    model: Model,
    estimator: Estimator,
    options: TrainingOptions,
    folder: Path | None,
    resume: bool,
    callbacks: Sequence[Callback],
) -> Iterator[tuple[Graph, TrainingOptions]]:
    """The graph and the options of a run that keeps to `options.memory`; as they are where nothing is said.

    A graph that stays on disk is prepared in the folder of the run, if it has not been. In this context the
    process keeps no more memory than the plan has room for.
    """
    if options.memory is None:
        yield graph, options
        return
    memory = checks.byte_count("memory", options.memory)
    with ExitStack() as stack:
        stack.enter_context(short_of_memory())
        given = (graph, model, estimator, options, memory, folder, resume, callbacks)
        graph, options, keeps_buffers = _planned(*given)
        if keeps_buffers:
            stack.close()
        yield graph, options


def _planned(
    graph: Graph,
    model: Model,
    estimator: Estimator,
    options: TrainingOptions,
    memory: int,
    folder: Path | None,
    resume: bool,
    callbacks: Sequence[Callback],
) -> tuple[Graph, TrainingOptions, bool]:
    """Graph and options, and whether large buffers may be kept."""
    if folder is not None and graph.scratch is not None and graph.by_cluster.cluster_starts is None:
        for callback in callbacks:
            callback.on_phase("preparing the graph")
        parts = options.parts or fitting_parts(graph, model, estimator, options.precision, memory)
        graph = _prepared(graph, folder / PREPARED, replace(options, parts=parts), memory)
    if resume and folder is not None and (folder / PLAN).exists():
        return graph, *_read(folder / PLAN, options)
    for callback in callbacks:
        callback.on_phase("planning memory")
    plan = make_plan(graph, model, estimator, options, memory, to_disk=folder is not None)
    for callback in callbacks:
        callback.on_plan(plan)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps({name: getattr(plan, name) for name in KEPT}, indent=2).encode()
        write_atomically(folder / PLAN, lambda file: file.write(content))
    return graph, plan.applied_to(options), plan.keeps_buffers


def _prepared(graph: Graph, folder: Path, options: TrainingOptions, memory: int) -> Graph:
    """The graph in a folder, where it is prepared first, unless that was done before."""
    if not (folder / MANIFEST).exists():
        asked = options
        prepare(graph, folder, parts=asked.parts, partition=asked.partition, seed=asked.seed, memory=memory)
    found = PreparedGraph(folder)
    if (found.num_nodes, found.num_edges) != (graph.num_nodes, graph.num_edges):
        raise ArgumentError(f"{folder}: was prepared of another graph; remove it, or choose another folder")
    return found


def _read(file: Path, options: TrainingOptions) -> tuple[TrainingOptions, bool]:
    """The options of a run that goes on by its plan, and whether large buffers may be kept.

    RunError where it could not have been written.
    """
    failing = in_file(str(file))
    kept = typed.read("", json_of(str(file), content_of(file)), dict[str, object], failing)
    if set(kept) != set(KEPT):
        raise failing(f"must have {', '.join(KEPT)}")
    if not isinstance(keeps_buffers := kept.pop("keeps_buffers"), bool):
        raise failing(f"keeps_buffers={checks.shown(keeps_buffers)}: must be true or false")
    try:
        return replace(options, batch_share=None, **kept), keeps_buffers
    except ArgumentError as error:
        raise failing(str(error)) from None
