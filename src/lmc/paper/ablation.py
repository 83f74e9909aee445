"""Figure 4: what each compensation brings, at a small and at a large batch."""

from __future__ import annotations

from typing import Any

from lmc.paper.figures import mean_chart
from lmc.paper.outcome import Outcome, ResultTable, Value, against, ranked
from lmc.paper.setup import (
    FOUND,
    LARGE_BATCH,
    METHOD_SETTINGS,
    SMALL_BATCH,
    Scale,
    about_data,
    at_best,
    curves_of,
    settings_of,
    trained,
    with_method,
    with_progress,
)

# Clusters a batch of 80, learning rate, and LMC's options.
BATCHES: dict[str, tuple[int, float, dict[str, Any]]] = {
    "small": (5, 3e-3, SMALL_BATCH),
    "large": (40, 1e-2, LARGE_BATCH),
}


def ablation(scale: Scale) -> Outcome:
    """C_f and C_b, C_f alone, each with the paper's β and the one that is found; and GAS with neither."""
    graphs, seeds, epochs = scale.graphs("arxiv"), scale.seeds(5), scale.epochs_of(30)
    outcome = Outcome({"runs": len(seeds), "epochs": epochs, "batches": BATCHES}, about_data(graphs))
    for name, graph in graphs.items():
        settings = settings_of("GCN", name)
        outcome.settings[name] = settings
        charts = []
        rows: list[list[Value]] = []
        for kind, (size, lr, options) in BATCHES.items():
            methods = {
                "C_f & C_b": options,
                "C_f": options | {"compensate_backward": False},
                "GAS": METHOD_SETTINGS["GAS"],
                "β found, C_f & C_b": FOUND,
                "β found, C_f": FOUND | {"compensate_backward": False},
            }
            found, best, tests = {}, {}, {}
            for method in with_progress(methods, f"ablation, {kind} batches of {name}"):
                run = with_method(settings, methods[method])
                found[method] = [
                    trained(graph, run, s, lr=lr, parts=80, parts_per_batch=size, epochs=epochs)
                    for s in seeds
                ]
                best[method], tests[method] = at_best(found[method], "val"), at_best(found[method], "test")
                rows.append([f"{kind} ({size} of 80)", method, best[method], tests[method]])
            outcome.curves[f"{name}, {kind}"] = curves_of(found)
            outcome.findings.append(f"{name}, {kind} batches, best val: {ranked(best)}.")
            outcome.findings.append(
                f"{name}, {kind} batches, test beside GAS, in points: {against('GAS', tests)}."
            )
            charts.append(mean_chart(found, "test", "epochs", title=f"{kind} batches"))
        outcome.figures[name] = charts
        outcome.tables.append(
            ResultTable(f"{name}: accuracy, %", ["batch", "method", "best val", "test"], rows)
        )
    return outcome
