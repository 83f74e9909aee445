"""GNN: a model of any convolutions, put together from modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from lmc.errors import ArgumentError
from lmc.nn.convolution import ConvolutionLayer, PNALayer
from lmc.nn.linear_convolutions import (
    GCN2ConvLayer,
    GCNConvLayer,
    GINConvLayer,
    SAGEConvLayer,
    UnitLength,
)
from lmc.nn.model import Identity, Layer, Model, NodeWise
from lmc.nn.parts import Activation, Chain, Dropout, Modules
from lmc.nn.rows import Rows
from lmc.nn.trial import input_width, try_on_ten_nodes

if TYPE_CHECKING:
    from lmc.graph import Graph

Module = nn.Module | Callable[[Tensor], Tensor]


class GNN(Model):
    """A model of any convolutions, each with a bipartite form, and modules that work node by node.

    The modules are used as they are, and share their parameters, buffers and mode with the model. What
    stands behind a convolution belongs to what comes next: histories are kept right behind convolutions.
    GCNConv, GCN2Conv, GINConv, and SAGEConv with a mean or a sum take the path of the built-in models. A
    GCN2Conv reads what the encoder gives as its x_0.

    Args:
        layers: a convolution each, `conv((x_source, x_target), edge_index, ...)`, or a `nn.Sequential` of
            a convolution with what stands before it. `edge_weight` and `edge_attr` are given to those
            that take them.
        encoder: node by node, before the layers; None for nothing.
        head: node by node, behind them; None for nothing.
        jump: takes the list of what stands between the layers, one matrix each and of the same width, and
            the last, to what the head reads, such as PyG's `JumpingKnowledge("cat")`.
        in_features: width of the features, where the first module does not say; without it, a module that
            cannot work is refused only when there is a graph.

    Raises:
        ArgumentError: one line that names the module which cannot work, and why.

    >>> from torch_geometric.nn import GATConv, SAGEConv
    >>> sage, gat = SAGEConv(64, 32), GATConv(32, 8, heads=2)
    >>> model = GNN([sage, nn.Sequential(nn.ReLU(), nn.Dropout(0.5), gat)], head=nn.Linear(16, 10))
    >>> len(model.layers)
    2
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        encoder: nn.Module | None = None,
        head: nn.Module | None = None,
        jump: nn.Module | None = None,
        in_features: int | None = None,
    ) -> None:
        parts: list[Layer] = []
        behind: list[nn.Module] = []
        for place, given in enumerate(layers):
            before, conv, after = _split(given, f"layers[{place}]")
            layer, rest = _layer(conv, node_wise([*behind, *before]), f"layers[{place}]")
            parts.append(layer)
            behind = [*rest, *after]
        if not parts:
            raise ArgumentError("layers=[]: must be one convolution or more")
        last = node_wise([*behind, *(() if jump is not None else _flat(head))])
        if jump is not None:
            last = JumpHead(last, len(parts), jump, node_wise(_flat(head)))
        super().__init__(node_wise(_flat(encoder)), parts, last)
        self.jumps = jump is not None
        self.reads_initial = any(isinstance(layer, GCN2ConvLayer) for layer in parts)
        for name, parameter in self.named_parameters():
            if isinstance(parameter, UninitializedParameter):
                raise ArgumentError(f"{name}: has no shape yet; run the model once before it is wrapped")
        self._tried = False
        if (width := in_features or input_width(self)) is not None:
            try_on_ten_nodes(self, width)
            self._tried = True

    def initial(self, encoded: Tensor) -> Tensor:
        """(rows, width) what a GCN2Conv reads: what the encoder gives."""
        return encoded if self.reads_initial else encoded[:, :0]

    def widths(self, graph: Graph) -> list[int]:
        """The widths of every boundary and of a prediction; a module that cannot work is refused."""
        if not self._tried:
            try_on_ten_nodes(self, graph.num_features, graph.edge_attr)
            self._tried = True
        return super().widths(graph)


