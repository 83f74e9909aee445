"""Where a graph is from, as long as nothing in it was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from lmc.sparse import CSR

if TYPE_CHECKING:
    from lmc.data.graph import Graph


class Origin:
    """What a graph was loaded from, and how its arrays were then.

    Args:
        given: what `lmc.load` was given.
        graph: the graph, as it was loaded.
    """

    def __init__(self, given: dict[str, Any], graph: Graph) -> None:
        self._given, self._as_loaded = given, _versions(graph)

    def of(self, graph: Graph) -> dict[str, Any] | None:
        """What was given, if the graph has the same arrays, and none was changed in place; else None."""
        pairs = zip(self._as_loaded, _versions(graph), strict=True)
        same = all(one is other and before == now for (one, before), (other, now) in pairs)
        return self._given if same else None


def _versions(graph: Graph) -> list[tuple[CSR | Tensor | None, int]]:
    """Its arrays, and how often each was changed in place."""
    of_nodes = (graph.x, graph.y, graph.train_mask, graph.val_mask, graph.test_mask)
    arrays = (*of_nodes, graph.edge_attr, graph.edge_type)
    return [(graph.adjacency, 0), *((array, 0 if array is None else array._version) for array in arrays)]
