"""GNN: a model of any convolutions, put together from modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from lmc.device import HOST
from lmc.errors import ArgumentError
from lmc.nn.activation import Activation
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.cuts import check_cuts
from lmc.nn.dropout import Dropout
from lmc.nn.hooks import hooked, is_changed, is_plain
from lmc.nn.hops import hops_of, keeps_input
from lmc.nn.known_convolutions import LINEAR, layer_of_known
from lmc.nn.linear_convolutions import (
    READ,
    GINConvLayer,
    ReadConvolution,
    SAGEConvLayer,
    UnitLength,
)
from lmc.nn.locality import check_locality, input_width
from lmc.nn.model import Layer, Model, ModelWidths
from lmc.nn.module_context import on_device, running_on, untouched_statistics
from lmc.nn.node_wise import Chain, Identity, NodeWise, NodeWiseModule
from lmc.nn.random_relu import RandomReLU
from lmc.nn.refusals import is_convolution, why_refused
from lmc.nn.rows import Rows
from lmc.nn.typed_convolutions import RGCNConvLayer

if TYPE_CHECKING:
    from lmc.data.graph import Graph

Module = nn.Module | Callable[[Tensor], Tensor]


class GNN(Model):
    """A model of any convolutions, each with a bipartite form, and modules that work node by node.

    The modules are used as they are, and share their parameters, buffers and mode with the model. What
    follows a convolution is part of the next layer's message: histories are kept right after convolutions.
    Linear convolutions (GCNConv, GCN2Conv, GINConv, ClusterGCNConv, SAGEConv and RGCNConv with a mean or a
    sum) take the path of the built-in models, as long as they have no hooks. A GCN2Conv or FAConv reads what
    the encoder gives as its x_0. Convolutions of several hops, such as APPNP, need no bipartite form: each
    hop is a layer.

    Args:
        layers: a convolution each, `conv((x_source, x_target), edge_index, ...)`, or a `nn.Sequential` of
            a convolution with what comes before it. `edge_weight`, `edge_attr` and `edge_type` are
            given to those that take them.
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
            found, rest = _layers(conv, node_wise([*pending, *before]), f"layers[{place}]")
            if keeps_input(conv) and (place > 0 or before or encoder is not None):
                why = "keeps what it is first given: nothing before it would be trained; must be False"
                raise ArgumentError(f"layers[{place}] ({type(conv).__name__}): cached=True {why}")
            parts += found
            pending = [*rest, *after]
        if not parts:
            raise ArgumentError("layers=[]: must be one convolution or more")
        last = node_wise([*pending, *(() if jump is not None else _flat(head))])
        end: Any = last if jump is None else JumpHead(last, jump, node_wise(_flat(head)))
        super().__init__(node_wise(_flat(encoder)), parts, end)
        self._followers: list[nn.Module] = []
        self._given = [part for part in (*layers, encoder, head, jump) if isinstance(part, nn.Module)]
        self.jumps = jump is not None
        self.reads_initial = any(layer.reads_initial for layer in parts)
        for name, parameter in self.named_parameters():
            if isinstance(parameter, UninitializedParameter):
                raise ArgumentError(f"{name}: has no shape yet; run the model once before it is wrapped")
        self._as_given = _parts_of(self._given)
        self._check_hooks()
        width = in_features or input_width(self)
        with on_device(self, HOST):
            self._tried = width is not None and check_locality(self, width)
        self._compared = False

    def follow(self, model: nn.Module) -> None:
        """Keep the model that the modules come from in the same mode, and have its names for the weights."""
        self._followers = [model]  # in a list, which torch does not look into: its parameters are ours
        self._as_given = _parts_of([*self._given, model])
        self._check_hooks()

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
        """(rows, width) what a GCN2Conv or a FAConv reads: what the encoder gives."""
        return encoded if self.reads_initial else encoded[:, :0]

    def all_widths(self, graph: Graph) -> ModelWidths:
        """The widths of all its values; a module that cannot work is refused."""
        self._check_hooks()
        if not self._tried:
            with on_device(self, HOST):
                self._tried = check_locality(self, graph.num_features, graph)
        with untouched_statistics(self):
            widths = super().all_widths(graph)
        if not self._compared:
            with on_device(self, HOST):
                check_cuts(self, graph)
            self._compared = True
        return widths

    def _check_hooks(self) -> None:
        """Raise ArgumentError if hooks would not run, since only the weights of their module are read.

        Or if modules are others by now, or have other options than those that were read of them.
        """
        now = _parts_of([*self._given, *self._followers])
        for (model, name), part in self._as_given.items():
            if now.get((model, name)) is not part:
                raise ArgumentError(f"{name}: was replaced after it was wrapped; wrap it again")
        place = -1
        for layer in self.layers:
            place += layer.opens  # of the convolution
            for part in layer.modules():
                if isinstance(part, ReadConvolution) and not part.is_as_read:
                    title = f"layers[{place}] ({type(part.conv).__name__})"
                    raise ArgumentError(f"{title}: was changed after it was wrapped; wrap it again")
        found = hooked([*self._given, *self._followers], _called(self))
        if found is not None:
            why = "which would not run, since only its parts are called"
            raise ArgumentError(f"{type(found).__name__}: has hooks or methods of its own, {why}")


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


