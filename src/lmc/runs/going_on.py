"""What may be otherwise when a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmc.runs.sections import Settings
from lmc.training.options import TrainingOptions

OLDER = {"balance": "none", "parts_per_batch": 1}
"""What a run did whose settings do not say it: what was the default before."""

CHANGEABLE = {
    "training.epochs",
    "training.checkpoint",
    "training.checkpoint_seconds",
    "training.device",
    "training.history_cache",
    "data.name",  # the graph must be the same, wherever it is
    "data.root",
}


def refusal(kept: Mapping[str, Settings], asked: Mapping[str, Settings]) -> str | None:
    """Why a run cannot go on with other settings, in a line; None where it can.

    Args:
        kept: the settings that it began with, by section.
        asked: those that it is to go on with. What is None is the same as nothing, and an option of training
            that is not there has its default, or what was it before: the run may be older than the option.

    >>> refusal({"training": {"lr": 0.1, "epochs": 2}}, {"training": {"lr": 0.1, "epochs": 4}}) is None
    True
    >>> refusal({"training": {"lr": 0.1}}, {"training": {"lr": 0.5}})
    'goes on with the settings of the run: training.lr is 0.1, and cannot become 0.5'
    >>> refusal({"model": {"name": "gcnii", "alpha": 0.1}}, {"model": {"name": "gcn"}})
    'goes on with the settings of the run: model.name is gcnii, and cannot become gcn'
    >>> refusal({"training": {}}, {"training": {"balance": "none"}}) is None
    True
    """
    before, after = UNSAID | _by_place(kept), UNSAID | _by_place(asked)
    # Names first: a model of another kind has other options too.
    for place in sorted(before.keys() | after.keys(), key=lambda place: (not place.endswith(".name"), place)):
        old, new = before.get(place), after.get(place)
        if old != new and place not in CHANGEABLE:
            return f"goes on with the settings of the run: {place} is {old}, and cannot become {new}"
    epochs = "training.epochs"
    if before.get(epochs) != after.get(epochs) and before.get("training.scheduler") == "cosine":
        return f"epochs={after.get(epochs)}: the cosine schedule of this run ends with its epochs"
    return None


def _by_place(tree: Mapping[str, Settings]) -> dict[str, Any]:
    places = {f"{section}.{key}": value for section, keys in tree.items() for key, value in keys.items()}
    return {place: value for place, value in places.items() if value is not None}


UNSAID = _by_place({"training": vars(TrainingOptions()) | OLDER})
"""Options of a run whose settings do not say them."""
