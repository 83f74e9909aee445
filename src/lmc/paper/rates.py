"""The rates of section TOP-SPIDER: nodes visited until the full gradient is small, by SGD and by SPIDER."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, product, takewhile
from typing import NamedTuple

import numpy as np
import torch

from lmc.batching.samplers import BatchOptions
from lmc.data.graph import Graph
from lmc.data.synthetic import synthetic
from lmc.estimators.backward_sgd import BackwardSGD
from lmc.estimators.estimator import Estimator
from lmc.estimators.full_batch import FullBatch
from lmc.estimators.lmc import LMC
from lmc.estimators.spider import Spider
from lmc.estimators.top import TOP
from lmc.nn.gcn import GCN
from lmc.paper.followed import GAP, followed
from lmc.paper.outcome import Outcome, ResultTable, Value
from lmc.paper.setup import Scale, with_progress
from lmc.report.charts import Chart, Line, Style

PARTS, SIZES = 40, (2, 8)
"""Clusters of the graph, and of a small batch; a large one has all."""
EVERY = (5, 20)
RATES = (0.3, 0.1, 0.03)
GD = "full batch"
INNER: dict[str, Callable[[], Estimator]] = {"backward SGD": BackwardSGD, "LMC": LMC, "TOP": TOP}
THEOREMS = {"LMC": 6, **{f"SPIDER over {name}": 3 for name in INNER}}
"""The exponents of 1/ε: theorem 3, and that of the section, which is of TOP."""
GOALS = (2, 3, 4, 6)
"""Parts of the first gradient's norm that are asked for: a half, and so on."""


class Setting(NamedTuple):
    """How one training was made."""

    size: int
    every: int | None
    rate: float


class Curve(NamedTuple):
    """What one training went through.

    Attributes:
        visited: nodes, before each step that was looked at.
        norms: of the full gradient there.
        reached: means of the norms so far, over steps: the expectation for one of them, drawn uniformly.
    """

    visited: list[int]
    norms: list[float]
    reached: list[float]

    def until(self, goal: float) -> float:
        """Nodes visited when the mean is first no more than this; infinity for never.

        >>> Curve([0, 10, 20], [1.0, 0.2, 0.3], [1.0, 0.6, 0.5]).until(0.6)
        10
        """
        return next((v for v, mean in zip(self.visited, self.reached, strict=True) if mean <= goal), np.inf)


Curves = Mapping[Setting, Curve]


def rates(scale: Scale, outcome: Outcome) -> None:
    """Trainings by plain SGD with constant rates, over a grid; the best of them for every ε."""
    graph, epochs = synthetic(nodes=1000, features=16, classes=4), scale.epochs_of(120)
    seeds, tried = scale.seeds(1), RATES[:1] if scale.quick else RATES
    outcome.settings["rates"] = {
        "graph": repr(graph),
        "model": "GCN 2 x 32",
        "clusters": PARTS,
        "clusters a small batch": SIZES,
        "steps from one large batch to the next": EVERY,
        "learning rates": tried,
        "epochs' worth of nodes": epochs,
        "runs": len(seeds),
    }
    outcome.differences.append(
        "Rates: a graph small enough for exact gradients, a GCN without dropout and norm, SGD with constant"
        " rates. The norm that is reached is the mean over all steps so far: the theorems speak of a step"
        f" drawn uniformly; each {GAP}th is looked at. They choose rates and sizes by ε: for every ε, the"
        " fewest nodes of any rate, size and q are taken. A batch counts once, as in the theorem, though"
        " small ones of SPIDER are computed twice; its large ones have the whole graph."
    )
    found = {
        name: {setting: _curve(graph, make, setting, epochs, seeds) for setting in settings}
        for name, (make, settings) in with_progress(_grid(tried).items(), "rates")
    }
    first = found[GD][Setting(PARTS, None, RATES[0])].norms[0]
    outcome.tables += [_by_setting(found), _by_goal(found, first)]
    slopes = {name: slope(curves, first) for name, curves in found.items()}
    outcome.findings.append(
        "Rates: nodes visited grow as ε to the power of "
        + ", ".join(f"-{power:.1f} ({name})" for name, power in slopes.items() if power is not None)
        + "; the bounds are -6 of LMC and -3 of SPIDER, and hold for any smooth loss."
    )
    lowest = {name: min(curve.reached[-1] for curve in curves.values()) for name, curves in found.items()}
    outcome.findings.append(
        "Rates: the lowest mean norm after as many nodes: "
        + ", ".join(f"{name} {value:.4f}" for name, value in lowest.items())
        + "."
    )
    outcome.figures["rates"] = [_envelopes(found, first), _norms(found)]


def slope(curves: Curves, first: float) -> float | None:
    """The power of 1/ε by which the fewest nodes grow, by least squares of logarithms; None for one point.

    Of twelve ε, from a half of the first norm to the lowest that is reached.

    >>> norms = [nodes**-0.5 for nodes in range(4, 400)]
    >>> round(slope({Setting(1, None, 0.1): Curve([*range(4, 400)], norms, norms)}, 1.0), 1)
    2.0
    """
    goals, nodes = envelope(curves, first)
    if len(set(nodes)) < 2:
        return None
    return float(np.polyfit(-np.log(goals), np.log(nodes), 1)[0])


