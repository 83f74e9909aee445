"""How a model is built anew, in words that a file can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """What a model was made of.

    Attributes:
        name: as settings have it: one of the registry's, or `module:function`.
        out_features: width of a prediction.
        options: everything else but the width of the features, which is that of the graph.

    >>> import lmc
    >>> recipe = lmc.GCN(8, 16, 3, layers=3).recipe
    >>> recipe.name, recipe.options["hidden"], recipe.options["layers"]
    ('gcn', 16, 3)
    """

    name: str
    out_features: int
    options: dict[str, Any]


def is_text(value: Any) -> bool:
    """Whether a file of settings can say a value.

    >>> is_text({"heads": [1, 2]}), is_text(print)
    (True, False)
    """
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_text(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_text, value))
    return isinstance(value, (bool, int, float, str))