def _called(model: GNN) -> list[nn.Module]:
    """The modules that were given and are called as they are."""
    called: list[nn.Module] = []
    for part in model.modules():
        if isinstance(part, NodeWiseModule):
            called.append(part.module)
        elif isinstance(part, ReadConvolution | ConvolutionLayer):
            called += part.called()
        elif isinstance(part, JumpHead):
            called.append(part.jump)
    return called


# -- node by node --------------------------------------------------------------------------------


def node_wise(modules: Sequence[nn.Module]) -> NodeWise:
    """Modules one after the other; a norm, a ReLU and a dropout in a row are fused."""
    parts: list[NodeWise] = []
    rest = [module for module in modules if not is_plain(module, nn.Identity)]
    while rest:
        norm = rest.pop(0) if _has_usual_statistics(rest[0]) and _is_relu(rest[1:]) else None
        if norm is not None or _is_relu(rest):
            rest.pop(0)
            dropout: Any = rest.pop(0) if rest and is_plain(rest[0], nn.Dropout) else 0.0
            parts.append(Activation(norm or nn.Identity(), dropout))
        else:
            parts.append(_alone(rest.pop(0)))
    if not parts:
        return Identity()
    return parts[0] if len(parts) == 1 else Chain(*parts)


def _alone(module: Any) -> NodeWise:
    """What is random in torch's own modules is a hash of the node."""
    if is_plain(module, nn.Dropout):
        return Dropout(module)
    return RandomReLU(module) if is_plain(module, nn.RReLU) else NodeWiseModule(module)


def _is_relu(modules: Sequence[nn.Module]) -> bool:
    return bool(modules) and is_plain(modules[0], nn.ReLU)


def _has_usual_statistics(module: nn.Module) -> bool:
    """Whether it is a batch norm with torch's default options."""
    if not is_plain(module, nn.BatchNorm1d):
        return False
    return bool(module.affine and module.track_running_stats and module.momentum is not None)


def _flat(given: Module | None) -> list[nn.Module]:
    """The modules of a chain; PyG's batch norm as the one of torch that it holds."""
    from torch_geometric.nn.norm import BatchNorm

    if given is None:
        return []
    module: Any = as_module(given)
    if isinstance(module, nn.Sequential) and not is_changed(module) and _is_chain(type(module)):
        return [part for child in module.children() for part in _flat(child)]
    if is_plain(module, BatchNorm) and not module.allow_single_element:
        return [module.module]
    return [module]


def _is_chain(kind: type[nn.Sequential]) -> bool:
    return kind.forward is nn.Sequential.forward


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
    if is_changed(given):
        raise ArgumentError(f"{name} (Sequential): has hooks; only its parts are called, which may have some")
    chain = _flat(given)
    places = [place for place, module in enumerate(chain) if is_convolution(module)]
    if len(places) != 1:
        found = ", ".join(type(module).__name__ for module in chain)
        raise ArgumentError(f"{name}: {found}: must have one convolution, not {len(places)}")
    (place,) = places
    return chain[:place], chain[place], chain[place + 1 :]


def _layers(conv: Any, message: NodeWise, name: str) -> tuple[Sequence[Layer], list[nn.Module]]:
    """The layer of a convolution, or one for each hop, and its modules that come after the boundary."""
    from torch_geometric.nn import FastRGCNConv, GCN2Conv, GCNConv, RGCNConv

    title = f"{name} ({type(conv).__name__})"
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        raise ArgumentError(f"{title}: flow={conv.flow!r}; must be 'source_to_target'")
    for read in READ:
        if read.fits(conv):
            return [read(conv, message)], _after(conv, read)
    if isinstance(conv, (GCNConv, GCN2Conv)) and (is_changed(conv) or is_changed(conv.aggr_module)):
        raise ArgumentError(f"{title}: has hooks or methods of its own, and no bipartite form to call it by")
    if type(conv) in (RGCNConv, FastRGCNConv) and conv.aggr in LINEAR:
        return [RGCNConvLayer(conv, message)], []
    if type(conv) is FastRGCNConv:
        raise ArgumentError(
            f"{title}: aggr={conv.aggr!r}; PyG's takes 'mean' and 'add', RGCNConv takes others"
        )
    if (several := hops_of(conv, message, title)) is not None:
        return several
    if (known := layer_of_known(conv, message, title)) is not None:
        return [known], []
    if (refused := why_refused(conv)) is not None:
        raise ArgumentError(f"{title}: {refused}")
    if getattr(conv, "decomposed_layers", 1) != 1:
        many = f"decomposed_layers={conv.decomposed_layers}"
        raise ArgumentError(f"{title}: {many}: PyG splits the columns of one matrix, not of a pair")
    if getattr(conv, "cached", False):
        raise ArgumentError(f"{title}: cached=True would keep the edges of the first batch for all")
    return [ConvolutionLayer(conv, message)], []


def _after(conv: Any, kind: type[Layer]) -> list[nn.Module]:
    """The modules of a convolution that come after the boundary."""
    if kind is GINConvLayer:
        return _flat(conv.nn)
    return [UnitLength()] if kind is SAGEConvLayer and conv.normalize else []


def _parts_of(models: Sequence[nn.Module]) -> dict[tuple[int, str], nn.Module]:
    """All modules of these, by where they are."""
    return {
        (place, f"{type(model).__name__}.{name}" if name else type(model).__name__): part
        for place, model in enumerate(models)
        for name, part in model.named_modules()
    }
