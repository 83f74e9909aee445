"""Appendix: GD, GAS and LMC on Cora, CiteSeer and PubMed with the public splits; and on Amazon Photo."""

from __future__ import annotations

from lmc.data.graph import Graph
from lmc.paper import numbers
from lmc.paper.figures import mean_chart
from lmc.paper.outcome import Outcome, ResultTable, Value, against, ranked
from lmc.paper.setup import (
    FOUND,
    METHOD_SETTINGS,
    SMALL_BATCH,
    Scale,
    Tree,
    at_best,
    trained,
    with_chosen_batches,
    with_method,
    with_progress,
)
from lmc.runs.mean_of_runs import MeanOfRuns

# Kipf and Welling's: two layers of 16, decay on the first alone, dropout on both inputs.
SETTINGS: Tree = {
    "data": {"name": "cora"},
    "model": {"name": "gcn", "hidden": 16, "layers": 2, "dropout": 0.5, "input_dropout": 0.5},
    "method": {"name": "lmc"},
    "training": {"lr": 1e-2, "weight_decay": 5e-4, "balance": "none"},
}
PARTS = {"cora": (40, 10), "citeseer": (24, 8), "pubmed": (8, 4)}


def small(scale: Scale) -> Outcome:
    """Test accuracy at the best validation epoch, in per cent, and its curve over the seconds."""
    graphs, seeds, epochs = scale.graphs(*numbers.SMALL, "amazon_photo"), scale.seeds(5), scale.epochs_of(200)
    outcome = Outcome(
        {"runs": len(seeds), "epochs": epochs, "clusters": PARTS, **SETTINGS},
        [
            "The paper has curves only; its column holds Kipf and Welling's means of 100 runs (full batch).",
            "It has no Amazon Photo, and no rows with our batches.",
        ],
    )
    rows: list[list[Value]] = []
    for name, graph in graphs.items():
        graph = row_normalized(graph)
        trees = compared(*PARTS.get(name, (20, 5)))
        found, tests = {}, {}
        for method in with_progress(trees, f"small, {name}"):
            found[method] = [trained(graph, trees[method], seed, epochs=epochs) for seed in seeds]
            paper = numbers.SMALL.get(name) if method == "GD" else None
            seconds = MeanOfRuns([result.seconds for result in found[method]])
            tests[method] = at_best(found[method], "test")
            rows.append([name, method, tests[method], paper, seconds])
        outcome.findings.append(f"{name}: {ranked(tests)}{_gap(name, tests['GD'])}.")
        outcome.findings.append(f"{name}, test beside GAS, in points: {against('GAS', tests)}.")
        outcome.figures[name] = [mean_chart(found, "test", "seconds of training", title=name)]
    heads = ["graph", "method", "test accuracy, %", "Kipf and Welling", "seconds"]
    outcome.tables.append(ResultTable("Small graphs", heads, rows))
    return outcome


def compared(parts: int, per_batch: int) -> dict[str, Tree]:
    """GD, GAS and LMC with batches of so many clusters; GAS and our LMC with those that are chosen."""
    batches = {"parts": parts, "parts_per_batch": per_batch}
    given = {**SETTINGS, "training": SETTINGS["training"] | batches}
    chosen, gas = with_chosen_batches(SETTINGS), METHOD_SETTINGS["GAS"]
    return {
        "GD": with_method(given, METHOD_SETTINGS["GD"]),
        "GAS": with_method(given, gas),
        "LMC": with_method(given, SMALL_BATCH),
        "GAS, our batches": with_method(chosen, gas),
        "LMC, our defaults": with_method(chosen, FOUND),
    }


def _gap(name: str, full_batch: MeanOfRuns | None) -> str:
    """How far full batch is from the published mean."""
    if full_batch is None or name not in numbers.SMALL:
        return ""
    return f"; full batch is {full_batch.mean - numbers.SMALL[name]:+.2f} from Kipf and Welling's"


def row_normalized(graph: Graph) -> Graph:
    """The graph with features whose rows add up to one, as in Planetoid experiments."""
    x = graph.x / graph.x.sum(1, keepdim=True).clamp(min=1e-12)
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    adjacency = graph.adjacency
    return Graph.from_csr(
        adjacency.indptr, adjacency.indices, x, graph.y, *masks, num_classes=graph.num_classes
    )
