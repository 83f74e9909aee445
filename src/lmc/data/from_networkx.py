"""From a graph of NetworkX to the arguments of `Graph`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmc.data.nodes import classes_of_text
from lmc.data.splits import MASKS
from lmc.errors import GraphError
from lmc.files import one_line

WEIGHT = "weight"
"""What edges call it in NetworkX."""
SHOWN = 5
"""The most attributes that a warning names."""


def arguments(
    graph: Any, features: str | Sequence[str] | None, label: str | None, weight: str
) -> dict[str, Any]:
    """The arguments of `Graph`; see `Graph.from_networkx`."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise GraphError(f"graph: {type(graph).__name__} is not a graph of NetworkX")
    nodes = dict(graph.nodes(data=True))
    if not nodes:
        raise GraphError("graph: has no nodes; a graph needs a node or more")
    columns = [features] if isinstance(features, str) else list(features or ())
    _say_missing(nodes, columns, label)
    number = {name: place for place, name in enumerate(nodes)}
    edges = [(number[a], number[b], about.get(weight)) for a, b, about in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(b, a, given) for a, b, given in edges if a != b]
    y, class_names = _labels([None if label is None else about.get(label) for about in nodes.values()])
    return {
        "edge_index": np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2).T,
        "edge_weight": _weights([edge[2] for edge in edges], weight),
        "x": _features(nodes, columns),
        "y": y,
        "class_names": class_names,
        "id": _ids(list(nodes)),
        **{
            mask: [bool(about.get(mask, False)) for about in nodes.values()]
            for mask in MASKS
            if any(mask in about for about in nodes.values())
        },
    }


def _say_missing(nodes: dict[Any, dict[str, Any]], features: list[str], label: str | None) -> None:
    """Warn where no node has any of the attributes that are to be features, or labels."""
    known = {name: None for about in nodes.values() for name in about if name not in MASKS}  # in their order
    asked = {"features": features, "label": [] if label is None else [label]}
    lacking = {kind: names for kind, names in asked.items() if names and not known.keys() & set(names)}
    if lacking:
        names = " or ".join(repr(name) for names in lacking.values() for name in names)
        without = " and ".join(f"no {kind.removesuffix('s')}s" for kind in lacking)
        others = f" (of {', '.join(map(repr, list(known)[:SHOWN]))})" if known else ""
        advice = f"{' and '.join(f'{kind}=' for kind in lacking)} may name others{others}, or be None"
        warnings.warn(f"graph: no node has {names}, so there are {without}; {advice}", stacklevel=4)


def _weights(weights: list[Any], name: str) -> list[float] | None:
    """What an edge without a weight weighs is one, as in NetworkX."""
    if all(each is None for each in weights):
        if name not in (WEIGHT, "") and weights:
            line = f"graph: no edge has {name!r}, so there are no weights; weight= may name others"
            warnings.warn(line, stacklevel=4)
        return None
    return [1.0 if each is None else each for each in weights]


def _features(nodes: dict[Any, dict[str, Any]], names: list[str]) -> Any:
    """(nodes, features), each attribute a number or several; None where no node has any."""
    if not any(name in about for about in nodes.values() for name in names):
        return None
    rows = []
    for node, about in nodes.items():
        lacking = [name for name in names if name not in about]
        if lacking:
            raise GraphError(f"graph: node {node!r} has no attribute {lacking[0]!r}, and others have")
        given = [_numbers(f"features of node {node!r}", about[name]).ravel() for name in names]
        rows.append(np.concatenate(given).astype(np.float32))
        if len(rows[-1]) != len(rows[0]):
            widths = f"{len(rows[-1])} features, the first node {len(rows[0])}"
            raise GraphError(f"graph: node {node!r} has {widths}")
    return np.stack(rows)


def _labels(labels: list[Any]) -> tuple[Any, list[str] | None]:
    """Classes, also of text, or targets; -1 or NaN where a node has none."""
    known = [each for each in labels if each is not None]
    if not known:
        return np.full(len(labels), -1), None
    if all(isinstance(each, str) for each in known):
        return classes_of_text(labels)
    values = _numbers("labels", known)
    kind, missing = (np.int64, -1) if values.dtype.kind in "iub" else (np.float64, np.nan)
    y = np.full((len(labels), *values.shape[1:]), missing, kind)
    y[[each is not None for each in labels]] = values
    return y, None


def _numbers(name: str, values: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:  # lists of different lengths
        raise GraphError(f"graph: the {name} are not numbers of one shape ({one_line(error)})") from None
    if array.dtype.kind not in "iufb":
        raise GraphError(f"graph: the {name} have type {array.dtype}: must be numbers")
    return array


def _ids(names: list[Any]) -> Any:
    """What nodes are called, unless it is their number; what is neither integer nor string as text."""
    if all(isinstance(name, int) for name in names):
        return None if names == list(range(len(names))) else names
    return [str(name) for name in names]
