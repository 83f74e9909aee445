"""From PyG's `Data`, one or several, to the arrays of one graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor

from lmc.data import rules
from lmc.data.ids import original_ids
from lmc.data.splits import MASKS, ROLE_OF, Role, masks_of_indices
from lmc.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from lmc.data.graph import Graph

OF_EDGES = ("edge_weight", "edge_attr", "edge_type")
OF_NODES = ("x", "y", *MASKS)
OF_COLUMNS = ("class_names", "feature_names")


def check_data(name: str, given: Any) -> None:
    """Raise GraphError unless it has the edges of PyG's `Data`, or the types of its `HeteroData`."""
    if isinstance(given, (list, tuple)):
        raise GraphError(f"{name}: {type(given).__name__} is not one Data; Graph.from_pyg_list takes several")
    if not any(hasattr(given, field) for field in ("edge_index", "adj_t", "node_types")):
        raise GraphError(f"{name}: {type(given).__name__} is not a Data or a HeteroData of PyG")


def check_roles(graphs: int, roles: Sequence[Role] | None) -> None:
    """Raise GraphError unless there is a graph, and a role for each where there are roles."""
    if graphs == 0:
        raise GraphError("graphs has length 0: a union needs one or more")
    if roles is not None and len(roles) != graphs:
        raise GraphError(f"roles has length {len(roles)}: must be {graphs}, one per graph")
    for i, role in enumerate(roles or []):
        if role not in get_args(Role):
            raise GraphError(f"roles[{i}] = {role!r}: must be one of {', '.join(get_args(Role))}")


