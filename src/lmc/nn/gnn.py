"""GNN: a model of any convolutions, put together from modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from lmc.errors import ArgumentError
from lmc.nn.activation import Activation
from lmc.nn.convolution import ConvolutionLayer, PNALayer
from lmc.nn.dropout import Dropout
from lmc.nn.linear_convolutions import (
    GCN2ConvLayer,
    GCNConvLayer,
    GINConvLayer,
    SAGEConvLayer,
    UnitLength,
)
from lmc.nn.locality import check_locality, input_width
from lmc.nn.model import Layer, Model
from lmc.nn.module_context import running_on
from lmc.nn.node_wise import Chain, Identity, NodeWise, NodeWiseModule
from lmc.nn.rows import Rows

if TYPE_CHECKING:
    from lmc.data.graph import Graph

Module = nn.Module | Callable[[Tensor], Tensor]


class GNN(Model):
    """A model of any convolutions, each with a bipartite form, and modules that work node by node.

    The modules are used as they are, and share their parameters, buffers and mode with the model. What
    follows a convolution is part of the next layer's message: histories are kept right after convolutions.
    GCNConv, GCN2Conv, GINConv, and SAGEConv with a mean or a sum take the path of the built-in models. A
    GCN2Conv reads what the encoder gives as its x_0.

    Args:
        layers: a convolution each, `conv((x_source, x_target), edge_index, ...)`, or a `nn.Sequential` of
            a convolution with what comes before it. `edge_weight` and `edge_attr` are given to those
            that take them.
        encoder: node by node, before the layers; None for nothing.
        head: node by node, after the layers; None for nothing.
        jump: takes the list of the layers' inputs, without the first, and the last output to what the
            head reads, such as PyG's `JumpingKnowledge("cat")`.
        in_features: width of the features, where the first module does not say. A module that cannot be
            tried without it, or without real features, is tried when there is a graph.

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
        _check(layers, encoder, head, jump)
        parts: list[Layer] = []
        pending: list[nn.Module] = []  # what follows the convolution before
        for place, given in enumerate(layers):
            before, conv, after = _split(given, f"layers[{place}]")
            layer, rest = _layer(conv, node_wise([*pending, *before]), f"layers[{place}]")
            parts.append(layer)
            pending = [*rest, *after]
        if not parts:
            raise ArgumentError("layers=[]: must be one convolution or more")
        last = node_wise([*pending, *(() if jump is not None else _flat(head))])
        end: Any = last if jump is None else JumpHead(last, jump, node_wise(_flat(head)))
        super().__init__(node_wise(_flat(encoder)), parts, end)
        self._followers: list[nn.Module] = []
        self.jumps = jump is not None
        self.reads_initial = any(isinstance(layer, GCN2ConvLayer) for layer in parts)
        for name, parameter in self.named_parameters():
            if isinstance(parameter, UninitializedParameter):
                raise ArgumentError(f"{name}: has no shape yet; run the model once before it is wrapped")
        width = in_features or input_width(self)
        self._tried = width is not None and check_locality(self, width)

    def follow(self, model: nn.Module) -> None:
        """Keep the model that the modules come from in the same mode, and have its names for the weights."""
        self._followers = [model]  # in a list, which torch does not look into: its parameters are ours

    @property
    def original(self) -> nn.Module:
        """The model that was wrapped, or the model itself."""
        return next(iter(self._followers), self)

    def train(self, mode: bool = True) -> GNN:
        """Set the mode, also of the model that was wrapped."""
        for model in self._followers:
            model.train(mode)
        return super().train(mode)

    def initial(self, encoded: Tensor) -> Tensor:
        """(rows, width) what a GCN2Conv reads: what the encoder gives."""
        return encoded if self.reads_initial else encoded[:, :0]

    def widths(self, graph: Graph) -> list[int]:
        """The widths of every boundary and of a prediction; a module that cannot work is refused."""
        self._tried = self._tried or check_locality(self, graph.num_features, graph)
        return super().widths(graph)


class JumpHead(nn.Module):
    """A head that reads every layer."""

    is_identity = False

    def __init__(self, last: NodeWise, jump: nn.Module, head: NodeWise) -> None:
        super().__init__()
        self.last, self.jump, self.head = last, jump, head

    def forward(self, seen: Sequence[Tensor], rows: Rows) -> Tensor:
        """(rows, out) from the messages into every layer but the first, and the last boundary."""
        *messages, boundary = seen
        last = self.last(boundary, rows.within(0))
        with running_on(self.jump, rows.within(1)):
            joined = self.jump([*messages, last])
        out: Tensor = self.head(joined, rows.within(2))
        return out


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        """(rows, in) to (rows, out)."""
        return self.function(z)


def _check(layers: Any, *others: Any) -> None:
    if not isinstance(layers, Sequence | nn.ModuleList) or not all(isinstance(m, nn.Module) for m in layers):
        raise ArgumentError("layers: must be a list of modules, a convolution in each")
    for module in others:
        if module is not None and not callable(module):
            raise ArgumentError(f"{module!r}: encoder, head and jump must be modules")


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
            parts.append(Dropout(module) if isinstance(module, nn.Dropout) else NodeWiseModule(module))
    if not parts:
        return Identity()
    return parts[0] if len(parts) == 1 else Chain(*parts)


def _is_relu(modules: Sequence[nn.Module]) -> bool:
    return bool(modules) and isinstance(modules[0], nn.ReLU)


def _has_usual_statistics(module: nn.Module) -> bool:
    """Whether it is a batch norm with torch's default options."""
    usual = isinstance(module, nn.BatchNorm1d) and module.affine and module.track_running_stats
    return usual and module.momentum is not None


def _flat(module: Module | None) -> list[nn.Module]:
    """The modules of a chain; PyG's batch norm as the one of torch that it holds."""
    from torch_geometric.nn.norm import BatchNorm

    if module is None:
        return []
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
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
    """What comes before the convolution of a layer, the convolution, and what follows it."""
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
    """The layer of a convolution, and the modules of it that come after the boundary."""
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
