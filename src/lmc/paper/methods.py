"""Beyond the paper: every way to train on the same graphs, with as many steps of the same model for each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from lmc.batching.choice import choose_batches
from lmc.bench.run import process_peaks_of
from lmc.checks import counted
from lmc.data.graph import Graph
from lmc.paper.figures import cost_chart
from lmc.paper.outcome import Outcome, ResultTable, Value, against, ranked
from lmc.paper.setup import (
    Scale,
    Tree,
    at_best,
    best_rate,
    console,
    job_of,
    trained,
    with_chosen_batches,
    with_method,
    with_progress,
)
from lmc.paper.small import SETTINGS, row_normalized
from lmc.runs.config import Config, merged
from lmc.runs.mean_of_runs import MeanOfRuns, mean_of
from lmc.runs.methods import understood_by
from lmc.runs.registry import METHODS, TRAINING_METHODS
from lmc.training.options import TrainingOptions
from lmc.training.records import Result, step_memory_of

GRAPHS = ("cora", "citeseer", "pubmed", "amazon_photo", "arxiv")
FULL_BATCH = METHODS["gd"].title
HEADS = [
    "method",
    "learning rate",
    "steps",
    "test, %",
    "seconds",
    "a step, ms",
    "memory of a step, MB",
    "of the process, MB",
]


ABOUT = (
    "The paper has no such table. Every method makes the same number of steps, as far as they come in whole"
    " epochs. Full batch, whose step is an epoch, so has many epochs; the others see each training node"
    " about as often as each other.",
    "A batch is the same share of the graph, or of its training nodes: as many steps an epoch as the clusters"
    " have that are chosen where nothing is said. After as many steps (a round), there is an evaluation.",
    "The learning rate is one of two, whichever has the higher validation accuracy on the seeds that are"
    " searched.",
    "Seconds are those of steps: without evaluation, and without what is done once before them, such as"
    " cutting the graph or counting subgraphs.",
    "Memory of a step is what comes on top of features, graph and histories, in the second epoch. That of the"
    " process is all of it, in a process of its own.",
    "Where a graph has no split, 60 % of its nodes train and 20 % validate, drawn once.",
)


class Budget(NamedTuple):
    """What every method has on a graph.

    Attributes:
        settings: the model and its training, with the batches that are chosen where nothing is said.
        rates: learning rates to choose from.
        steps: of a run.
        runs: how many, each with its own seed.
        searched: of the runs, those by which a learning rate is chosen.
    """

    settings: Tree
    rates: tuple[float, ...]
    steps: int
    runs: int
    searched: int

    def scaled(self, scale: Scale, a_round: int) -> Budget:
        """As much of it as is asked for; an epoch of `--epochs` is a round of so many steps."""
        rounds = scale.epochs_of(round(self.steps / a_round))
        rates = self.rates[:1] if scale.quick else self.rates
        return self._replace(steps=rounds * a_round, runs=len(scale.seeds(self.runs)), rates=rates)


FEW_LABELS = Budget(with_chosen_batches(SETTINGS), rates=(1e-2, 3e-2), steps=200, runs=5, searched=2)
MANY_LABELS = Budget(
    {
        "data": {"name": "arxiv"},
        "model": {"name": "gcn", "hidden": 128, "layers": 3, "dropout": 0.5, "norm": "batch"},
        "method": {"name": "lmc"},
        "training": {"scheduler": "cosine"},
    },
    rates=(1e-2, 3e-3),
    steps=160,
    runs=5,
    searched=2,
)
LARGE = MANY_LABELS._replace(runs=3, searched=1)
MANY, LEAST_LARGE = 1_000, 100_000
"""From how many training nodes on they are many; from how many nodes on a graph is large."""


class Found(NamedTuple):
    """What the runs of a method have shown."""

    rate: float
    steps: int
    test: MeanOfRuns | None
    seconds: MeanOfRuns
    step_bytes: MeanOfRuns | None


def methods(scale: Scale) -> Outcome:
    """Test accuracy at the best validation epoch, in per cent, beside the seconds and the memory it took."""
    outcome = Outcome({}, list(ABOUT))
    for name, graph in scale.graphs(*GRAPHS).items():
        budget = budget_of(graph)
        graph = row_normalized(graph) if budget is FEW_LABELS else graph
        a_round = steps_a_round(graph)
        budget = budget.scaled(scale, a_round)
        trees = {
            METHODS[method].title: with_method(budget.settings, suited(method, graph))
            for method in scale.methods or TRAINING_METHODS
        }
        found = {
            method: trained_within(budget, a_round, graph, tree)
            for method, tree in with_progress(trees.items(), f"methods on {name}")
        }
        jobs = {method: job_of(tree, name, scale.root) for method, tree in trees.items()}
        process = process_peaks_of(jobs, f"memory on {name}", console())
        for method, tree in trees.items():
            if tree["model"] != budget.settings["model"]:
                outcome.differences.append(f"{name}: {method} has a model of its own, {tree['model']}.")
        options = [tree["method"] for tree in trees.values()]
        outcome.settings[name] = budget._asdict() | {"steps a round": a_round, "methods": options}
        _add(outcome, name, f"{name}, mean of {counted(budget.runs, 'run')}", found, process)
        scale.keep(outcome)
    return outcome


def _add(
    outcome: Outcome, name: str, title: str, found: Mapping[str, Found], process: Mapping[str, int]
) -> None:
    """The table of a graph, what it says, and a figure."""
    rows = [[method, *_cells(each), process[method] / 1e6] for method, each in found.items()]
    outcome.tables.append(ResultTable(title, HEADS, rows, digits=1))
    tests = {method: each.test for method, each in found.items()}
    outcome.findings.append(f"{name}: {ranked(tests)}.")
    if FULL_BATCH in tests:
        beside = against(FULL_BATCH, tests)
        outcome.findings.append(f"{name}, test beside {FULL_BATCH}, in points: {beside}.")
    seconds = {method: (each.seconds, each.test) for method, each in found.items()}
    memory = {method: (_megabytes(each.step_bytes), each.test) for method, each in found.items()}
    outcome.figures[name] = [
        cost_chart(seconds, "seconds of training", title=name),
        cost_chart(memory, "memory of a step, MB", title=name),
    ]


def budget_of(graph: Graph) -> Budget:
    """Kipf and Welling's model for few labels, a larger one for many; fewer runs on a large graph."""
    if graph.num_nodes >= LEAST_LARGE:
        return LARGE
    return MANY_LABELS if int(graph.train_mask.sum()) >= MANY else FEW_LABELS


