"""The best epoch so far, and how long ago it was."""

from __future__ import annotations

import math

from torch import Tensor

from lmc.device import on_host
from lmc.nn.model import Model
from lmc.nn.weights import weights_of
from lmc.training.metrics import Metric
from lmc.training.records import Record


class BestEpoch:
    """Keeps the record and the weights of the best validation epoch.

    Args:
        metric: by which epochs are judged.
        validates: whether there are validation nodes; if not, the last epoch counts as the best.

    Attributes:
        record: of the best epoch; None before the first.
        weights: of `model.original` in that epoch; None if there are no validation nodes.
        evaluations_since: how many evaluations have passed without a better one.
    """

    def __init__(self, metric: Metric, validates: bool) -> None:
        self._metric, self._validates = metric, validates
        self.record: Record | None = None
        self.weights: dict[str, Tensor] | None = None
        self.evaluations_since = 0

    def judge(self, record: Record, model: Model) -> None:
        """Keep the weights if the epoch is the best so far."""
        if not self._validates:
            self.record = record
            return
        if record.val is None:
            return
        before = None if self.record is None else self.record.val
        if before is None or math.isnan(before) or self._metric.better(record.val, before):
            self.record, self.evaluations_since = record, 0
            weights = weights_of(model.original)
            self.weights = {name: on_host(value).clone() for name, value in weights.items()}
        else:
            self.evaluations_since += 1