def union(
    graphs: Sequence[Data],
    roles: Sequence[Role] | None,
    names: Sequence[str],
    split_idx: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The arguments of `Graph` for the disjoint union; `names` are the graphs' names in errors."""
    read = [_fields(data, name, split_idx) for data, name in zip(graphs, names, strict=True)]
    parts, sizes = [part for part, _ in read], [nodes for _, nodes in read]
    if roles is not None:
        for part, nodes, role in zip(parts, sizes, roles, strict=True):
            part |= {f"{known}_mask": torch.full((nodes,), known == role) for known in get_args(Role)}
    start = 0
    for part, nodes in zip(parts, sizes, strict=True):
        part["edge_index"] = part["edge_index"] + start
        start += nodes
    arrays: dict[str, Any] = {
        field: joined(field, parts, names) for field in ("edge_index", *OF_NODES, *OF_EDGES)
    }
    arrays["id"] = _joined_ids(graphs, sizes)
    arrays |= {field: _common(field, graphs) for field in OF_COLUMNS}
    if arrays["x"] is None and arrays["y"] is None:  # then nothing else says how many nodes there are
        arrays["y"] = torch.full((start,), -1)
    return arrays


def _fields(data: Data, name: str, split_idx: Mapping[str, Any] | None) -> tuple[dict[str, Tensor], int]:
    """The arrays of one graph, each of the length that its nodes or edges ask for; how many nodes."""
    found = edges_of(data, name)
    for field in OF_NODES:
        value = getattr(data, field, None)
        if value is not None:
            found[field] = (rules.dense if field == "x" else rules.tensor)(f"{name}{field}", value)
    for part, role in ROLE_OF.items():
        if f"{role}_mask" not in found and (mask := getattr(data, f"{part}_mask", None)) is not None:
            found[f"{role}_mask"] = rules.tensor(f"{name}{part}_mask", mask)
    if "edge_index" not in found:
        raise GraphError(f"{name}edge_index is missing: a graph needs it, or adj_t")
    counted = rules.count_nodes(found.get("x"), found.get("y"), prefix=name)
    nodes = counted if counted is not None else _said(data, found["edge_index"])
    found["edge_index"] = rules.edge_index(f"{name}edge_index", found["edge_index"], nodes)
    edges = found["edge_index"].shape[1]
    for field, value in found.items():
        length = edges if field in OF_EDGES else nodes
        if field != "edge_index" and (value.ndim == 0 or len(value) != length):
            rule = f"must be {length} long, one per {'edge' if field in OF_EDGES else 'node'}"
            raise GraphError(f"{name}{field} has shape {tuple(value.shape)}: {rule}")
    _say_unread(data, found, name)
    return split_of(data, found, nodes, split_idx, name), nodes


def _say_unread(data: Data, found: dict[str, Tensor], name: str) -> None:
    """Warn of weights under another name."""
    for field in ("weight", "weights", "edge_weights"):
        if "edge_weight" not in found and getattr(data, field, None) is not None:
            warnings.warn(f"{name}{field} is not read; weights of edges are edge_weight", stacklevel=5)


def split_of(
    data: Any, found: dict[str, Tensor], nodes: int, split_idx: Mapping[str, Any] | None, name: str
) -> dict[str, Tensor]:
    """What was found, with masks: its own, those of node numbers, or empty ones."""
    indices = split_idx if split_idx is not None else _indices(data)
    masks = {field: torch.zeros(nodes, dtype=torch.bool) for field in MASKS} | found
    return masks | masks_of_indices(indices, nodes, f"{name}split_idx") if indices else masks


def edges_of(data: Any, name: str) -> dict[str, Tensor]:
    """`edge_index`, or what `adj_t` says in its place, and what edges have."""
    adjacency = getattr(data, "adj_t", None)
    if getattr(data, "edge_index", None) is not None or adjacency is None:
        given = {field: getattr(data, field, None) for field in ("edge_index", *OF_EDGES)}
    else:
        target, source, value = _entries(adjacency, f"{name}adj_t")
        given = {"edge_index": torch.stack([source.long(), target.long()])}
        if value is not None:
            given["edge_weight" if value.ndim == 1 else "edge_attr"] = value
    return {field: rules.tensor(f"{name}{field}", each) for field, each in given.items() if each is not None}


def _entries(matrix: Any, name: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows, columns and values of a sparse tensor of torch, or of `torch_sparse.SparseTensor`."""
    if isinstance(matrix, Tensor) and matrix.layout != torch.strided:
        entries = matrix.detach().cpu().to_sparse_coo()  # type: ignore[no-untyped-call]
        row, column = entries._indices()  # those of a tensor that is not coalesced are messages each
        return row, column, _unless_ones(entries._values())
    if hasattr(matrix, "coo"):
        row, column, value = matrix.coo()
        return row, column, value
    raise GraphError(f"{name}: {type(matrix).__name__} is not a sparse tensor")


def _unless_ones(values: Tensor) -> Tensor | None:
    """Torch has no sparse tensor without values: ones are those of a graph without weights."""
    return None if values.ndim == 1 and bool((values == 1).all()) else values


def _said(data: Data, edge_index: Tensor) -> int:
    """How many nodes there are, where there are neither features nor labels."""
    said = dict(getattr(data, "_store", {})).get("num_nodes")
    if said is not None:
        return int(said)
    return int(edge_index.max()) + 1 if edge_index.numel() else 1


def _indices(data: Any) -> dict[str, Any]:
    """The node numbers of a split that is not given as masks, such as `train_idx`."""
    found = {name: getattr(data, f"{name}_idx", None) for name in ROLE_OF}
    return {name: nodes for name, nodes in found.items() if nodes is not None}


def joined(field: str, parts: Sequence[dict[str, Tensor]], names: Sequence[str]) -> Tensor | None:
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


def _joined_ids(graphs: Sequence[Data], sizes: Sequence[int]) -> Any:
    """The nodes' original ids, where every graph has one per node under `id`: PyG has no name for them."""
    ids: list[Any] = [getattr(data, "id", None) for data in graphs]
    if not all(np.ndim(each) == 1 and len(each) == nodes for each, nodes in zip(ids, sizes, strict=True)):
        return None
    return np.concatenate([original_ids(each) for each in ids])


def _common(field: str, graphs: Sequence[Data]) -> list[str] | None:
    """Names that `to_pyg` has left in every graph, where they are the same; None where they are not."""
    first, *others = (getattr(data, field, None) for data in graphs)
    is_names = isinstance(first, list) and all(isinstance(name, str) for name in first)
    return first if is_names and all(other == first for other in others) else None


def to_data(graph: Graph) -> Data:
    """As PyG's `Data`, edges in the order of their targets; what the graph lacks is left out."""
    from torch_geometric.data import Data  # half the time of `import lmc`, for a few users of it

    edge_index = torch.stack([graph.adjacency.indices, graph.adjacency.row_ids()]).long()
    # Copies: what is changed in them must not change the graph, whose arrays were checked once.
    y = graph.y.clone() if graph.num_classes else None
    data = Data(x=graph.x.clone(), edge_index=edge_index, y=y)
    for name in (*MASKS, *OF_EDGES):
        if getattr(graph, name) is not None:
            setattr(data, name, getattr(graph, name).clone())
    if graph.id is not None:
        data.id = graph.id.tolist() if graph.id.dtype.kind == "U" else torch.from_numpy(graph.id)
    for name in OF_COLUMNS:
        if getattr(graph, name) is not None:
            setattr(data, name, list(getattr(graph, name)))
    return data
