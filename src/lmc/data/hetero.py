"""From PyG's `HeteroData` to one graph: nodes of all types in one id space, edges with their type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc.data import rules
from lmc.data.pyg import edges_of, joined, split_of
from lmc.data.splits import MASKS
from lmc.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData


def arguments(
    data: HeteroData, split_idx: Mapping[str, Mapping[str, Any]] | None, by_type: bool
) -> dict[str, Any]:
    """The arguments of `Graph`; see `Graph.from_pyg`."""
    kinds = {kind: data[kind] for kind in data.node_types}
    sizes = {kind: _size(store, kind) for kind, store in kinds.items()}
    start = dict(zip(kinds, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    own = {kind: _labels_and_split(store, kind, sizes[kind], split_idx) for kind, store in kinds.items()}
    features = {kind: rules.dense(f"{kind}.x", store.x) for kind, store in kinds.items() if "x" in store}
    return {
        **_edges(data, sizes, start),
        "x": _beside(features, sizes) if by_type else _above(features, sizes),
        "y": _labels(own, sizes),
        **{mask: torch.cat([own[kind][mask] for kind in kinds]) for mask in MASKS},
        "id": _ids(sizes),
    }


def _size(store: Any, kind: str) -> int:
    if store.num_nodes is None:
        raise GraphError(f"{kind}: says neither x nor num_nodes")
    return int(store.num_nodes)


def _labels_and_split(
    store: Any, kind: str, nodes: int, split_idx: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Tensor]:
    """Of one type: the labels, if it has any, and masks."""
    given = {name: getattr(store, name, None) for name in ("y", *MASKS)}
    found = {name: rules.tensor(f"{kind}.{name}", each) for name, each in given.items() if each is not None}
    for name, array in found.items():
        if array.ndim == 0 or len(array) != nodes:
            shape = f"{kind}.{name} has shape {tuple(array.shape)}"
            raise GraphError(f"{shape}: must be {nodes} long, one per node of this type")
    of_kind = {role: nodes_of[kind] for role, nodes_of in (split_idx or {}).items() if kind in nodes_of}
    return split_of(store, found, nodes, of_kind or None, f"{kind}.")


def _edges(data: HeteroData, sizes: Mapping[str, int], start: Mapping[str, int]) -> dict[str, Any]:
    """Ends in the one id space, what edges have, and their type: its place among the types of the data."""
    parts, names = [], []
    for number, ends in enumerate(data.edge_types):
        source, _, target = ends
        name = f"{ends}."
        part = edges_of(data[ends], name)
        if "edge_index" not in part:
            raise GraphError(f"{name}edge_index is missing: a type of edges needs it, or adj_t")
        index = part["edge_index"]
        rows = [
            rules.node_ids(f"{name}edge_index[{side}]", index[side], sizes[kind]).long() + start[kind]
            for side, kind in enumerate((source, target))
        ]
        part["edge_index"] = torch.stack(rows)
        part["edge_type"] = torch.full((index.shape[1],), number)
        parts.append(part)
        names.append(name)
    if not parts:
        return {"edge_index": torch.empty(2, 0, dtype=torch.long)}
    fields = ("edge_index", "edge_weight", "edge_attr", "edge_type")
    return {field: joined(field, parts, names) for field in fields}


def _above(features: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Tensor | None:
    """(nodes, features) of types that have as many each, one type above the other."""
    if not features:
        return None
    widths = {kind: features[kind].shape[1:] if kind in features else (0,) for kind in sizes}
    if len(set(widths.values())) > 1:
        found = ", ".join(f"{kind} has {width[0]}" for kind, width in widths.items())
        rule = "by_type=True puts them side by side, for an encoder per type"
        raise GraphError(f"x: {found} features: types of nodes must have as many; {rule}")
    return torch.cat([features[kind] for kind in sizes])


def _beside(features: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Tensor:
    """(nodes, all features and types) each type in columns of its own, zero elsewhere; one in the first."""
    own = {kind: torch.ones(nodes, 1) for kind, nodes in sizes.items()}
    own |= {kind: torch.cat([own[kind].to(x), x], dim=1) for kind, x in features.items()}
    width = sum(x.shape[1] for x in own.values())
    dtype = torch.float64 if any(x.dtype == torch.float64 for x in own.values()) else torch.float32
    rules.fits_dense("x, side by side", (sum(sizes.values()), width), dtype.itemsize)
    beside: Tensor = torch.block_diag(*own.values())  # type: ignore[no-untyped-call]
    return beside.to(dtype)


def _labels(own: Mapping[str, Mapping[str, Tensor]], sizes: Mapping[str, int]) -> Tensor | None:
    """Of all nodes: -1, or no number, for those of a type that has none."""
    known = {kind: arrays["y"] for kind, arrays in own.items() if "y" in arrays}
    if not known:
        return torch.full((sum(sizes.values()),), -1)
    first = next(iter(known.values()))
    missing = float("nan") if first.is_floating_point() else -1
    for kind, y in known.items():
        if y.shape[1:] != first.shape[1:] or y.is_floating_point() != first.is_floating_point():
            rule = "labels of all types must be of one kind"
            raise GraphError(f"{kind}.y has shape {tuple(y.shape)} and type {y.dtype}: {rule}")
    made = {kind: first.new_full((nodes, *first.shape[1:]), missing) for kind, nodes in sizes.items()}
    return torch.cat([known.get(kind, made[kind]) for kind in sizes])


def _ids(sizes: Mapping[str, int]) -> NDArray[np.str_]:
    """What nodes are called: their type, and their number in it."""
    return np.array([f"{kind}:{node}" for kind, nodes in sizes.items() for node in range(nodes)])
