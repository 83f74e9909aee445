"""The graph of a prepared folder: in the user's own numbers, and inside in the order of clusters.

Whatever passes over all nodes, or trains on groups of clusters, works on `by_cluster`, whose arrays are the
files. The arrays under the user's own numbers are made when somebody asks for them, in files without names.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lmc.array_files import shared
from lmc.data.edges import GraphEdges
from lmc.data.graph import Graph
from lmc.data.nodes import Nodes
from lmc.data.prepared import Prepared
from lmc.data.splits import MASKS
from lmc.data.stored import stored, taken
from lmc.errors import GraphError
from lmc.scratch import scratch_folder
from lmc.sparse import CSR, ROWS_AT_ONCE, index_dtype


class PreparedGraph(Graph):
    """A graph that `lmc.prepare` wrote: everything as in the graph that it was made of.

    Args:
        folder: the folder; everything in it is read once, and compared with its checksums.

    Raises:
        GraphError: where it is damaged, or is no such folder; one line.
    """

    def __init__(self, folder: str | Path) -> None:
        prepared = Prepared(folder)
        prepared.check()
        about = prepared.about
        try:
            self.task, self.num_classes = about["task"], about["num_classes"]
            names = [about["class_names"], about["feature_names"]]
            is_undirected = about["undirected"]
        except KeyError as error:
            raise GraphError(f"{prepared.folder}: its manifest does not say {error}") from None
        self.class_names, self.feature_names = (None if each is None else tuple(each) for each in names)
        self._folder = scratch_folder(prepared.folder)
        self.scratch = self._folder
        self._nodes, self._places, starts = map(shared, prepared.order)
        self._by_cluster = self._arranged(prepared.mapped(), starts, prepared.folder)
        self._by_cluster.shards = prepared.shards
        if is_undirected:
            self._by_cluster.transposed = self._by_cluster.adjacency
        self._given: dict[str, Any] = {"name": str(prepared.folder.absolute())}

    def _arranged(self, arrays: dict[str, NDArray[Any]], starts: Tensor, folder: Path) -> Graph:
        """The graph of the files."""
        found = {name: shared(array) for name, array in arrays.items() if name != "id"}
        indptr = found["indptr"].to(index_dtype(int(found["indptr"][-1])))
        ends = indptr, found["indices"], found.get("edge_weight"), len(indptr) - 1
        edges = GraphEdges(CSR(*ends), found.get("edge_attr"), found.get("edge_type"))
        rows = {name: found[name] for name in ("x", "y", *MASKS)}
        graph = Graph.__new__(Graph)
        graph._set(edges, self._nodes_with(rows, arrays.get("id")))
        graph.scratch, graph.cluster_starts = self._folder, starts
        files = {name: folder / f"{name}.bin" for name in found if name != "indptr"}
        graph.files = {found[name].data_ptr(): file for name, file in files.items() if found[name].numel()}
        return graph

    # -- the order of clusters -----------------------------------------------------------------------

    @property
    def by_cluster(self) -> Graph:
        """The graph with its nodes in the order of their clusters, each of which is a range of numbers."""
        return self._by_cluster

    def places_of(self, nodes: Tensor) -> Tensor:
        """(any,) the numbers in `by_cluster` of nodes."""
        return self._places[nodes]

    def in_own_order(self, rows: Tensor) -> Tensor:
        """(nodes, ...) in the user's own order, of rows in that of `by_cluster`; on disk."""
        return taken(self._folder, rows, self._places)

    # -- the user's own numbers ----------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    @property
    def num_edges(self) -> int:
        """How many messages one aggregation sends: an undirected edge counts twice."""
        return self._by_cluster.num_edges

    @property
    def num_features(self) -> int:
        """The width of `x`."""
        return self._by_cluster.num_features

    @property
    def is_undirected(self) -> bool:
        """Whether every edge has its reverse, with the same weight."""
        return self._by_cluster.is_undirected

    @cached_property
    def x(self) -> Tensor:  # type: ignore[override]
        """(nodes, features) float32 or float64."""
        return self.in_own_order(self._by_cluster.x)

    @cached_property
    def y(self) -> Tensor:  # type: ignore[override]
        """(nodes,) int64 classes, or (nodes,) or (nodes, columns) floating point."""
        return self.in_own_order(self._by_cluster.y)

    @cached_property
    def train_mask(self) -> Tensor:  # type: ignore[override]
        """(nodes,) bool."""
        return self.in_own_order(self._by_cluster.train_mask)

    @cached_property
    def val_mask(self) -> Tensor:  # type: ignore[override]
        """(nodes,) bool."""
        return self.in_own_order(self._by_cluster.val_mask)

    @cached_property
    def test_mask(self) -> Tensor:  # type: ignore[override]
        """(nodes,) bool."""
        return self.in_own_order(self._by_cluster.test_mask)

    @cached_property
    def id(self) -> NDArray[Any] | None:  # type: ignore[override]
        """(nodes,) int64 or strings, what nodes are called where they come from, or None."""
        ids = self._by_cluster.id
        return None if ids is None else np.asarray(ids[self._places.numpy()])

    @cached_property
    def adjacency(self) -> CSR:  # type: ignore[override]
        """(nodes, nodes), row i: the sources of the messages that node i receives."""
        return self._own_edges.with_values(self._of_edges(self._by_cluster.edge_weight))

    @cached_property
    def edge_attr(self) -> Tensor | None:  # type: ignore[override]
        """(edges, columns) in the order of `adjacency`, or None."""
        return self._of_edges(self._by_cluster.edge_attr)

    @cached_property
    def edge_type(self) -> Tensor | None:  # type: ignore[override]
        """(edges,) int32 or int64 in the order of `adjacency`, or None."""
        return self._of_edges(self._by_cluster.edge_type)

    def _of_edges(self, array: Tensor | None) -> Tensor | None:
        if array is None:
            return None
        numbers = self._own_edges.values
        assert numbers is not None  # there is such an array
        return taken(self._folder, array, numbers)

    @cached_property
    def _own_edges(self) -> CSR:
        """Edges under the user's numbers; values are their numbers in `by_cluster`, if they have arrays."""
        graph = self._by_cluster
        edges = graph.adjacency.with_values(None)
        if any(array is not None for array in (graph.edge_weight, graph.edge_attr, graph.edge_type)):
            edges = graph.numbered_edges
        return stored(self._folder, edges, edges.num_entries, self._rows_of(edges))

    def _rows_of(self, edges: CSR) -> Iterator[tuple[slice, CSR]]:
        """Consecutive rows of the user's nodes."""
        for start in range(0, self.num_nodes, ROWS_AT_ONCE):
            part = slice(start, min(start + ROWS_AT_ONCE, self.num_nodes))
            some = edges.take(self._places[part])
            source = self._nodes[some.indices.long()]
            # Repeated edges are at one place, in their order, and stay so.
            rising = (some.row_ids().long() * self.num_nodes + source).argsort(stable=True)
            values = None if some.values is None else some.values[rising]
            yield part, CSR(some.indptr, source[rising].to(some.indices.dtype), values, some.num_cols)

    def replace(self, **changes: Any) -> Graph:
        """A graph of its own, with other arrays, in the user's order: the files hold those of this one."""
        return self._of_its_own().replace(**changes)

    def _with_x(self, x: Tensor, feature_names: tuple[str, ...] | None) -> Graph:
        return self._of_its_own()._with_x(x, feature_names)

    def _of_its_own(self) -> Graph:
        """The same as any other graph, all of it in the user's order."""
        graph = Graph.__new__(Graph)
        edges = GraphEdges(self.adjacency, self.edge_attr, self.edge_type)
        rows = {name: getattr(self, name) for name in ("x", "y", *MASKS)}
        graph._set(edges, self._nodes_with(rows, self.id))
        graph.scratch = self._folder
        return graph

    def _nodes_with(self, rows: dict[str, Tensor], id: NDArray[Any] | None) -> Nodes:
        return Nodes(
            **rows,
            task=self.task,
            num_classes=self.num_classes,
            id=id,
            class_names=self.class_names,
            feature_names=self.feature_names,
        )

    # -- where it is from ----------------------------------------------------------------------------

    def remember_source(self, given: dict[str, Any]) -> None:
        """Keep what `lmc.load` was given."""
        self._given = given

    @property
    def source(self) -> dict[str, Any] | None:
        """What `lmc.load` was given."""
        return self._given
