"""From PyG's `Data`, one or several, to the arrays of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from lmc.data import rules
from lmc.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

Role = Literal["train", "val", "test"]
MASKS = ("train_mask", "val_mask", "test_mask")
OF_EDGES = ("edge_weight", "edge_attr")


def union(graphs: Sequence[Data], roles: Sequence[Role] | None, names: Sequence[str]) -> dict[str, Any]:
    """The arguments of `Graph` for the disjoint union; `names` are the graphs' names in errors."""
    parts = [_fields(data, name) for data, name in zip(graphs, names, strict=True)]
    if roles is not None:
        for part, role in zip(parts, roles, strict=True):
            nodes = len(part["y"])
            part |= {f"{known}_mask": torch.full((nodes,), known == role) for known in get_args(Role)}
    start = 0
    for part in parts:
        part["edge_index"] = part["edge_index"] + start
        start += len(part["y"])
    return {field: _joined(field, parts, names) for field in (*parts[0], "x", *OF_EDGES)}


def _fields(data: Data, name: str) -> dict[str, Tensor]:
    """The arrays of one graph, each of the length that its nodes or edges ask for."""
    found = {}
    for field in ("edge_index", "y", "x", *OF_EDGES, *MASKS):
        value = getattr(data, field, None)
        if value is not None:
            found[field] = rules.tensor(f"{name}{field}", value)
    for field in ("edge_index", "y"):
        if field not in found:
            raise GraphError(f"{name}{field} is missing: a graph needs it")
    nodes = rules.count_nodes(found.get("x"), found["y"], name)
    found["edge_index"] = rules.edge_index(f"{name}edge_index", found["edge_index"], nodes)
    edges = found["edge_index"].shape[1]
    for field, value in found.items():
        length = edges if field in OF_EDGES else nodes
        if field != "edge_index" and (value.ndim == 0 or len(value) != length):
            rule = f"must be {length} long, one per {'edge' if field in OF_EDGES else 'node'}"
            raise GraphError(f"{name}{field} has shape {tuple(value.shape)}: {rule}")
    for field in MASKS:
        found.setdefault(field, torch.zeros(nodes, dtype=torch.bool))
    return found


def _joined(field: str, parts: Sequence[dict[str, Tensor]], names: Sequence[str]) -> Tensor | None:
    """An array of every graph, one after the other; None where no graph has it."""
    without = [name for part, name in zip(parts, names, strict=True) if field not in part]
    if len(without) == len(parts):
        return None
    if without:
        raise GraphError(f"{without[0]}{field} is missing: other graphs of the union have it")
    arrays = [part[field] for part in parts]
    if field == "edge_index":
        return torch.cat(arrays, dim=1)
    for array, name in zip(arrays, names, strict=True):
        if array.shape[1:] != arrays[0].shape[1:]:
            rule = f"{names[0]}{field} has {tuple(arrays[0].shape)}, other columns"
            raise GraphError(f"{name}{field} has shape {tuple(array.shape)}: {rule}")
    return torch.cat(arrays)
