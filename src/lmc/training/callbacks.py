"""What a run tells those who watch it."""

from __future__ import annotations

import difflib
import warnings
from typing import TYPE_CHECKING, Any

from lmc import checks
from lmc.errors import ArgumentError

if TYPE_CHECKING:
    from lmc.training.loop import Training
    from lmc.training.plan import Plan
    from lmc.training.records import Record


class Callback:
    """Override what you need. A callback may read everything, and end the run by `training.stop(reason)`.

    >>> class StopAtTarget(Callback):
    ...     def on_epoch(self, training, record):
    ...         if record.val is not None and record.val > 0.9:
    ...             training.stop("target reached")
    """

    def on_phase(self, phase: str) -> None:
        """Before the first step: what is done now, such as "loading arxiv"."""

    def on_plan(self, plan: Plan) -> None:
        """Before the first step of a run that is given so much memory: how it keeps to it."""

    def on_start(self, training: Training) -> None:
        """Before the first step, or the first one after a resume."""

    def on_step(self, training: Training, loss: float) -> None:
        """After each step, with the batch's estimate of the loss."""

    def on_epoch(self, training: Training, record: Record) -> None:
        """After each epoch and its evaluation."""

    def on_end(self, training: Training) -> None:
        """When the run has stopped, with `epoch` and `step` where it stopped; not after an error."""

    def on_error(self, training: Training) -> None:
        """When an error ends the run, before it is raised further."""


def check_callbacks(callbacks: Any) -> None:
    """Raise ArgumentError unless each is a Callback; warn of methods that look like hooks and are none."""
    hooks = [name for name in vars(Callback) if name.startswith("on_")]
    for callback in checks.sequence("callbacks", callbacks):
        if not isinstance(callback, Callback):
            raise ArgumentError(f"callbacks={checks.shown([callback])}: each must be an lmc.Callback")
        for name in dir(type(callback)):
            if name.startswith("on_") and name not in hooks:
                near = difflib.get_close_matches(name, hooks, n=1)
                hint = f"did you mean {near[0]}?" if near else f"hooks are {', '.join(hooks)}"
                text = f"callbacks: {type(callback).__name__}.{name} is never called; {hint}"
                warnings.warn(text, stacklevel=5)
