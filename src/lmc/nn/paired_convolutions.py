"""PyG's convolutions whose forward lacks the pair, in the bipartite form that their parts have.

Each calls what the module itself calls, on the very module: its linear maps and its `propagate`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lmc.nn.convolution import ConvolutionLayer


class PNALayer(ConvolutionLayer):
    """PyG's PNAConv in a bipartite form, which PyG does not give it."""

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) as `PNAConv.forward` computes it, sources and targets apart."""
        conv: Any = self.conv
        x = self._towers(sources), self._towers(targets)
        given.setdefault("edge_attr", None)
        received = conv.propagate(index, x=x, size=(len(sources), len(targets)), **given)
        both = torch.cat([x[1], received], dim=-1)
        outs = [post(both[:, tower]) for tower, post in enumerate(conv.post_nns)]
        z: Tensor = conv.lin(torch.cat(outs, dim=1))
        return z

    def _towers(self, x: Tensor) -> Tensor:
        conv: Any = self.conv
        if conv.divide_input:
            return x.view(-1, conv.towers, conv.F_in)
        return x.view(-1, 1, conv.F_in).repeat(1, conv.towers, 1)


class AGNNLayer(ConvolutionLayer):
    """AGNNConv: attention by the cosine of both ends."""

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, width) as `AGNNConv.forward` computes it, sources and targets apart."""
        if self.conv.add_self_loops:
            index = with_own_loops(index, len(targets))
        of_unit_length = normalize(sources, dim=-1), normalize(targets, dim=-1)
        size = (len(sources), len(targets))
        conv: Any = self.conv
        z: Tensor = conv.propagate(index, x=(sources, targets), x_norm=of_unit_length, size=size)
        return z


class SuperGATLayer(ConvolutionLayer):
    """SuperGATConv: its attention. What it samples for a loss of its own is left out."""

    def call(self, sources: Tensor, targets: Tensor, index: Tensor, given: dict[str, Any]) -> Tensor:
        """(targets, out) as `SuperGATConv.forward` computes it, sources and targets apart."""
        conv: Any = self.conv
        if conv.add_self_loops:
            index = with_own_loops(index, len(targets))
        x = conv.lin(sources).view(-1, conv.heads, conv.out_channels)
        received = conv.propagate(index, x=(x, x[: len(targets)]), size=(len(x), len(targets)))
        z: Tensor = received.flatten(1) if conv.concat else received.mean(dim=1)
        return z if conv.bias is None else z + conv.bias


def with_own_loops(index: Tensor, targets: int) -> Tensor:
    """(2, edges) with one self-loop for each target, which has the same number among the sources.

    >>> with_own_loops(torch.tensor([[0, 2, 1], [0, 0, 1]]), 2).tolist()
    [[2, 0, 1], [0, 0, 1]]
    """
    loops = torch.arange(targets, device=index.device).expand(2, -1)
    return torch.cat([index[:, index[0] != index[1]], loops], dim=1)
