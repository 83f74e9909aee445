"""A graph as what a folder of it holds, and back to the arguments of `Graph.from_csr`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from lmc.data.pyg import OF_EDGES
from lmc.data.splits import MASKS

if TYPE_CHECKING:
    from lmc.data.graph import Graph

_NAMES = ("class_names", "feature_names")


def content(graph: Graph) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What its header says, and its arrays by name."""
    arrays = {"indptr": graph.adjacency.indptr, "indices": graph.adjacency.indices}
    arrays |= {name: getattr(graph, name) for name in ("x", "y", *MASKS)}
    arrays |= {name: getattr(graph, name) for name in OF_EDGES if getattr(graph, name) is not None}
    about: dict[str, Any] = {"task": graph.task, "num_classes": graph.num_classes}
    about |= {names: list(getattr(graph, names)) for names in _NAMES if getattr(graph, names) is not None}
    named = {} if graph.id is None else {"id": graph.id}
    return about, {name: array.numpy() for name, array in arrays.items()} | named


def arguments(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """What `Graph.from_csr` takes; KeyError where the header is none of a graph."""
    width = about["num_classes"] or None  # where it is 0, there are no labels that would say otherwise
    names = {names: about.get(names) for names in _NAMES}
    return {**arrays, **names, "task": about["task"], "num_classes": width}
