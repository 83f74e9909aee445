"""What is said of a run whose loss or weights are no finite numbers any more."""

from __future__ import annotations

from lmc.data.graph import Graph
from lmc.errors import DivergedError
from lmc.training.options import TrainingOptions

LARGE = 1e4
"""Features above it are the likely cause."""


def diverged(graph: Graph, options: TrainingOptions, what: str) -> DivergedError:
    """An error that says what happened, the likely cause, and what helps."""
    largest = max(map(abs, map(float, graph.x.aminmax()))) if graph.x.numel() else 0.0
    cause = f"the learning rate may be too high (lr={options.lr:g}); a smaller one, or clip=1.0, helps"
    if options.loss is not None:
        cause = f"the function loss= may give such values; or {cause}"
    if largest > LARGE:
        cause = f"features are as large as {largest:.2g}; scale them to the order of one"
    return DivergedError(f"{what}: {cause}")
