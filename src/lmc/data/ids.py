"""Original ids: what nodes are called where they come from."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks
from lmc.data import rules
from lmc.errors import GraphError

if TYPE_CHECKING:
    from lmc.data.graph import Graph

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def original_ids(ids: Any) -> NDArray[Any]:
    """(nodes,) int64 or strings.

    >>> original_ids(["a", "b"]).tolist(), original_ids(torch.tensor([7, 3])).tolist()
    (['a', 'b'], [7, 3])
    """
    for place, each in enumerate(ids if isinstance(ids, (list, tuple)) else ()):
        if isinstance(each, str) and "\0" in each:  # numpy would leave it out
            raise GraphError(f"ids[{place}] = {each!r}: holds a null character")
    array = np.asarray(ids.numpy(force=True) if isinstance(ids, Tensor) else ids)
    if array.ndim != 1 or len(array) == 0:
        raise GraphError(f"id has shape {array.shape}: must be (nodes,)")
    if array.dtype.kind in "iu" and int(array.max()) <= checks.MOST_WHOLE:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "T" or (
        array.dtype.kind == "O" and all(isinstance(each, str) for each in array.tolist())
    ):
        array = array.astype(str)
    if array.dtype.kind != "U":
        raise GraphError(f"id has type {array.dtype}: ids must be integers or strings")
    if array.dtype.itemsize and not _is_text(array):
        raise GraphError("id: holds characters that do not exist")
    return array


def _is_text(array: NDArray[np.str_]) -> bool:
    """Whether strings, which may be out of any file, are made of characters that exist."""
    codes = np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    return bool(((codes < 0xD800) | ((codes > 0xDFFF) & (codes <= 0x10FFFF))).all())


def nodes_with(graph: Graph, ids: Any) -> Tensor:
    """(ids,) int64: the nodes that are called so, or that have these numbers where nodes have no other name.

    Raises:
        GraphError: for the first id that no node has, or that two have.

    >>> import lmc
    >>> nodes_with(lmc.Graph([[0], [1]], id=["a", "b"]), ["b", "a"])
    tensor([1, 0])
    """
    asked = original_ids(ids)
    own = np.arange(graph.num_nodes) if graph.id is None else graph.id
    if own.dtype.kind == "U":
        asked = asked.astype(str)
    elif asked.dtype.kind == "U":
        asked = _numbers(asked)
    order = own.argsort(kind="stable")
    ascending = own[order]
    first, behind = (ascending.searchsorted(asked, side) for side in ("left", "right"))
    found = behind - first
    for wrong, why in ((found == 0, "no node has this id"), (found > 1, "several nodes have this id")):
        if wrong.any():
            place = int(wrong.argmax())
            raise GraphError(f"ids[{place}] = {asked[place]}: {why}")
    return torch.from_numpy(order[first])


def numbered(graph: Graph, nodes: Any) -> Any:
    """Names of nodes, where text is given, as their numbers; all else as it is.

    >>> import lmc
    >>> pair = lmc.Graph([[0], [1]], id=["a", "b"])
    >>> numbered(pair, "b"), numbered(pair, ["b", "a"]), numbered(pair, [1])
    (tensor([1]), tensor([1, 0]), [1])
    """
    if isinstance(nodes, str):
        nodes = [nodes]
    is_list = isinstance(nodes, (list, tuple)) and len(nodes) > 0 and isinstance(nodes[0], str)
    is_array = getattr(getattr(nodes, "dtype", None), "kind", "") in ("U", "T")
    return nodes_with(graph, nodes) if is_list or is_array else nodes


def some_nodes(graph: Graph, nodes: Any) -> Tensor:
    """(any,) int64: nodes by number, by a mask, or by their names, as text.

    A warning says how numbers are read that are ids of other nodes, too, but for a tensor's.

    >>> import lmc
    >>> some_nodes(lmc.Graph([[0], [1]], id=[7, 8]), ["8", "7"])
    tensor([1, 0])
    """
    named = numbered(graph, nodes)
    ids = graph.id if named is nodes and graph.id is not None and graph.id.dtype.kind == "i" else None
    by_id = "" if ids is None else f"ids of this graph are given as text, such as nodes=['{ids[0]}']"
    try:
        found = rules.some_nodes(named, graph.num_nodes, "nodes")
    except GraphError as error:
        raise GraphError(f"{error}; {by_id}" if by_id else str(error)) from None
    if ids is None or isinstance(nodes, (Tensor, range)) or np.asarray(nodes).dtype == np.bool_:
        return found
    rows = found.numpy()
    if bool((ids[rows] != rows).any()) and bool(np.isin(rows, ids).all()):
        text = f"nodes: numbers are rows of the graph, from 0 on, not its ids; {by_id}"
        warnings.warn(text, stacklevel=4)  # of the line that calls predict, which torch wraps
    return found


def _numbers(ids: NDArray[np.str_]) -> NDArray[np.int64]:
    """Of ids that were written as text."""
    for place, text in enumerate(ids.tolist()):
        if not _WHOLE.fullmatch(text):
            raise GraphError(f"ids[{place}] = {checks.shown(text)}: the ids of this graph are integers")
    return ids.astype(np.int64)
