"""What is known of a run: one record per epoch, and what came out of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lmc.nn.model import Model
from lmc.training.metrics import Metric
from lmc.training.result_view import html_of, text_of


@dataclass(frozen=True)
class Record:
    """One epoch.

    Attributes:
        epoch: from 1.
        loss: the mean over the labelled nodes, each at the step that it was in the batch.
        train: the metric on the training nodes, by exact inference; None where it was not evaluated.
        val: on the validation nodes.
        test: on the test nodes.
        seconds: of training, without the evaluation and the compilation of kernels.
        memory: the most bytes that the process has held so far: Python, torch, the graph, all of it.
        lr: the learning rate of the epoch.
        metrics: further metrics that were asked for, each by part of the split; None where not evaluated.
        gradient_error: `lmc.gradient_error` by part of the model, where it was asked for.
        found: what the estimator has found by itself, such as LMC's β; None where there is nothing.
        step_memory: the most bytes that steps took on top of features, graph and histories, in the second
            epoch since the process began; in the first one, before that is known, with what a process takes
            once, such as compiled kernels. None where it is unknown.
        device_memory: the most bytes that tensors have had on the GPU so far; None where there is none.
    """

    epoch: int
    loss: float
    train: float | None
    val: float | None
    test: float | None
    seconds: float
    memory: int
    lr: float
    metrics: dict[str, dict[str, float]] | None = None
    gradient_error: dict[str, float] | None = None
    step_memory: int | None = None
    found: dict[str, float] | None = None
    device_memory: int | None = None


def most(values: Iterable[int | None]) -> int | None:
    """The largest of those that are known.

    >>> most([3, None, 5]), most([None])
    (5, None)
    """
    return max((value for value in values if value is not None), default=None)


def step_memory_of(history: Sequence[Record]) -> int | None:
    """What steps took, as the last epoch knows it: the first one counts what a process takes once."""
    return history[-1].step_memory if history else None


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        model: with the weights of the best epoch.
        history: one record per epoch.
        best: the record of the best validation epoch; the last one where there are no validation nodes.
        metric: what `train`, `val` and `test` are.
        stopped: why it ended: `"finished"`, `"early"` or what a callback said, such as `"interrupted"`.
        wall_seconds: on the clock, with cutting, compilation, evaluation and saving.
        batches: how the graph was cut into batches, and why, in words; None for one batch of all nodes.
    """

    model: Model
    history: Sequence[Record]
    best: Record | None
    metric: Metric
    stopped: str
    wall_seconds: float = 0.0
    batches: str | None = None

    @property
    def seconds(self) -> float:
        """Of training, all epochs together."""
        return sum(record.seconds for record in self.history)

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the same words, a small table, and the curves."""
        return html_of(self)
