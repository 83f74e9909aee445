"""Appendix: LMC over alpha and over the score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lmc.paper import numbers
from lmc.paper.outcome import Outcome, ResultTable, Value, ranked
from lmc.paper.setup import (
    LARGE_BATCH,
    SMALL_BATCH,
    Scale,
    about_data,
    at_best,
    settings_of,
    trained,
    with_method,
    with_progress,
)

# Learning rates by clusters a batch. The paper takes 1e-4 for one cluster, over many more epochs.
RATES = {1: 1e-3, 40: 1e-2}
BEST = {1: SMALL_BATCH, 40: LARGE_BATCH}


def beta_alpha(scale: Scale) -> Outcome:
    """Accuracy over alpha, the score at its best."""
    return _searched(scale, "alpha", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), numbers.BETA_ALPHA)


def beta_score(scale: Scale) -> Outcome:
    """Accuracy over the score, alpha at its best."""
    return _searched(scale, "score", ("2x-x^2", "1", "x^2", "x", "sin"), numbers.BETA_SCORE)


def _searched(
    scale: Scale, option: str, values: Iterable[Any], paper: Mapping[int, Mapping[Any, float]]
) -> Outcome:
    graphs, seeds, epochs = scale.graphs("arxiv"), scale.seeds(1), scale.epochs_of(20)
    outcome = Outcome({"runs": len(seeds), "epochs": epochs, "learning rates": RATES}, about_data(graphs))
    outcome.differences.append(f"{epochs} epochs, and learning rates for so few of them.")
    for name, graph in graphs.items():
        settings = settings_of("GCN", name)
        outcome.settings[name] = settings
        rows: list[list[Value]] = []
        for size, lr in RATES.items():
            best = {}
            for value in with_progress(values, f"{option} at {size} of 80 clusters"):
                run = with_method(settings, BEST[size] | {option: value})
                results = [
                    trained(graph, run, s, lr=lr, parts=80, parts_per_batch=size, epochs=epochs)
                    for s in seeds
                ]
                best[str(value)] = at_best(results, "val")
                tests = at_best(results, "test")
                rows.append([size, str(value), best[str(value)], tests, paper[size].get(value)])
            outcome.findings.append(f"{name}, {size} of 80, best val by {option}: {ranked(best)}.")
        heads = ["clusters", option, "best val, %", "test, %", "paper, %"]
        outcome.tables.append(ResultTable(f"{name}: LMC over {option}", heads, rows))
    return outcome
