"""Arrays that stay what a graph was made with, since more is made of them and kept."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import Tensor

from lmc.data.nodes import Nodes
from lmc.errors import GraphError

OF_EDGES = ("adjacency", "edge_attr", "edge_type")


class SetOnce:
    """What cannot be given other arrays."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) and name in (*Nodes._fields, *OF_EDGES):
            how = "lmc.Graph(...)" if name in OF_EDGES else f"graph.replace({name}=...)"
            raise GraphError(f"graph.{name}: cannot be assigned; {how} makes a graph with another")
        super().__setattr__(name, value)


def times_changed(graph: SetOnce) -> dict[str, int]:
    """How often each of its arrays was changed in place, as far as torch knows.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> before = times_changed(graph)
    >>> _ = graph.y.zero_()
    >>> [name for name, times in times_changed(graph).items() if times != before[name]]
    ['y']
    """
    arrays = {name: getattr(graph, name) for name in ("x", "y", "train_mask", "edge_attr")}
    return {
        name: array._version
        for name, array in arrays.items()
        if isinstance(array, Tensor) and not array.is_inference()
    }


Changed = TypeVar("Changed", bound=SetOnce)


def with_arrays(graph: Changed, **arrays: Any) -> Changed:
    """A copy with other arrays, which are not checked; what was made of others goes along."""
    other = copy.copy(graph)
    vars(other).update(arrays)
    return other
