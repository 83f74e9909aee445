"""PyG's models as settings: what builds each of them, and what a given one was built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.errors import ArgumentError
from lmc.files import one_line
from lmc.nn.model import MOST_LAYERS
from lmc.nn.recipe import Recipe, is_text


@dataclass(frozen=True)
class PygOptions:
    """What all of PyG's models take.

    Attributes:
        in_features: width of the features.
        out_features: width of a prediction.
        hidden: width of the hidden layers.
        layers: number of convolutions.
        dropout: probability of a hidden entry to be dropped.
        norm: `"none"`, `"batch"`, `"layer"` (node by node), or the name of a norm of PyG.
        norm_kwargs: what the norm takes beside its width.
        act: `"none"`, `"relu"`, `"elu"`, or the name of an activation of torch.
        act_kwargs: what the activation takes.
        act_first: whether the activation comes before the norm.
        jk: jumping knowledge: `"none"`, `"last"`, `"cat"`, `"max"` or `"lstm"`.

    >>> GraphSAGEOptions(8, 3, hidden=16, aggr="sum").build()
    GraphSAGE(8, 3, num_layers=2)
    """

    name: ClassVar[str]
    of: ClassVar[str]
    """Its class in `torch_geometric.nn.models`."""

    in_features: int
    out_features: int
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.0
    norm: str = "none"
    norm_kwargs: dict[str, Any] = field(default_factory=dict)
    act: str = "relu"
    act_kwargs: dict[str, Any] = field(default_factory=dict)
    act_first: bool = False
    jk: str = "none"

    def build(self) -> nn.Module:
        """The model of PyG, with new weights."""
        from torch_geometric.nn import models

        checks.whole_number("hidden", self.hidden, 1)
        checks.whole_number("layers", self.layers, 1, MOST_LAYERS)
        # PyG's own layer norm takes all nodes together.
        usual = {"mode": "node"} if self.norm == "layer" else {}
        try:
            built: nn.Module = getattr(models, self.of)(
                self.in_features,
                self.hidden,
                self.layers,
                self.out_features,
                dropout=self.dropout,
                act=_or_none(self.act),
                act_kwargs=self.act_kwargs,
                act_first=self.act_first,
                norm=_or_none(self.norm),
                norm_kwargs=usual | self.norm_kwargs,
                jk=_or_none(self.jk),
                **self.of_convolutions(),
            )
            return built
        except (ValueError, TypeError, LookupError, AssertionError, ZeroDivisionError) as error:
            raise ArgumentError(f"model {self.name!r}: cannot be built ({one_line(error)})") from None

    def of_convolutions(self) -> dict[str, Any]:
        """What only its convolutions take."""
        return {name: getattr(self, name) for name in self.own_names()}

    @classmethod
    def own_names(cls) -> list[str]:
        """The options that not all models have."""
        shared = {each.name for each in fields(PygOptions)}
        return [each.name for each in fields(cls) if each.name not in shared]

    @classmethod
    def read(cls, conv: Any) -> dict[str, Any]:
        """The options of a convolution."""
        options = {name: getattr(conv, name, None) for name in cls.own_names()}
        return options | ({"bias": options["bias"] is not None} if "bias" in options else {})


@dataclass(frozen=True)
class GCNOptions(PygOptions):
    """PyG's GCN."""

    name = "pyg-gcn"
    of = "GCN"
    improved: bool = False
    cached: bool = False
    add_self_loops: bool | None = None
    normalize: bool = True
    bias: bool = True
    aggr: str | list[str] = "add"


@dataclass(frozen=True)
class GraphSAGEOptions(PygOptions):
    """GraphSAGE."""

    name = "sage"
    of = "GraphSAGE"
    aggr: str | list[str] = "mean"
    normalize: bool = False
    root_weight: bool = True
    project: bool = False
    bias: bool = True

    @classmethod
    def read(cls, conv: Any) -> dict[str, Any]:
        """The options of a convolution."""
        return super().read(conv) | {"bias": conv.lin_l.bias is not None}


@dataclass(frozen=True)
class GINOptions(PygOptions):
    """GIN."""

    name = "gin"
    of = "GIN"
    eps: float = 0.0
    train_eps: bool = False
    aggr: str | list[str] = "add"

    @classmethod
    def read(cls, conv: Any) -> dict[str, Any]:
        """The options of a convolution."""
        eps = {"eps": conv.initial_eps, "train_eps": isinstance(conv.eps, nn.Parameter)}
        return super().read(conv) | eps


@dataclass(frozen=True)
class GATOptions(PygOptions):
    """GAT."""

    name = "gat"
    of = "GAT"
    heads: int = 1
    concat: bool = True
    negative_slope: float = 0.2
    add_self_loops: bool = True
    edge_dim: int | None = None
    fill_value: float | str = "mean"
    bias: bool = True
    residual: bool = False


@dataclass(frozen=True)
class GATv2Options(GATOptions):
    """GAT in its second version."""

    name = "gatv2"
    share_weights: bool = False

    def of_convolutions(self) -> dict[str, Any]:
        """What only its convolutions take."""
        return super().of_convolutions() | {"v2": True}


