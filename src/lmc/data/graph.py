"""Graph: adjacency in CSR, features, labels and split; validated once, at the door."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from lmc.data import rules, storage
from lmc.data.batch import Batch
from lmc.data.pyg import MASKS, Role, union
from lmc.errors import ArgumentError, GraphError
from lmc.sparse import CSR, index_dtype

if TYPE_CHECKING:
    from torch_geometric.data import Data


class Graph:
    """One graph with its features, labels and split, on the CPU.

    Edges mean what they mean in PyG:

    - an edge (j, i) carries a message from its source j to its target i;
    - repeated edges are merged, and their weights (1 where there are none) add up, self-loops included;
    - self-loops are kept as the messages that they are; the `"gcn"` normalisation adds one only where
      it is missing. Wherever neighbours are counted, a node is not its own neighbour;
    - a node without edges is a node like any other.

    Arrays are shared with the caller where their type allows it, and checked once: do not change them.

    Labels are one of three kinds (`task`): integer classes (`"multiclass"`), a matrix of zeros and ones
    (`"multilabel"`) or real numbers (`"regression"`). A node is unlabelled if it is in no mask, or if
    its class is -1 (in a multi-label matrix: its row); a mask loses its unlabelled nodes.

    Args:
        edge_index: (2, edges) node ids, sources above targets.
        x: (nodes, features) finite; float64 stays, all else becomes float32. None for no features.
        y: (nodes,) or (nodes, columns) labels.
        train_mask: (nodes,) bool with at least one labelled node.
        val_mask: (nodes,) bool, or None for no nodes.
        test_mask: (nodes,) bool, or None for no nodes.
        edge_weight: (edges,) finite, or None.
        edge_attr: (edges, columns) finite features of the edges, for convolutions that read them, or None.
            Edges with features must not repeat.
        task: the labels' kind; None takes it from their type and shape.
        num_classes: None for as many as occur.

    Raises:
        GraphError: one line that names the array, the first offending place, and the rule.

    >>> path = Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], [True, True, False])
    >>> path
    Graph(3 nodes, 4 edges, 3 features, 2 classes, undirected)
    >>> path.adjacency.to_dense().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """

    adjacency: CSR
    """(nodes, nodes), row i: the sources of the messages that node i receives."""
    x: Tensor
    """(nodes, features) float32 or float64."""
    y: Tensor
    """(nodes,) int64 classes, or (nodes,) or (nodes, columns) floating point."""
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    edge_attr: Tensor | None
    """(edges, columns) in the order of `adjacency`, or None."""
    task: rules.Task
    num_classes: int
    """The width of a prediction: classes, labels, or targets."""

    def __init__(
        self,
        edge_index: Any,
        x: Any,
        y: Any,
        train_mask: Any,
        val_mask: Any = None,
        test_mask: Any = None,
        edge_weight: Any = None,
        edge_attr: Any = None,
        *,
        task: rules.Task | None = None,
        num_classes: int | None = None,
    ) -> None:
        x, y = _tensor("x", x), rules.tensor("y", y)
        num_nodes = rules.count_nodes(x, y)
        ends = rules.edge_index("edge_index", rules.tensor("edge_index", edge_index), num_nodes)
        weight = _weight(edge_weight, ends.shape[1])
        source, target = ends.to(index_dtype(num_nodes)).numpy()
        values = np.ones(len(source), np.float32) if weight is None else weight.numpy()
        edges = sparse.coo_array((values, (target, source)), shape=(num_nodes, num_nodes))
        self.adjacency = _merged(edges, weighted=weight is not None)
        self.edge_attr = _edge_attr(edge_attr, source, target, self.adjacency)
        self._set_nodes(x, y, (train_mask, val_mask, test_mask), task, num_classes)

    @classmethod
    def from_csr(
        cls,
        indptr: Any,
        indices: Any,
        x: Any,
        y: Any,
        train_mask: Any,
        val_mask: Any = None,
        test_mask: Any = None,
        edge_weight: Any = None,
        edge_attr: Any = None,
        *,
        task: rules.Task | None = None,
        num_classes: int | None = None,
    ) -> Graph:
        """The same from rows of in-neighbours: node i receives from `indices[indptr[i]:indptr[i+1]]`.

        >>> Graph.from_csr([0, 1, 2], [1, 0], torch.eye(2), [0, 1], [True, True])
        Graph(2 nodes, 2 edges, 2 features, 2 classes, undirected)
        """
        x, y = _tensor("x", x), rules.tensor("y", y)
        num_nodes = rules.count_nodes(x, y)
        indptr, indices = rules.tensor("indptr", indptr), rules.tensor("indices", indices)
        indptr, indices = rules.csr(indptr, indices, num_nodes)
        index = index_dtype(max(num_nodes, indices.numel()))
        weight = _weight(edge_weight, indices.numel())
        given = CSR(indptr.to(index), indices.to(index), weight, num_nodes)
        graph = cls.__new__(cls)
        if given.is_canonical():  # then it is taken as it is, and stays on disk if it is there
            graph.adjacency = given
            graph.edge_attr = None if edge_attr is None else _checked_attr(edge_attr, given.num_entries)
        else:
            graph.adjacency = _merged(given.to_scipy(), weighted=weight is not None)
            source, target = given.indices.numpy(), given.row_ids().numpy()
            graph.edge_attr = _edge_attr(edge_attr, source, target, graph.adjacency)
        graph._set_nodes(x, y, (train_mask, val_mask, test_mask), task, num_classes)
        return graph

    def _set_nodes(
        self,
        x: Tensor | None,
        y: Tensor,
        masks: Iterable[Any],
        task: rules.Task | None,
        num_classes: int | None,
    ) -> None:
        num_nodes = self.num_nodes
        self.x = rules.features(torch.empty(num_nodes, 0) if x is None else x, num_nodes)
        given = {name: _mask(name, mask, num_nodes) for name, mask in zip(MASKS, masks, strict=True)}
        rules.masks(given, num_nodes)
        in_a_mask = torch.stack(list(given.values())).any(dim=0)
        self.y, self.task, self.num_classes = rules.labels(y, in_a_mask, task, num_classes)
        labelled = ~rules.unlabelled(self.y, self.task)
        self.train_mask, self.val_mask, self.test_mask = (m & labelled for m in given.values())
        rules.trainable(self.train_mask)

    # -- PyG in, PyG out -------------------------------------------------------------------------

    @classmethod
    def from_pyg(cls, data: Data, *, task: rules.Task | None = None, num_classes: int | None = None) -> Graph:
        """From `torch_geometric.data.Data`: x, y, edge_index, edge_weight, edge_attr and the masks.

        >>> from torch_geometric.data import Data
        >>> data = Data(torch.ones(2, 1), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> data.train_mask = torch.tensor([True, True])
        >>> Graph.from_pyg(data)
        Graph(2 nodes, 1 edges, 1 features, 2 classes, directed)
        """
        return cls(**union([data], None, [""]), task=task, num_classes=num_classes)

    @classmethod
    def from_pyg_list(
        cls,
        graphs: Iterable[Data],
        roles: Sequence[Role] | None = None,
        *,
        task: rules.Task | None = None,
        num_classes: int | None = None,
    ) -> Graph:
        """The disjoint union of several PyG graphs, such as the 24 of PPI.

        Args:
            graphs: one `Data` each; node ids of the union count through them in order.
            roles: the split that each graph belongs to as a whole; None keeps each graph's own masks.
            task: the labels' kind; None takes it from their type and shape.
            num_classes: None for as many as occur.

        >>> from torch_geometric.data import Data
        >>> one = Data(torch.ones(2, 1), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> both = Graph.from_pyg_list([one, one], roles=["train", "test"])
        >>> both.to_pyg().edge_index.tolist(), both.test_mask.tolist()
        ([[0, 2], [1, 3]], [False, False, True, True])
        """
        graphs = list(graphs)
        if not graphs:
            raise GraphError("graphs has length 0: a union needs one or more")
        if roles is not None and len(roles) != len(graphs):
            raise GraphError(f"roles has length {len(roles)}: must be {len(graphs)}, one per graph")
        for i, role in enumerate(roles or []):
            if role not in get_args(Role):
                raise GraphError(f"roles[{i}] = {role!r}: must be one of {', '.join(get_args(Role))}")
        names = [f"graphs[{i}]." for i in range(len(graphs))]
        return cls(**union(graphs, roles, names), task=task, num_classes=num_classes)

    def to_pyg(self) -> Data:
        """`torch_geometric.data.Data` with the merged edges, ordered by target; the rest as it is."""
        from torch_geometric.data import Data  # half the time of `import lmc`, for a few users of it

        edge_index = torch.stack([self.adjacency.indices, self.adjacency.row_ids()]).long()
        data = Data(x=self.x, edge_index=edge_index, y=self.y)
        data.train_mask, data.val_mask, data.test_mask = (getattr(self, name) for name in MASKS)
        if self.edge_weight is not None:
            data.edge_weight = self.edge_weight
        if self.edge_attr is not None:
            data.edge_attr = self.edge_attr
        return data

    # -- a folder on disk ------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a folder: `graph.json` and one `.npy` per array.

        It appears whole or not at all; a graph that is there already is replaced.
        """
        arrays = {"indptr": self.adjacency.indptr, "indices": self.adjacency.indices}
        arrays |= {name: getattr(self, name) for name in ("x", "y", *MASKS)}
        if self.edge_weight is not None:
            arrays["edge_weight"] = self.edge_weight
        if self.edge_attr is not None:
            arrays["edge_attr"] = self.edge_attr
        about = {"task": self.task, "num_classes": self.num_classes}
        storage.save(Path(path), about, {name: array.numpy() for name, array in arrays.items()})

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Open a folder that `save` wrote; its arrays are memory-mapped and checked, not copied.

        >>> import tempfile
        >>> graph = Graph([[0], [1]], torch.ones(2, 1), [0, 1], [True, True])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph.save(f"{folder}/pair")
        ...     Graph.open(f"{folder}/pair")
        Graph(2 nodes, 1 edges, 1 features, 2 classes, directed)
        """
        about, arrays = storage.open_folder(Path(path))
        try:
            graph = cls.from_csr(**arrays, task=about["task"], num_classes=about["num_classes"])
            graph.remember_source(str(path), None)
            return graph
        except (GraphError, ArgumentError) as error:
            raise GraphError(f"{path}: {error}") from None
        except (KeyError, TypeError) as error:  # a header without these entries
            raise GraphError(f"{path}: not a graph folder ({error})") from None

    # -- where it is from ------------------------------------------------------------------------

    _source: tuple[str, str | None] | None = None
    _as_loaded: tuple[CSR, Tensor, int] | None = None

    def remember_source(self, name: str, root: str | None) -> None:
        """Keep what `lmc.load` was given."""
        self._source, self._as_loaded = (name, root), (self.adjacency, self.x, self.x._version)

    @property
    def source(self) -> tuple[str, str | None] | None:
        """The name or path that `lmc.load` takes, and its `root`; None for a graph made or changed in memory.

        >>> import lmc
        >>> graph = lmc.load("synthetic")
        >>> graph.source
        ('synthetic', None)
        >>> graph.x = graph.x / 2
        >>> graph.source is None
        True
        """
        if self._as_loaded is None:
            return None
        adjacency, x, version = self._as_loaded
        same = self.adjacency is adjacency and self.x is x and x._version == version
        return self._source if same else None

    # -- what it is ------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return self.adjacency.shape[0]

    @property
    def num_edges(self) -> int:
        """How many messages one aggregation sends: an undirected edge counts twice."""
        return self.adjacency.num_entries

    @property
    def num_features(self) -> int:
        """The width of `x`."""
        return self.x.shape[1]

    @property
    def edge_weight(self) -> Tensor | None:
        """(edges,) in the order of `adjacency`, or None where every weight is one."""
        return self.adjacency.values

    @cached_property
    def transposed(self) -> CSR:
        """(nodes, nodes), row j: the targets of node j's messages; `adjacency` itself if undirected."""
        return self.adjacency.transpose()

    @property
    def is_undirected(self) -> bool:
        """Whether every edge has its reverse, with the same weight."""
        return self.transposed is self.adjacency

    @cached_property
    def numbered_edges(self) -> CSR:
        """(nodes, nodes) the adjacency with the number of each edge, its place in `edge_attr`, as value."""
        number = torch.arange(self.num_edges)
        return CSR(self.adjacency.indptr, self.adjacency.indices, number, self.num_nodes)

    @cached_property
    def neighbours(self) -> CSR:
        """(nodes, nodes), row i: the other nodes that send to i or receive from it."""
        if self.is_undirected:
            pattern = self.adjacency.without_diagonal()
        else:
            either = _ones(self.adjacency).to_scipy() + _ones(self.transposed).to_scipy()
            pattern = CSR.from_scipy(either).without_diagonal()
        return _ones(pattern)

    def batch(self, nodes: Any, scale: float = 1.0, weights: Any = None) -> Batch:
        """The batch of any node set.

        Args:
            nodes: (batch,) the graph's own node ids, each once, in any order.
            scale: what an estimate over these nodes is multiplied by to stand for all.
            weights: (batch,) how much each node counts in the estimate, besides `scale`, such as one over
                its chance to be drawn; None where all count the same.

        >>> path = Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], [True, True, False])
        >>> batch = path.batch([0], scale=3.0)
        >>> batch.nodes.tolist(), batch.halo.tolist()
        ([0], [1])
        """
        return Batch.of(self, nodes, scale, weights)

    def __repr__(self) -> str:
        kind = "undirected" if self.is_undirected else "directed"
        width = "targets" if self.task == "regression" else "classes"
        counts = f"{self.num_nodes:,} nodes, {self.num_edges:,} edges"
        sizes = f"{self.num_features:,} features, {self.num_classes:,} {width}"
        return f"Graph({counts}, {sizes}, {kind})"


def _weight(edge_weight: Any, num_edges: int) -> Tensor | None:
    if edge_weight is None:
        return None
    return rules.edge_weight(rules.tensor("edge_weight", edge_weight), num_edges)


def _checked_attr(edge_attr: Any, num_edges: int) -> Tensor:
    return rules.edge_attr(rules.tensor("edge_attr", edge_attr), num_edges)


def _edge_attr(edge_attr: Any, source: NDArray[Any], target: NDArray[Any], adjacency: CSR) -> Tensor | None:
    """The features of the edges, in the order of the adjacency that was made of them."""
    if edge_attr is None:
        return None
    checked = _checked_attr(edge_attr, len(source))
    order = np.lexsort((source, target))
    if adjacency.num_entries < len(source):
        source, target = source[order], target[order]
        twice = int(((np.diff(source) == 0) & (np.diff(target) == 0)).argmax())
        edge = f"{source[twice]} -> {target[twice]}"
        rule = "edges with features must not repeat; merge them, or leave edge_attr out"
        raise GraphError(f"edge_attr: the edge {edge} is there twice; {rule}")
    return checked[torch.from_numpy(order)]


def _tensor(name: str, array: Any) -> Tensor | None:
    return None if array is None else rules.tensor(name, array)


def _merged(edges: sparse.sparray, *, weighted: bool) -> CSR:
    """CSR of edges whose repetitions are added up; without values if every weight turns out to be 1."""
    merged = CSR.from_scipy(edges)
    if merged.values is None or (not weighted and merged.num_entries == edges.nnz):
        return _ones(merged)
    rules.finite("edge_weight, added up", merged.values, "edge weights must be finite")
    return merged


def _ones(matrix: CSR) -> CSR:
    """The pattern of a matrix: every value one."""
    return CSR(matrix.indptr, matrix.indices, None, matrix.num_cols)


def _mask(name: str, mask: Any, num_nodes: int) -> Tensor:
    if mask is None:
        return torch.zeros(num_nodes, dtype=torch.bool)
    return rules.tensor(name, mask)
