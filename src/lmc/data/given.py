"""Whether what a user gave is a graph."""

from __future__ import annotations

from typing import Any

from lmc.data.set_once import check_changes
from lmc.data.topology import Topology
from lmc.errors import ArgumentError


def check_graph(given: Any) -> None:
    """Raise ArgumentError unless it is an `lmc.Graph`; for PyG's `Data`, the error says how to make one."""
    if isinstance(given, Topology):
        check_changes(given)
        return
    hint = "; lmc.Graph.from_pyg(data) makes one of it" if hasattr(given, "edge_index") else ""
    raise ArgumentError(f"graph: {type(given).__name__} is not an lmc.Graph{hint}")
