"""Why a convolution cannot be a layer: the reason that is true for it."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

GIVEN = ("edge_index", "edge_weight", "edge_attr", "edge_type")
"""What a layer gives to a convolution beside its messages, by the name that its forward has for it."""

OF_PYG = {
    "DNAConv": "reads the outputs of all layers before it, (nodes, layers, channels), not one matrix",
    "DynamicEdgeConv": "finds neighbours of its own among all nodes; must take edge_index",
    "GPSConv": "attends from every node to every other, beyond any batch and its neighbours",
    "GravNetConv": "finds neighbours of its own among all nodes; must take edge_index",
    "HANConv": "takes a matrix for each type of nodes; must take one matrix and edge_index",
    "HGTConv": "takes a matrix for each type of nodes; must take one matrix and edge_index",
    "HeteroConv": "takes a matrix for each type of nodes; must take one matrix and edge_index",
    "HypergraphConv": "takes edges of any number of nodes, hyperedge_index; must take edge_index",
    "MeshCNNConv": "takes the edges of a mesh, four to each row and in their order; a graph has any number",
    "PANConv": "weighs paths of several hops by learned sums over all of them, beyond a batch's neighbours",
    "SignedConv": "takes two lists of edges, pos_edge_index and neg_edge_index; must take edge_index",
    "WLConv": "gives colours, numbered over all nodes; must give a matrix that has derivatives",
    "XConv": "finds neighbours of its own among all nodes; must take edge_index",
}
"""What only a look at each convolution of PyG can tell; no option of theirs changes it."""


def is_convolution(module: Any) -> bool:
    """Whether its forward takes edges."""
    return "edge_index" in signature(module.forward).parameters


def why_refused(conv: Any) -> str | None:
    """The reason, where it is known without a trial; None otherwise.

    >>> from torch_geometric.nn import PointTransformerConv, SAGEConv
    >>> why_refused(SAGEConv(4, 4))
    >>> why_refused(PointTransformerConv(4, 4))
    'needs pos; a convolution is given its messages, edge_index, edge_weight, edge_attr and edge_type'
    """
    kind = type(conv)
    if kind.__module__.startswith("torch_geometric.") and kind.__name__ in OF_PYG:
        return OF_PYG[kind.__name__]
    if not is_convolution(conv):
        return "has no argument named edge_index; a layer is a convolution, conv(x, edge_index)"
    if getattr(conv, "num_iters", 1) > 1:  # AntiSymmetricConv
        return f"num_iters={conv.num_iters}: its messages travel several hops; must be 1"
    _, *others = signature(conv.forward).parameters.values()  # the first are the messages
    required = [p.name for p in others if p.default is Parameter.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [name for name in required if name not in GIVEN]
    if not needed:
        return None
    given = f"{', '.join(GIVEN[:-1])} and {GIVEN[-1]}"
    return f"needs {' and '.join(needed)}; a convolution is given its messages, {given}"
