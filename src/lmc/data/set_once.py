"""Arrays that stay what a graph was made with, since more is made of them and kept."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from lmc.data import rules
from lmc.data.nodes import GivenNodes, Nodes
from lmc.data.splits import MASKS
from lmc.errors import GraphError

OF_EDGES = ("adjacency", "edge_index", "edge_weight", "edge_attr", "edge_type")
_READ_IN_TRAINING = ("x", "y", "train_mask", "edge_attr", "edge_weight")


class SetOnce:
    """What cannot be given other arrays."""

    _as_made: Mapping[str, int] = {}
    """`times_changed` when it was made; of a copy out of a pickle, nothing."""

    def __setattr__(self, name: str, value: Any) -> None:
        follows = isinstance(getattr(type(self), name, None), property)
        if follows or (name in vars(self) and name in (*Nodes._fields, *OF_EDGES)):
            how = f"graph.replace({name}=...)" if name in Nodes._fields else "lmc.Graph(...)"
            raise GraphError(f"graph.{name}: cannot be assigned; {how} makes a graph with another")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Without `_as_made`: torch counts the changes of a copy anew."""
        return {name: value for name, value in vars(self).items() if name != "_as_made"}


def times_changed(graph: SetOnce) -> dict[str, int]:
    """How often each array that training reads was changed in place, as far as torch knows.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> before = times_changed(graph)
    >>> _ = graph.y.zero_()
    >>> [name for name, times in times_changed(graph).items() if times != before[name]]
    ['y']
    """
    arrays = {name: getattr(graph, name) for name in _READ_IN_TRAINING}
    return {
        name: array._version
        for name, array in arrays.items()
        if isinstance(array, Tensor) and not array.is_inference()
    }


def check_changes(graph: Any) -> None:
    """Check arrays that were changed in place since the graph was made, by the rules that hold at the door.

    Raises:
        GraphError: where a rule is broken, or where weights of edges were changed: more is made of them.
    """
    if not graph._as_made:
        return
    now = times_changed(graph)
    changed = [name for name, times in now.items() if times != graph._as_made.get(name)]
    if "edge_weight" in changed:
        how = "lmc.Graph(graph.edge_index, ..., edge_weight=...) makes a graph with others"
        raise GraphError(f"graph.edge_weight: changed in place since the graph was made; {how}")
    if "edge_attr" in changed:
        rules.edge_attr(graph.edge_attr, graph.num_edges)
    if changed:
        given = {name: getattr(graph, name) for name in Nodes._fields}
        masks = [given.pop(name) for name in MASKS]
        vars(graph).update(GivenNodes(masks=masks, **given).checked(graph.num_nodes)._asdict())
        graph._as_made = times_changed(graph)


Changed = TypeVar("Changed", bound=SetOnce)


def with_arrays(graph: Changed, **arrays: Any) -> Changed:
    """A copy with other arrays, which are not checked; what was made of others goes along."""
    other = copy.copy(graph)
    vars(other).update(arrays)
    if graph._as_made:
        kept = {name: times for name, times in graph._as_made.items() if name not in arrays}
        if "adjacency" in arrays:
            kept.pop("edge_weight", None)
        other._as_made = times_changed(other) | kept
    return other
