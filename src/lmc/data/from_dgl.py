"""From a graph of DGL to the arguments of `Graph`, without DGL: by the names that its graphs have."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from lmc.data.splits import MASKS
from lmc.errors import GraphError

# Where DGL's data sets keep things; the last is where a subgraph keeps the nodes of the graph it is from.
_NAMES = {"x": ("feat", "feature", "x"), "y": ("label", "labels", "y"), "id": ("_ID",)}
_TYPE = ("_TYPE", "edge_type", "etype")  # the first is what `dgl.to_homogeneous` writes
_WEIGHT = ("weight", "edge_weight", "w")


def arguments(graph: Any) -> dict[str, Any]:
    """The arguments of `Graph`; see `Graph.from_dgl`."""
    if not all(hasattr(graph, name) for name in ("edges", "ndata", "edata", "num_nodes")):
        raise GraphError(f"graph: {type(graph).__name__} is not a graph of DGL")
    if not getattr(graph, "is_homogeneous", True):
        rule = "dgl.to_homogeneous(graph) makes one of them"
        raise GraphError(f"graph: has nodes or edges of several types; {rule}")
    source, target = graph.edges()
    found = {argument: _first_of(graph.ndata, names) for argument, names in _NAMES.items()}
    _say_unread(graph.ndata, found)
    if found["x"] is None and found["y"] is None:  # then nothing else says how many nodes there are
        found["y"] = torch.full((graph.num_nodes(),), -1)
    masks = {mask: graph.ndata[mask].bool() for mask in MASKS if mask in graph.ndata}
    weight = _first_of(graph.edata, _WEIGHT)
    found["edge_weight"] = None if weight is None else weight.reshape(-1)
    found["edge_type"] = _first_of(graph.edata, _TYPE)
    return {"edge_index": torch.stack([source, target]), **found, **masks}


def _say_unread(ndata: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Warn where there are no features or no labels, or under a name of which nothing is known."""
    read = [*MASKS, *(name for names in _NAMES.values() for name in names)]
    unread = [repr(name) for name in ndata if name not in read]
    for argument, what in (("x", "features"), ("y", "labels")):
        # One that has features, and no labels, may be there to be predicted.
        if found[argument] is None and (unread or found["x"] is None):
            first, names = _NAMES[argument][0], ", ".join(_NAMES[argument])
            which = f"; {', '.join(unread)} is not read" if unread else ""
            advice = f"graph.ndata[{first!r}] = ... gives some"
            text = f"graph: ndata has none of {names}, so there are no {what}{which}; {advice}"
            warnings.warn(text, stacklevel=4)


def _first_of(data: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((data[name] for name in names if name in data), None)
