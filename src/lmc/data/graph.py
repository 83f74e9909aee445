"""Graph: adjacency in CSR, features, labels and split; validated once, at the door."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks
from lmc.data import rules, saved, storage
from lmc.data.batch import Batch
from lmc.data.edges import GivenEdges, GraphEdges
from lmc.data.made_features import Made, made_features
from lmc.data.nodes import GivenNodes, Nodes, columns_of
from lmc.data.origin import Origin
from lmc.data.other_libraries import OtherLibraries
from lmc.data.set_once import OF_EDGES, SetOnce, times_changed, with_arrays
from lmc.data.splits import MASKS
from lmc.data.topology import Topology
from lmc.errors import ArgumentError, GraphError
from lmc.scratch import scratch_folder


class Graph(SetOnce, OtherLibraries, Topology):
    """One graph with its features, labels and split, on the CPU.

    Edges mean what they mean in PyG:

    - an edge (j, i) carries a message from its source j to its target i;
    - an edge that is repeated is a message each time, with its own weight, features and type;
    - self-loops are kept as the messages that they are; the `"gcn"` normalisation adds one only where
      it is missing, and of several keeps the last. Wherever neighbours are counted, a node is not its own
      neighbour, and one with which it exchanges several messages counts as often;
    - a node without edges is a node like any other.

    Tensors are shared with the caller where their type allows it, arrays of numpy are copied, and all are
    checked once: do not change them; `replace` makes a graph with others. (A tensor that torch changed in
    place all the same is checked again before it is used; changed weights of edges are refused. What numpy
    changes in the memory of a tensor is not seen.)

    Labels are one of three kinds (`task`): integer classes (`"multiclass"`; False and True are 0 and 1), a
    matrix of zeros and ones (`"multilabel"`) or real numbers (`"regression"`). A node is unlabelled if it is
    in no mask, or if its class is -1 (in a multi-label matrix: its row) or its label is NaN; a mask loses its
    unlabelled nodes. Only training needs labels and a training mask.

    Args:
        edge_index: (2, edges) node ids, sources above targets.
        x: (nodes, features) finite, dense or sparse; float64 stays, all else becomes float32. None for none.
        y: (nodes,) or (nodes, columns) labels; None for none: then all classes are -1, `num_classes` is 0.
        train_mask: (nodes,) bool, or (nodes, k) for k splits; None for no nodes, as for the next two.
        val_mask: (nodes,) or (nodes, k) bool.
        test_mask: (nodes,) or (nodes, k) bool.
        edge_weight: (edges,) finite, or None.
        edge_attr: (edges, columns) finite features of the edges, for convolutions that read them, or None.
        edge_type: (edges,) integers from 0, for convolutions of typed edges such as RGCNConv, or None.
        task: the labels' kind; None takes it from their type and shape.
        num_classes: None for as many as occur.
        split: which of k splits is taken; None takes the first, with a warning.
        id: (nodes,) integers or strings, what nodes are called where they come from; None for nothing.
        class_names: one per class, or None.
        feature_names: one per column of `x`, or None; a run keeps them, and predicts by them.

    Raises:
        GraphError: one line that names the array, the first offending place, and the rule.

    >>> path = Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], [True, True, False])
    >>> path
    Graph(3 nodes, 4 edges, 3 features, 2 classes, undirected)
    >>> path.adjacency.to_dense().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """

    x: Tensor
    """(nodes, features) float32 or float64."""
    y: Tensor
    """(nodes,) int64 classes, or (nodes,) or (nodes, columns) floating point."""
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    task: rules.Task
    num_classes: int
    """The width of a prediction: classes, labels, or targets; 0 where nothing is known of them."""
    id: NDArray[Any] | None
    """(nodes,) int64 or strings, what nodes are called where they come from, or None."""
    class_names: tuple[str, ...] | None
    feature_names: tuple[str, ...] | None
    """One per column of `x`, each once; or None."""

    @torch.inference_mode(False)  # what is made there cannot be trained on
    def __init__(
        self,
        edge_index: Any,
        x: Any = None,
        y: Any = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        edge_weight: Any = None,
        edge_attr: Any = None,
        edge_type: Any = None,
        *,
        task: rules.Task | None = None,
        num_classes: int | None = None,
        split: int | None = None,
        id: Any = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        masks = (train_mask, val_mask, test_mask)
        nodes = GivenNodes(x, y, masks, task, num_classes, split, id, class_names, feature_names)
        ends = rules.tensor("edge_index", edge_index)
        num_nodes = nodes.count or rules.count_ends(ends)
        edges = GivenEdges(edge_weight, edge_attr, edge_type).from_ends(ends, num_nodes)
        self._set(edges, nodes.checked(num_nodes))

    @classmethod
    @torch.inference_mode(False)
    def from_csr(
        cls,
        indptr: Any,
        indices: Any,
        x: Any = None,
        y: Any = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        edge_weight: Any = None,
        edge_attr: Any = None,
        edge_type: Any = None,
        *,
        task: rules.Task | None = None,
        num_classes: int | None = None,
        split: int | None = None,
        id: Any = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Graph:
        """The same from rows of in-neighbours: node i receives from `indices[indptr[i]:indptr[i+1]]`.

        >>> Graph.from_csr([0, 1, 2], [1, 0], torch.eye(2), [0, 1], [True, True])
        Graph(2 nodes, 2 edges, 2 features, 2 classes, undirected)
        """
        masks = (train_mask, val_mask, test_mask)
        nodes = GivenNodes(x, y, masks, task, num_classes, split, id, class_names, feature_names)
        indptr, indices = rules.tensor("indptr", indptr), rules.tensor("indices", indices)
        num_nodes = nodes.count or max(1, indptr.numel() - 1)
        graph = cls.__new__(cls)
        edges = GivenEdges(edge_weight, edge_attr, edge_type).from_rows(indptr, indices, num_nodes)
        graph._set(edges, nodes.checked(num_nodes))
        return graph

    def _set(self, edges: GraphEdges, nodes: Nodes) -> None:
        self.adjacency, self.edge_attr, self.edge_type = edges
        vars(self).update(nodes._asdict())
        self._as_made = times_changed(self)

    # -- a folder on disk; where it is from --------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a folder: `graph.json` and one `.npy` per array.

        It appears whole or not at all; a graph that is there already is replaced.
        """
        storage.save(checks.path("path", path), *saved.content(self))

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Open a folder that `save` wrote; its arrays are memory-mapped and checked, not copied.

        A large graph (`storage.STAYS_ON_DISK`) stays on disk: what is made of all its edges or features is
        kept in files too, in `$LMC_SCRATCH` or else in the folder, without names, for as long as they are
        used. Its arrays cannot be written to.

        >>> import tempfile
        >>> graph = Graph([[0], [1]], torch.ones(2, 1), [0, 1], [True, True])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graph.save(f"{folder}/pair")
        ...     Graph.open(f"{folder}/pair")
        Graph(2 nodes, 1 edge, 1 feature, 2 classes, directed)
        """
        opened = storage.open_folder(checks.path("path", path))
        try:
            graph = cls.from_csr(**saved.arguments(*opened))
            if not opened[1]["x"].flags.writeable:
                graph.scratch = scratch_folder(Path(path))
            graph.remember_source({"name": str(Path(path).absolute())})
            return graph
        except (GraphError, ArgumentError) as error:
            raise GraphError(f"{path}: {error}") from None
        except (KeyError, TypeError) as error:  # a header without these entries
            raise GraphError(f"{path}: not a graph folder ({error})") from None

    _origin: Origin | None = None

    def remember_source(self, given: dict[str, Any]) -> None:
        """Keep what `lmc.load` was given."""
        self._origin = Origin(given, self)

    @property
    def source(self) -> dict[str, Any] | None:
        """What `lmc.load` was given: `name` and more; None for a graph made or changed in memory.

        >>> import lmc
        >>> graph = lmc.load("synthetic")
        >>> graph.source
        {'name': 'synthetic'}
        >>> graph.replace(x=graph.x / 2).source is None
        True
        """
        return None if self._origin is None else self._origin.of(self)

    # -- what it is ------------------------------------------------------------------------------

    @property
    def num_features(self) -> int:
        """The width of `x`."""
        return self.x.shape[1]

    def batch(self, nodes: Any, scale: float = 1.0, weights: Any = None) -> Batch:
        """The batch of any node set.

        Args:
            nodes: (batch,) the graph's own numbers of nodes, or their names in `id` if those are text, each
                once, in any order; or a mask (nodes,).
            scale: what an estimate over these nodes is multiplied by to stand for all.
            weights: (batch,) how much each node counts in the estimate, besides `scale`, such as one over
                its chance to be drawn; None where all count the same.

        >>> path = Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], [True, True, False])
        >>> batch = path.batch([0], scale=3.0)
        >>> batch.nodes.tolist(), batch.halo.tolist()
        ([0], [1])
        """
        return Batch.of(self, nodes, scale, weights)

    @property
    def by_cluster(self) -> Graph:
        """What work on all nodes is done on: the graph itself, unless it is in a prepared folder."""
        return self

    # -- other graphs of it ----------------------------------------------------------------------

    def replace(self, **changes: Any) -> Graph:
        """The graph with other features, labels, masks or names, checked as when it was made.

        Args:
            changes: any of x, y, train_mask, val_mask, test_mask, task, num_classes, id, class_names and
                feature_names, see `Graph`. Of other labels, the kind, the count and the names are those that
                are given or found; so are the names of other features.

        >>> path = Graph([[0, 1, 1, 2], [1, 0, 2, 1]], torch.eye(3), [0, 1, 0], [True, True, False])
        >>> path.replace(x=path.x / 2, y=[0, 1, 2])
        Graph(3 nodes, 4 edges, 3 features, 3 classes, undirected)
        """
        for name in changes:
            if name not in Nodes._fields:
                hint = "; lmc.Graph(...) makes a graph with other edges" if name in OF_EDGES else ""
                raise ArgumentError(f"replace({name}=...): must be one of {', '.join(Nodes._fields)}{hint}")
        given: dict[str, Any] = {name: getattr(self, name) for name in Nodes._fields}
        if "x" in changes:
            given["feature_names"] = None
        if "y" in changes or self.num_classes == 0:
            given |= dict.fromkeys(("y", "task", "num_classes", "class_names"))
        given |= changes
        masks = [given.pop(name) for name in MASKS]
        return with_arrays(self, **GivenNodes(masks=masks, **given).checked(self.num_nodes)._asdict())

    def with_features(self, x: Made | Any) -> Graph:
        """The graph with other features.

        Args:
            x: (nodes, features); or a kind of features that are made of the edges. `"degree"` is how many
                neighbours a node has; `"structure"` is where in the graph it is, by random vectors that are
                added up over 1 to 4 hops, and says nothing about the nodes of another graph.

        >>> Graph([[0, 1], [1, 0]], y=[0, 1]).with_features("structure")
        Graph(2 nodes, 2 edges, 128 features, 2 classes, undirected)
        """
        made = made_features(self.neighbours, x) if isinstance(x, str) else rules.dense("x", x)
        return self._with_x(made, feature_names=None)

    def select_features(self, names: Sequence[str]) -> Graph:
        """The graph with the features that have these names, in this order; itself where it is so.

        >>> pair = Graph([[0], [1]], [[1.0, 2.0], [3.0, 4.0]], feature_names=["a", "b"])
        >>> pair.select_features(["b", "a"]).x.tolist()
        [[2.0, 1.0], [4.0, 3.0]]
        """
        columns = columns_of(names, self.feature_names or ())
        if tuple(names) == self.feature_names:
            return self
        return self._with_x(self.x[:, columns], feature_names=tuple(names))

    def to(self, dtype: torch.dtype) -> Graph:
        """The graph with features of another type, float32 or float64; itself where they have it.

        >>> Graph([[0], [1]], torch.ones(2, 1, dtype=torch.float64)).to(torch.float32).x.dtype
        torch.float32
        """
        if dtype == self.x.dtype:
            return self
        if dtype not in (torch.float32, torch.float64):
            raise ArgumentError(f"dtype={dtype}: features are torch.float32 or torch.float64, on the CPU")
        return self._with_x(self.x.to(dtype), self.feature_names)

    def _with_x(self, x: Tensor, feature_names: tuple[str, ...] | None) -> Graph:
        return with_arrays(self, x=rules.features(x, self.num_nodes), feature_names=feature_names)

    def __repr__(self) -> str:
        kind = "undirected" if self.is_undirected else "directed"
        width = {"multiclass": "class", "multilabel": "label", "regression": "target"}[self.task]
        labels = checks.counted(self.num_classes, width) if self.num_classes else "no labels"
        sizes = {"node": self.num_nodes, "edge": self.num_edges, "feature": self.num_features}
        counts = ", ".join(checks.counted(number, noun) for noun, number in sizes.items())
        return f"Graph({counts}, {labels}, {kind})"