@dataclass(frozen=True)
class PNAOptions(PygOptions):
    """PNA.

    Its scalers divide by means over the degrees of the graph. They are kept with the weights; so where
    weights are loaded, the degrees that it was built with do not matter.

    Attributes:
        degrees: (largest degree + 1,) how many nodes have which degree; None for one of degree one.
    """

    name = "pna"
    of = "PNA"
    degrees: Tensor | None = None
    aggregators: list[str] = field(default_factory=lambda: ["mean", "min", "max", "std"])
    scalers: list[str] = field(default_factory=lambda: ["identity", "amplification", "attenuation"])
    edge_dim: int | None = None
    towers: int = 1
    pre_layers: int = 1
    post_layers: int = 1
    divide_input: bool = False
    train_norm: bool = False

    def of_convolutions(self) -> dict[str, Any]:
        """What only its convolutions take."""
        for name in ("towers", "pre_layers", "post_layers"):
            checks.whole_number(name, getattr(self, name), 1, MOST_LAYERS)
        if self.hidden % self.towers or self.out_features % self.towers:
            widths = f"hidden={self.hidden} and the {self.out_features} columns of a prediction"
            raise ArgumentError(f"towers={self.towers}: must divide {widths}")
        known = torch.tensor([0, 1], device="cpu") if self.degrees is None else self.degrees
        return super().of_convolutions() | {"deg": known}

    @classmethod
    def own_names(cls) -> list[str]:
        """The options that not all models have, without the degrees, which are of the graph."""
        return [name for name in super().own_names() if name != "degrees"]

    @classmethod
    def read(cls, conv: Any) -> dict[str, Any]:
        """The options of a convolution."""
        scaled = conv.aggr_module
        each = [type(one).__name__.removesuffix("Aggregation").lower() for one in scaled.aggr.aggrs]
        return super().read(conv) | {
            "aggregators": each,
            "scalers": list(scaled.scaler),
            "pre_layers": (len(conv.pre_nns[0]) + 1) // 2,  # with activations between them
            "post_layers": (len(conv.post_nns[0]) + 1) // 2,
            "train_norm": isinstance(scaled.avg_deg_lin, nn.Parameter),
        }


@dataclass(frozen=True)
class EdgeCNNOptions(PygOptions):
    """EdgeCNN."""

    name = "edgecnn"
    of = "EdgeCNN"
    aggr: str | list[str] = "max"


KINDS = (GCNOptions, GraphSAGEOptions, GINOptions, GATv2Options, GATOptions, PNAOptions, EdgeCNNOptions)


def recipe_of(model: Any) -> Recipe | None:
    """How a model of PyG is built anew, as far as its modules show; None where settings cannot say it.

    What they show may not be all: whoever relies on it compares what it builds with the model.

    >>> from torch_geometric.nn import GAT
    >>> recipe_of(GAT(8, 16, 2, 3, heads=4)).options["heads"]
    4
    """
    from torch_geometric.nn import GATv2Conv, models

    version = isinstance(model.convs[0], GATv2Conv)
    kind = next((kind for kind in KINDS if type(model) is getattr(models, kind.of)), None)
    if kind is GATv2Options and not version:
        kind = GATOptions
    act = _act(model.act)
    if kind is None or act is None:
        return None
    norm = _norm(model)
    try:
        options = {
            "hidden": model.hidden_channels,
            "layers": model.num_layers,
            "dropout": model.dropout.p,
            **norm,
            **act,
            "act_first": model.act_first,
            "jk": model.jk_mode or "none",
            **kind.read(model.convs[0]),
        }
    except AttributeError:  # a convolution in the place of its own
        return None
    return Recipe(kind.name, model.out_channels, options)


def _or_none(name: str) -> str | None:
    return None if name == "none" else name


def _act(act: Any) -> dict[str, Any] | None:
    """The activation by its name; None where it has none that PyG knows."""
    if act is None:
        return {"act": "none", "act_kwargs": {}}
    if type(act) is not getattr(torch.nn.modules.activation, type(act).__name__, None):
        return None
    return {"act": type(act).__name__, "act_kwargs": _arguments(act)}


def _norm(model: Any) -> dict[str, Any]:
    """The norm by its name."""
    if model.norm is not None:
        return {"norm": model.norm, "norm_kwargs": dict(model.norm_kwargs or {})}
    norm = model.norms[0]
    if isinstance(norm, nn.Identity):
        return {"norm": "none", "norm_kwargs": {}}
    return {"norm": type(norm).__name__, "norm_kwargs": _arguments(norm)}


def _arguments(module: nn.Module) -> dict[str, Any]:
    """What a module was called with beside its width, where it is not what it takes by itself."""
    inner = getattr(module, "module", module)  # PyG's batch norm holds that of torch
    found: Mapping[str, Any] = vars(inner) | vars(module)
    return {
        name: found[name]
        for name, taken in signature(type(module)).parameters.items()
        if name != "in_channels" and name in found and is_text(found[name]) and found[name] != taken.default
    }
