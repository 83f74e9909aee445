"""Models by name and options: from settings to a model."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.files import one_line
from lmc.nn.from_pyg import from_pyg
from lmc.nn.model import Model
from lmc.nn.recipe import Recipe, is_text
from lmc.nn.sign import Widths
from lmc.runs.registry import OwnKind, allow_own_model, is_own, model_kind
from lmc.runs.sections import Settings, check_objects, check_section, defaults

WIDTH = 64
"""Of the hidden layers, where nothing is said."""


def build_model(name: str, graph: Graph, **options: Any) -> Model:
    """A model by its name, for a graph; a run of it can be loaded by its folder alone.

    Args:
        name: `"gcn"`, `"gcnii"`, `"sage"`, `"gat"`, `"gatv2"`, `"gin"`, `"pna"`, ..., or a function of
            yours, `"module:function"`. It is called with the widths of features and of predictions and the
            options, and gives an lmc model, or one that `lmc.from_pyg` takes.
        graph: what the model is for.
        options: what the model or the function takes, such as `hidden=256, layers=3`.

    >>> import lmc
    >>> model = lmc.build_model("sage", lmc.synthetic(nodes=200), hidden=32, layers=3, norm="batch")
    >>> model.recipe.options["aggr"]
    'mean'
    """
    check_graph(graph)
    if graph.num_classes == 0:
        raise ArgumentError("graph: has no labels, so the width of a prediction is not known")
    if is_own(name):
        allow_own_model(name)
    settings = {"name": name, **options}
    check_model(settings)
    return built(resolved(settings), graph.num_features, graph.num_classes, degree_histogram(graph))


def check_model(settings: Settings) -> None:
    """Every name and every type of a `[model]` section."""
    check_objects("model", settings)
    kind = model_kind(settings["name"])
    options = kind.options()
    if not isinstance(kind, OwnKind):
        check_section("model", settings, kind.load(), options)
    elif not any(taken.kind is Parameter.VAR_KEYWORD for taken in options.values()):
        for key in settings.keys() - {"name"}:
            checks.one_of("model: setting", key, options)


def check_values(settings: Settings) -> None:
    """Every range, by building a model of ours or of PyG for any graph, without weights."""
    if not isinstance(model_kind(settings["name"]), OwnKind):
        with torch.device("meta"):
            module_of(settings, in_features=8, out_features=8, degrees=torch.ones(2, device="cpu"))


def resolved(settings: Settings) -> Settings:
    """With every default written out."""
    options = model_kind(settings["name"]).options()
    width = {"hidden": WIDTH} if "hidden" in options else {}
    return {"name": settings["name"]} | width | defaults(options) | settings


def understood_by(name: object, settings: Settings) -> Settings:
    """Those of the settings that the model of a name has."""
    options = model_kind(name).options()
    return {key: value for key, value in settings.items() if key in options}


def degree_histogram(graph: Graph) -> Tensor:
    """(largest + 1,) how many nodes receive how many messages.

    >>> import lmc
    >>> int(degree_histogram(lmc.synthetic(nodes=200)).sum())
    200
    """
    return torch.bincount(graph.by_cluster.adjacency.indptr.diff())


def built(settings: Settings, in_features: int, out_features: int, degrees: Tensor | None = None) -> Model:
    """The model of a `[model]` section, with new weights."""
    module = module_of(settings, in_features, out_features, degrees)
    options = {key: value for key, value in settings.items() if key != "name"}
    model = as_model(module, settings["name"])
    if isinstance(model_kind(settings["name"]), OwnKind) and is_text(options):
        model.recipe = Recipe(settings["name"], out_features, options)
    return model


def module_of(
    settings: Settings, in_features: int, out_features: int, degrees: Tensor | None = None
) -> nn.Module:
    """What has the weights, by the names that they have in files: a model of ours, or one of PyG."""
    options = dict(settings)
    kind = model_kind(options.pop("name"))
    from_graph: dict[str, Any] = {
        "in_features": in_features,
        "out_features": out_features,
        "degrees": degrees,
        "graph": Widths(in_features, out_features),
    }
    try:
        return kind.build(from_graph, options)
    except RuntimeError as error:  # of torch, for widths whose weights no memory holds
        widths = f"hidden={options.get('hidden')}, {in_features} features and {out_features} classes"
        raise ArgumentError(f"model: cannot be built with {widths} ({one_line(error)})") from None


def as_model(module: object, name: str = "model") -> Model:
    """A model of ours as it is, one of PyG wrapped; else ArgumentError."""
    if isinstance(module, Model):
        return module
    from torch_geometric.nn.models.basic_gnn import BasicGNN  # slow to import, and not for models of ours

    if isinstance(module, BasicGNN):
        return from_pyg(module)
    raise ArgumentError(
        f"{name}: a {type(module).__name__}; must be an lmc model, or one that lmc.from_pyg takes; "
        "lmc.GNN(layers=[...]) makes one of convolutions"
    )
