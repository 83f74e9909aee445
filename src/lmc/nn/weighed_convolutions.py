"""PyG's convolutions whose messages are weighed by a normalisation, which is that of the whole graph.

They are not linear, so each message is sent by itself; its weight is an entry of the normalised adjacency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lmc.data.batch import Batch, Edges
from lmc.data.derived_norms import Looped, Plain
from lmc.data.normalization import Norm, messages
from lmc.nn.cluster_gcn_conv import ClusterGCNConvLayer
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.linear_convolutions import GCNConvLayer, SAGEConvLayer, normalization_of
from lmc.nn.node_wise import NodeWise

if TYPE_CHECKING:
    from lmc.data.graph import Graph
    from lmc.data.sampled import SampledBlock


class WeighedLayer(ConvolutionLayer):
    """A convolution of messages that have weights, one each.

    Args:
        conv: the convolution.
        message: what comes before it, node by node.
        norm: the normalisation whose entries are the weights.
    """

    def __init__(self, conv: Any, message: NodeWise, norm: Norm) -> None:
        super().__init__(conv, message)
        self.norm = norm
        self.takes_weight = self._needs_weight = True
        self.takes_attr = False

    def prepare_graph(self, graph: Graph) -> None:
        """Normalise the adjacency."""
        messages(graph, self.norm)

    def edges(self, batch: Batch) -> Edges:
        """What the batch receives, self-loops of the normalisation included."""
        return batch.weighed_edges(self.norm)

    def halo_edges(self, batch: Batch) -> Edges:
        """What the halo receives from within reach, self-loops of the normalisation included."""
        return batch.weighed_halo_edges(self.norm)


class GCNConvOfMessages(WeighedLayer):
    """GCNConv with a maximum, or another aggregation that is not linear."""

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__(conv, message, normalization_of(conv))

    def drawn_edges(self, block: SampledBlock) -> Edges:
        """As they are: a maximum is not that of messages that stand for several."""
        return block.drawn_edges(self.norm)

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) as `GCNConv.forward` computes it, sources and targets apart."""
        conv: Any = self.conv
        x, size = (conv.lin(sources), None), (len(sources), len(targets))
        z: Tensor = conv.propagate(index, x=x, size=size, **given)
        return z if conv.bias is None else z + conv.bias


class FALayer(WeighedLayer):
    """FAConv: z = A' h + eps h⁰, with A' weighed by attention that may be negative.

    As PyG's, it normalises an adjacency without weights, or takes the weights as they are.
    """

    reads_initial = True

    def __init__(self, conv: Any, message: NodeWise) -> None:
        super().__init__(conv, message, _unweighted_gcn(conv) if conv.normalize else "sum")

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, width) as `FAConv.forward` computes it, sources and targets apart, without x_0."""
        conv: Any = self.conv
        alpha = conv.att_l(sources), conv.att_r(targets)
        size = (len(sources), len(targets))
        z: Tensor = conv.propagate(
            index, x=(sources, None), alpha=alpha, edge_weight=given["edge_weight"], size=size
        )
        conv._alpha = None  # which it keeps for those who ask for attention
        return z

    def update(self, received: Tensor, initial: Tensor) -> Tensor:
        """(rows, width) with its share of the model's input."""
        eps: float = self.conv.eps  # type: ignore[assignment]
        return received + eps * initial


class EGLayer(WeighedLayer):
    """EGConv: several aggregations of transformed messages, combined by a function of the node's own.

    Where self-loops are added, every node has one. Without `symnorm`, PyG adds none to the nodes behind the
    last one that has an edge.
    """

    def __init__(self, conv: Any, message: NodeWise) -> None:
        if "symnorm" in conv.aggregators:
            norm = _unweighted_gcn(conv)
        else:
            norm = Looped("plain sum") if conv.add_self_loops else "plain sum"
        super().__init__(conv, message, norm)

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) as `EGConv.forward` computes it, sources and targets apart."""
        conv: Any = self.conv
        x, size = (conv.bases_lin(sources), None), (len(sources), len(targets))
        received = conv.propagate(index, x=x, symnorm_weight=given["edge_weight"], size=size)
        kinds = conv.num_bases * len(conv.aggregators)
        weightings = conv.comb_lin(targets).view(-1, conv.num_heads, kinds)
        bases = received.view(-1, kinds, conv.out_channels // conv.num_heads)
        z = torch.matmul(weightings, bases).view(-1, conv.out_channels)
        return z if conv.bias is None else z + conv.bias


class AddedUp(WeighedLayer):
    """A linear layer message by message, for a place where others are not linear, or have other edges."""

    def __init__(self, layer: SAGEConvLayer | GCNConvLayer | ClusterGCNConvLayer) -> None:
        super().__init__(layer.conv, layer.message, layer.aggregation)
        self.layer = layer

    def called(self) -> list[nn.Module]:
        """What the layer calls."""
        return self.layer.called()

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) the layer's update of the sum."""
        messages = given["edge_weight"][:, None] * sources[index[0]]
        aggregated = sources.new_zeros(len(targets), sources.shape[1]).index_add(0, index[1], messages)
        return self.layer.update(aggregated, targets, targets[:, :0])


def _unweighted_gcn(conv: Any) -> Norm:
    """PyG's gcn_norm, called without weights."""
    return Plain("gcn" if conv.add_self_loops else "gcn without loops")