class JumpHead(NodeWise):
    """A head that reads every layer: (rows, layers x width) to (rows, out)."""

    def __init__(self, last: NodeWise, layers: int, jump: nn.Module, head: NodeWise) -> None:
        super().__init__()
        self.last, self.layers, self.jump, self.head = last, layers, jump, head

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, out) from the messages of every layer but the last, and the last boundary."""
        if z.shape[1] % self.layers:
            raise ArgumentError(f"jump: reads {self.layers} layers of one width; found {z.shape[1]} in all")
        *messages, last = z.chunk(self.layers, dim=1)
        out: Tensor = self.head(self.jump([*messages, self.last(last, rows)]), rows)
        return out


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        return self.function(z)


# -- node by node --------------------------------------------------------------------------------


def node_wise(modules: Sequence[nn.Module]) -> NodeWise:
    """Modules one after the other; a norm, a ReLU and a dropout in a row are fused."""
    parts: list[NodeWise] = []
    rest = [module for module in modules if not isinstance(module, nn.Identity)]
    while rest:
        norm = rest.pop(0) if _has_usual_statistics(rest[0]) and _is_relu(rest[1:]) else None
        if norm is not None or _is_relu(rest):
            rest.pop(0)
            dropout = rest[0] if rest and isinstance(rest[0], nn.Dropout) else None
            parts.append(Activation(norm or nn.Identity(), dropout or 0.0))
            rest = rest[1:] if dropout else rest
        else:
            module = rest.pop(0)
            parts.append(Dropout(module) if isinstance(module, nn.Dropout) else Modules(module))
    if not parts:
        return Identity()
    return parts[0] if len(parts) == 1 else Chain(*parts)


def _is_relu(modules: Sequence[nn.Module]) -> bool:
    return bool(modules) and isinstance(modules[0], nn.ReLU)


def _has_usual_statistics(module: nn.Module) -> bool:
    """Whether it is a batch norm as torch makes it without being asked for anything else."""
    usual = isinstance(module, nn.BatchNorm1d) and module.affine and module.track_running_stats
    return usual and module.momentum is not None


def _flat(module: Module | None) -> list[nn.Module]:
    """The modules of a chain; PyG's batch norm as the one of torch that it holds."""
    from torch_geometric.nn.norm import BatchNorm

    if module is None:
        return []
    if isinstance(module, nn.Sequential):
        return [part for child in module for part in _flat(child)]
    if isinstance(module, BatchNorm) and not module.allow_single_element:
        return [module.module]
    return [as_module(module)]


def as_module(function: Module) -> nn.Module:
    """A function as a module; a module as it is."""
    if isinstance(function, nn.Module):
        return function
    return nn.ReLU() if function in (torch.relu, nn.functional.relu) else Function(function)


# -- convolutions --------------------------------------------------------------------------------


def _split(given: nn.Module, name: str) -> tuple[list[nn.Module], nn.Module, list[nn.Module]]:
    """What stands before the convolution of a layer, the convolution, and what stands behind."""
    if not isinstance(given, nn.Sequential):
        return [], given, []
    chain = _flat(given)
    places = [place for place, module in enumerate(chain) if _is_convolution(module)]
    if len(places) != 1:
        found = ", ".join(type(module).__name__ for module in chain)
        raise ArgumentError(f"{name}: {found}: must have one convolution, not {len(places)}")
    (place,) = places
    return chain[:place], chain[place], chain[place + 1 :]


def _is_convolution(module: nn.Module) -> bool:
    return "edge_index" in signature(module.forward).parameters


def _layer(conv: Any, message: NodeWise, name: str) -> tuple[Layer, list[nn.Module]]:
    """The layer of a convolution, and what of it stands behind the boundary."""
    from torch_geometric.nn import GCN2Conv, GCNConv, GINConv, PNAConv, SAGEConv

    title = f"{name} ({type(conv).__name__})"
    if not _is_convolution(conv):
        raise ArgumentError(f"{title}: takes no edge_index; a layer is a convolution")
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        raise ArgumentError(f"{title}: flow={conv.flow!r}; must be 'source_to_target'")
    adds = getattr(conv, "aggr", None) in ("add", "sum")
    linear = adds or getattr(conv, "aggr", None) == "mean"
    if type(conv) is GCNConv and adds:
        return GCNConvLayer(conv, message), []
    if type(conv) is GCN2Conv and adds:
        return GCN2ConvLayer(conv, message), []
    if type(conv) is SAGEConv and linear and not conv.project:
        return SAGEConvLayer(conv, message), [UnitLength()] if conv.normalize else []
    if type(conv) is GINConv and linear:
        return GINConvLayer(conv, message), _flat(conv.nn)
    if getattr(conv, "cached", False):
        raise ArgumentError(f"{title}: cached=True would keep the edges of the first batch for all")
    kind = PNALayer if type(conv) is PNAConv else ConvolutionLayer
    return kind(conv, message), []