def steps_a_round(graph: Graph) -> int:
    """As many as an epoch has of the batches that are chosen where nothing is said.

    >>> import lmc
    >>> steps_a_round(lmc.synthetic(nodes=2000))
    2
    """
    parts, per_batch, _ = choose_batches(graph.num_nodes)
    return -(-parts // per_batch)


def suited(method: str, graph: Graph) -> Tree:
    """A method with options for as many steps an epoch as those have whose batches are clusters.

    Training nodes of a step are an equal share of them. A layer draws as many nodes as a step has training
    nodes, and no fewer than FastGCN's paper has. A subgraph has the share of all nodes, as walks of three.

    >>> import lmc
    >>> suited("ladies", lmc.synthetic(nodes=2000))
    {'name': 'ladies', 'batch_size': 501, 'sizes': [501]}
    """
    steps = steps_a_round(graph)
    targets = -(-int(graph.train_mask.sum()) // steps)
    drawn = graph.num_nodes // (3 * steps) if method == "saint" else targets
    return {"name": method, **understood_by(method, {"batch_size": drawn, "sizes": [max(400, targets)]})}


def trained_within(budget: Budget, a_round: int, graph: Graph, tree: Tree) -> Found:
    """Runs of the budget's steps, however many an epoch of the method has; evaluated after each round."""
    config = Config.of(tree)
    options = TrainingOptions(**config.training)
    an_epoch = config.build_estimator().make_sampler(graph, options.batches).steps
    epochs = max(1, round(budget.steps / an_epoch))
    evaluated = merged(tree, {"training": {"evaluate_every": max(1, round(a_round / an_epoch))}})
    train = partial(_run, graph, evaluated, epochs)
    rate, results = best_rate(train, budget.rates, range(budget.runs), budget.searched)
    return Found(
        rate,
        epochs * an_epoch,
        at_best(results, "test"),
        MeanOfRuns([result.seconds for result in results]),
        mean_of([step_memory_of(result.history) for result in results]),
    )


def _run(graph: Graph, tree: Tree, epochs: int, rate: float, seed: int) -> Result:
    return trained(graph, tree, seed, lr=rate, epochs=epochs)


def _cells(found: Found) -> list[Value]:
    step = 1e3 * found.seconds.mean / found.steps
    return [f"{found.rate:g}", found.steps, found.test, found.seconds, step, _megabytes(found.step_bytes)]


def _megabytes(held: MeanOfRuns | None) -> MeanOfRuns | None:
    return None if held is None else MeanOfRuns([each / 1e6 for each in held.values])
