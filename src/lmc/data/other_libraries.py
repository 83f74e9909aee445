"""The ways into `Graph` from other libraries, and the way out to PyG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from lmc.data import from_dgl, from_networkx, hetero, rules
from lmc.data.pyg import check_data, check_roles, to_data, union
from lmc.data.splits import Role
from lmc.errors import ArgumentError

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData
    from typing_extensions import Self

    from lmc.data.graph import Graph


class OtherLibraries:
    """What `Graph` has of graphs of other libraries: each becomes its arguments."""

    if TYPE_CHECKING:

        def __init__(self, edge_index: Any, **given: Any) -> None:
            """That of `Graph`."""

    @classmethod
    def from_pyg(
        cls,
        data: Data | HeteroData,
        *,
        split: int | None = None,
        split_idx: Mapping[str, Any] | None = None,
        by_type: bool = False,
        task: rules.Task | None = None,
        num_classes: int | None = None,
    ) -> Self:
        """From `torch_geometric.data.Data`: edge_index or adj_t, x, y, masks, id, and what edges have.

        That is edge_weight, edge_attr and edge_type. Of a `HeteroData` too: nodes count through its types, in
        its order, and are called `type:number`; `edge_type` is the place of an edge's type in
        `data.edge_types`. Nodes of a type without labels are unlabelled.

        Args:
            data: the graph; it needs neither labels nor masks.
            split: which column of (nodes, k) masks is taken; None takes the first, with a warning.
            split_idx: node numbers under `"train"`, `"valid"` and `"test"` instead of masks, as from
                OGB's `get_idx_split()`; `data.train_idx` and the like are found without it.
            by_type: of a `HeteroData`: whether each type of nodes has columns of its own in the features,
                with ones in the first of them and the features of the type, if any, in the rest. A `Linear`
                is then an encoder per type. Without it, all types must have as many features.
            task: the labels' kind; None takes it from their type and shape.
            num_classes: None for as many as occur.

        >>> import torch
        >>> from lmc import Graph
        >>> from torch_geometric.data import Data
        >>> data = Data(torch.ones(2, 1), torch.tensor([[0], [1]]))
        >>> Graph.from_pyg(data)
        Graph(2 nodes, 1 edge, 1 feature, no labels, directed)
        >>> data.y = torch.tensor([0, 1])
        >>> Graph.from_pyg(data, split_idx={"train": [0], "test": [1]}).test_mask
        tensor([False,  True])
        """
        if isinstance(data, OtherLibraries):
            raise ArgumentError("data: is an lmc.Graph already; from_pyg takes a Data or a HeteroData of PyG")
        check_data("data", data)
        if hasattr(data, "node_types") and hasattr(data, "metadata"):
            given = hetero.arguments(data, split_idx, by_type)
        else:
            given = union([data], None, [""], split_idx)
        return cls(**given, split=split, task=task, num_classes=num_classes)

    @classmethod
    def from_pyg_list(
        cls,
        graphs: Iterable[Data],
        roles: Sequence[Role] | None = None,
        *,
        split: int | None = None,
        task: rules.Task | None = None,
        num_classes: int | None = None,
    ) -> Self:
        """The disjoint union of several PyG graphs, such as the 24 of PPI.

        Args:
            graphs: one `Data` each; node ids of the union count through them in order.
            roles: the split that each graph belongs to as a whole; None keeps each graph's own masks.
            split: which column of (nodes, k) masks is taken; None takes the first, with a warning.
            task: the labels' kind; None takes it from their type and shape.
            num_classes: None for as many as occur.

        >>> import torch
        >>> from lmc import Graph
        >>> from torch_geometric.data import Data
        >>> one = Data(torch.ones(2, 1), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> both = Graph.from_pyg_list([one, one], roles=["train", "test"])
        >>> both.to_pyg().edge_index.tolist(), both.test_mask.tolist()
        ([[0, 2], [1, 3]], [False, False, True, True])
        """
        graphs = list(graphs)
        check_roles(len(graphs), roles)
        for i, data in enumerate(graphs):
            check_data(f"graphs[{i}]", data)
        names = [f"graphs[{i}]." for i in range(len(graphs))]
        return cls(**union(graphs, roles, names), split=split, task=task, num_classes=num_classes)

    def to_pyg(self) -> Data:
        """`torch_geometric.data.Data`, edges in the order of targets, then sources; all of it copied."""
        return to_data(cast("Graph", self))

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        features: str | Sequence[str] | None = "x",
        label: str | None = "y",
        weight: str = "weight",
        task: rules.Task | None = None,
        num_classes: int | None = None,
    ) -> Self:
        """From a graph of NetworkX; an undirected edge becomes one in each direction.

        Args:
            graph: the graph; `train_mask`, `val_mask` and `test_mask` of its nodes are the split.
            features: one attribute of the nodes or several, numbers or lists of numbers; None for none.
            label: an attribute of the nodes; text is a class. None for none; a node without is unlabelled.
            weight: an attribute of the edges.
            task: the labels' kind; None takes it from their type and shape.
            num_classes: None for as many as occur.

        >>> import networkx
        >>> from lmc import Graph
        >>> Graph.from_networkx(networkx.karate_club_graph(), features=None, label="club").class_names
        ('Mr. Hi', 'Officer')
        """
        given = from_networkx.arguments(graph, features, label, weight)
        return cls(**given, task=task, num_classes=num_classes)

    @classmethod
    def from_dgl(cls, graph: Any, *, task: rules.Task | None = None, num_classes: int | None = None) -> Self:
        """From a homogeneous graph of DGL: feat, label and masks of `ndata`, weight of `edata`."""
        return cls(**from_dgl.arguments(graph), task=task, num_classes=num_classes)