def envelope(curves: Curves, first: float) -> tuple[list[float], list[float]]:
    """Norms, falling, and the fewest nodes that any of the trainings needs to each; none where none is."""
    lowest = min(min(curve.reached) for curve in curves.values())
    if lowest >= first / 2:
        return [], []
    goals = np.geomspace(first / 2, lowest * (1 + 1e-9), 12).tolist()
    return goals, [min(curve.until(goal) for curve in curves.values()) for goal in goals]


def _grid(tried: Sequence[float]) -> dict[str, tuple[Callable[[], Estimator], list[Setting]]]:
    """Estimators without `Spider`, and what they are tried with."""
    plain = [Setting(*each) for each in product(SIZES, (None,), tried)]
    spider = [Setting(*each) for each in product(SIZES, EVERY, tried)]
    whole = [Setting(PARTS, None, rate) for rate in tried]
    grid: dict[str, tuple[Callable[[], Estimator], list[Setting]]] = {GD: (FullBatch, whole)}
    for name, make in INNER.items():
        grid |= {name: (make, plain), f"SPIDER over {name}": (make, spider)}
    return grid


def _curve(
    graph: Graph, make: Callable[[], Estimator], setting: Setting, epochs: int, seeds: Sequence[int]
) -> Curve:
    """The mean of several runs, which differ in their batches."""
    runs = []
    for seed in seeds:
        torch.manual_seed(0)
        model = GCN(graph.num_features, 32, graph.num_classes, layers=2)
        estimator = make() if setting.every is None else Spider(make(), setting.every, PARTS)
        batches = BatchOptions(PARTS, setting.size, seed=seed, balance="none")
        optimizer = torch.optim.SGD(model.parameters(), lr=setting.rate)
        points = followed(graph, model, estimator, batches, optimizer, epochs)
        runs.append(takewhile(lambda point: point.visited < epochs * graph.num_nodes, points))
    steps = list(zip(*runs, strict=False))  # clusters differ in size, and so do runs by a step
    norms = [statistics.fmean(point.norm for point in points) for points in steps]
    means = [total / (count + 1) for count, total in enumerate(accumulate(norms))]
    return Curve([points[0].visited for points in steps], norms, means)


def _by_setting(found: Mapping[str, Curves]) -> ResultTable:
    """Every size and q, at the best of the rates."""
    rows: list[list[Value]] = []
    for name, curves in found.items():
        for size, every in dict.fromkeys((setting.size, setting.every) for setting in curves):
            alike = {s: curve for s, curve in curves.items() if (s.size, s.every) == (size, every)}
            best = min(alike, key=lambda setting: alike[setting].reached[-1])
            settled = statistics.fmean(alike[best].norms[-max(1, len(alike[best].norms) // 10) :])
            rows.append([name, size, every, f"{best.rate:g}", alike[best].reached[-1], settled])
    heads = ["method", "clusters a batch", "q", "best rate", "mean norm", "of the last tenth of steps"]
    return ResultTable("||∇L|| after as many nodes visited", heads, rows, digits=4)


def _by_goal(found: Mapping[str, Curves], first: float) -> ResultTable:
    """The fewest nodes to some norms, and how they grow."""
    rows: list[list[Value]] = []
    for name, curves in found.items():
        needed = [min(curve.until(first / goal) for curve in curves.values()) for goal in GOALS]
        thousands = [None if nodes == np.inf else nodes / 1e3 for nodes in needed]
        lowest = f"{min(min(curve.reached) for curve in curves.values()):.4f}"
        rows.append([name, *thousands, lowest, slope(curves, first), THEOREMS.get(name)])
    heads = ["method", *(f"to 1/{goal}" for goal in GOALS), "lowest ε", "power of 1/ε", "theorem's"]
    return ResultTable(f"Thousand nodes until the mean ||∇L|| is a part of {first:.3f}", heads, rows)


def _envelopes(found: Mapping[str, Curves], first: float) -> Chart:
    lines = []
    for number, (name, curves) in enumerate(found.items()):
        goals, nodes = envelope(curves, first)
        lines.append(Line(name, Style.of(number), nodes, goals))
    return Chart("nodes visited", "ε: mean norm of the full gradient", lines, decades=True, x_decades=True)


def _norms(found: Mapping[str, Curves]) -> Chart:
    """The norm itself, smoothed, at the smallest batches, the largest rate and the larger q."""
    lines = []
    for number, (name, curves) in enumerate(found.items()):
        every = EVERY[-1] if name.startswith("SPIDER") else None
        curve = curves.get(Setting(SIZES[0], every, RATES[0]))
        if curve is not None:
            visited, norms = (_blocks(values) for values in (curve.visited, curve.norms))
            lines.append(Line(name, Style.of(number), visited, norms))
    return Chart(
        "nodes visited",
        "norm of the full gradient",
        lines,
        decades=True,
        title=f"rate {RATES[0]:g}, {SIZES[0]} of {PARTS} clusters, q = {EVERY[-1]}",
    )


def _blocks(values: Sequence[float]) -> list[float]:
    """The means of up to twenty-five consecutive parts."""
    parts = np.array_split(np.array(values, dtype=float), min(25, len(values)))
    return [float(part.mean()) for part in parts]
