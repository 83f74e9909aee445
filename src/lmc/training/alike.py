"""Whether all processes train the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch

from lmc import __version__
from lmc.device import on_host
from lmc.errors import ArgumentError
from lmc.nn.model import Model
from lmc.nn.weights import weights_of
from lmc.processes import Processes

if TYPE_CHECKING:
    from lmc.training.loop import Training

MAY_DIFFER = ("device", "background")


def check_alike(training: Training) -> None:
    """Raise ArgumentError where a process has other settings, versions, or another graph."""
    if training.processes.count == 1:
        return
    said = training.processes.texts(json.dumps(_described(training)))
    first, *others = [json.loads(text) for text in said]
    for rank, other in enumerate(others, start=1):
        for name, value in first.items():
            if other.get(name) != value:
                rule = f"must be {value}, as in rank 0"
                raise ArgumentError(f"rank {rank}: {name} is {other.get(name)}; {rule}")


def _described(training: Training) -> dict[str, str]:
    """All that has to be the same, in words."""
    options = vars(training.options).items()
    shapes = [(name, tuple(value.shape)) for name, value in weights_of(training.model.original).items()]
    return {
        "lmc": __version__,
        "torch": torch.__version__,
        **{n: getattr(v, "__name__", repr(v)) for n, v in options if n not in MAY_DIFFER},
        "method": repr(training.estimator),
        "model": repr(shapes),
        "graph": training.fingerprint,
    }


def share_weights(model: Model, processes: Processes) -> None:
    """Have all processes begin with the weights of the first one, and with its random numbers."""
    if processes.count > 1:
        for value in weights_of(model.original).values():
            value.copy_(processes.share(on_host(value)))
        torch.set_rng_state(processes.share(torch.get_rng_state()))
