"""Appendix: seconds an epoch; memory, and the share of messages that each method keeps."""

from __future__ import annotations

import statistics

from lmc.batching.partition import partition
from lmc.batching.reserved import reserved_messages
from lmc.bench.run import peaks_of, seconds_of
from lmc.data.datasets import is_at_hand
from lmc.paper import numbers
from lmc.paper.outcome import Outcome, ResultTable, Value
from lmc.paper.setup import (
    LARGE,
    METHOD_SETTINGS,
    Scale,
    about_data,
    console,
    job_of,
    settings_of,
    with_method,
)
from lmc.runs.config import merged
from lmc.runs.mean_of_runs import MeanOfRuns

GRAPHS = (*LARGE, "flickr-graph")
NAMES = {"CLUSTER": "ClusterGCN", "GAS": "GAS", "LMC": "LMC"}


def epoch_time(scale: Scale) -> Outcome:
    """Seconds of an epoch, the methods taking turns."""
    graphs, rounds = scale.graphs("arxiv"), scale.runs or (1 if scale.quick else 5)
    outcome = Outcome({"rounds": rounds}, about_data(graphs))
    for name in graphs:
        rows: list[list[Value]] = []
        for model in scale.models():
            settings = settings_of(model, name)
            outcome.settings[f"{name}, {model}"] = settings
            methods = {m: METHOD_SETTINGS[m] for m in ("CLUSTER", "GAS", "FM")} | {"LMC": settings["method"]}
            jobs = {m: job_of(with_method(settings, given), name, scale.root) for m, given in methods.items()}
            found = seconds_of(jobs, rounds, f"epoch-time, {model}", console())
            for method, seconds in found.items():
                paper = numbers.EPOCH_TIME.get(name, {}).get((model, method))
                rows.append([model, method, MeanOfRuns(seconds), paper])
            ratio = statistics.median(found["LMC"]) / statistics.median(found["GAS"])
            outcome.findings.append(f"{model} on {name}: an epoch of LMC takes {ratio:.2f} times one of GAS.")
        outcome.tables.append(
            ResultTable(f"{name}: seconds an epoch", ["model", "method", "here", "paper"], rows)
        )
    return outcome


def memory(scale: Scale) -> Outcome:
    """Peak memory of a step above the data, and the messages that take part, forward and backward."""
    # Flickr's graph alone stands in for it.
    graphs = scale.graphs(*(LARGE if is_at_hand("flickr", scale.root) else GRAPHS))
    outcome = Outcome({}, about_data(graphs))
    outcome.differences.append(
        "Memory is that of a step above features, graph and histories; the paper's is all that a GPU holds."
    )
    for name, graph in graphs.items():
        known = name.removesuffix("-graph")
        settings = settings_of("GCN", known)
        parts = settings["training"]["parts"]
        outcome.settings[name] = settings
        clusters = partition(graph, parts)
        sizes = {"1": 1, "default": settings["training"]["parts_per_batch"]}
        runs = {("all", "GD"): with_method(settings, METHOD_SETTINGS["GD"])}
        for batch, size in sizes.items():
            sized = merged(settings, {"training": {"parts_per_batch": size}})
            runs |= {
                (batch, m): sized if m == "LMC" else with_method(sized, METHOD_SETTINGS[m]) for m in NAMES
            }
        jobs = {" ".join(key): job_of(run, name, scale.root) for key, run in runs.items()}
        peaks = peaks_of(jobs, f"memory on {name}", console()) if graph.num_features else {}
        rows: list[list[Value]] = []
        for (batch, method), run in runs.items():
            share = (1.0, 1.0)
            if method in NAMES:
                share = reserved_messages(graph, clusters, run["training"]["parts_per_batch"])[NAMES[method]]
            peak = peaks.get(f"{batch} {method}")
            paper = numbers.MEMORY.get(known, {}).get((batch, method), (None, None, None))
            here = [None if peak is None else peak / 1e6, 100 * share[0], 100 * share[1]]
            rows.append([batch, method, here[0], paper[0], here[1], paper[1], here[2], paper[2]])
        heads = ["clusters", "method", "MB", "paper", "forward, %", "paper", "backward, %", "paper"]
        outcome.tables.append(ResultTable(f"{name}: memory and reserved messages", heads, rows, digits=0))
        if peaks:
            one, whole = peaks["1 LMC"] / 1e6, peaks["all GD"] / 1e6
            outcome.findings.append(
                f"{name}: a step of LMC with one cluster holds {one:.0f} MB, {one / whole:.2f} of full batch."
            )
        else:
            outcome.differences.append(f"{name} has no features: messages only.")
    return outcome
