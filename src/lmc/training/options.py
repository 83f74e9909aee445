"""Options of a training: everything but the graph, the model and the estimator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lmc import checks
from lmc.batching.balance import Balance
from lmc.batching.choice import check_sizes
from lmc.batching.partition import PartitionMethod
from lmc.batching.samplers import BatchOptions
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Init
from lmc.estimators.losses import Loss
from lmc.precision import Precision
from lmc.training.metrics import Metrics, checked_metrics
from lmc.training.optimizers import MakeOptimizer, MakeScheduler

_LEAST_WHOLE = {
    "parts": 1,
    "parts_per_batch": 1,
    "epochs": 1,
    "seed": 0,
    "patience": 1,
    "evaluate_every": 1,
    "gradient_error_every": 1,
    "shards": 1,
}
_REAL = ("lr", "weight_decay", "head_weight_decay", "checkpoint_seconds", "batch_share")
_MAY_BE_NONE = (
    "parts",
    "parts_per_batch",
    "batch_share",
    "patience",
    "gradient_error_every",
    "clip",
    "checkpoint_seconds",
    "weight_decay",
    "head_weight_decay",
)

Histories = Literal["memory", "disk"]
"""Where historical values are kept."""
Checkpoint = Literal["none", "last"] | int
"""How many checkpoints of a run are kept."""


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained; ranges are checked when it is made.

    Attributes:
        parts: into how many clusters the graph is cut; None to choose it by the graph's size, where the
            method needs them.
        parts_per_batch: clusters in a batch; None is 1 where `parts` is given, otherwise it is chosen.
        epochs: how often every cluster is visited.
        lr: the learning rate.
        seed: of the clusters, their groups, and the dropout masks.
        optimizer: `"adam"`, `"adamw"`, `"sgd"`, ..., or a class of torch's that takes groups and `lr=`.
        scheduler: `"cosine"`, `"plateau"`, or a function from the optimizer to any torch scheduler, which
            then takes a step after each epoch: ReduceLROnPlateau by the validation metric of an evaluation.
        weight_decay: of the layers; None for the optimizer's own.
        head_weight_decay: of encoder and head; of the last layer, if there is no head.
        clip: the largest norm of the gradient, or None.
        patience: how many evaluations may pass without a better validation metric, or None.
        evaluate_every: epochs between evaluations; the last epoch always has one.
        gradient_error_every: epochs between measurements of the gradient's error, or None. Each costs
            passes over the whole graph.
        partition: `"auto"`, `"metis"`, `"stream"` or another method of `lmc.partition`.
        fixed: whether every epoch has the same groups of clusters.
        balance: `"labels"` for groups that have nearly the graph's mix of training labels; `"gradients"` for
            groups whose estimates are alike, as far as steps have shown (until then, labels); `"none"` or
            None for random ones.
        batch_share: which share of the graph's nodes a batch has, above 0 and at most 1, instead of
            `parts_per_batch`; None to choose it by the graph's size.
        shards: into how many sets of clusters the graph is divided. A step takes a batch of each, all from
            the same histories, and adds up what they say, in the memory of one batch.
        overlap: whether what a step reads of other shards is sent while the step before computes: it is then
            one step older. The first step of an epoch waits for it.
        init: historical values before a node's first visit, `"zero"` or `"exact"`.
        precision: `"full"`, `"half"` for histories in float16, `"int8"` for int8 with a scale for each row,
            or `"bf16"` for float16 and messages and dense products in bfloat16; None for the
            estimator's own, which is `"full"` unless it was told otherwise.
        device: where it is trained: `"auto"` is a GPU that runs CUDA, if there is one, otherwise the CPU;
            `"cpu"`, `"cuda"`, `"cuda:1"`, `"mps"`. Graph and batches stay on the host, and the model is given
            back where it was.
        histories: where historical values are kept: in `"memory"`, or on `"disk"`, in the folder of the run.
        history_cache: how much of those on disk is held in memory, such as `"256MB"`, or a number of bytes.
        memory: how much of it the run may take, such as `"2GB"`, or a number of bytes; what is not said of
            clusters, histories and the background follows from it. None for what there is.
        loss: per node; None takes the one of the labels' kind.
        background: whether the next batch is built while the current one trains.
        checkpoint: how many checkpoints are kept where the run is kept: `"none"`, `"last"`, or a number.
        checkpoint_seconds: between checkpoints; None takes at most a twentieth of the time for them.
        metrics: further metrics, by names such as `"macro_f1"`, or functions of predictions and labels by
            names of one's own. The best epoch is still chosen by the metric of the labels' kind.

    >>> TrainingOptions(parts=80, parts_per_batch=40, lr=3e-3).epochs
    100
    """

    parts: int | None = None
    parts_per_batch: int | None = None
    epochs: int = 100
    lr: float = 1e-2
    seed: int = 0
    optimizer: str | MakeOptimizer = "adam"
    scheduler: str | MakeScheduler | None = None
    weight_decay: float | None = None
    head_weight_decay: float | None = None
    clip: float | None = None
    patience: int | None = None
    evaluate_every: int = 1
    gradient_error_every: int | None = None
    partition: PartitionMethod = "auto"
    fixed: bool = False
    balance: Balance | None = "labels"
    batch_share: float | None = None
    shards: int = 1
    overlap: bool = False
    init: Init = "zero"
    precision: Precision | None = None
    device: str = "auto"
    histories: Histories = "memory"
    history_cache: int | str = "256MB"
    memory: int | str | None = None
    loss: Loss | None = None
    background: bool = True
    checkpoint: Checkpoint = 2
    checkpoint_seconds: float | None = None
    metrics: Metrics = ()

    def __post_init__(self) -> None:
        check_sizes(self.parts_per_batch, self.batch_share)
        # Numbers of numpy and torch become Python's own, which files can hold.
        for name, least in _LEAST_WHOLE.items():
            if not self._is_left_out(name):
                object.__setattr__(self, name, checks.whole_number(name, getattr(self, name), least))
        for name in _REAL:
            if not self._is_left_out(name):
                object.__setattr__(self, name, checks.real_number(name, getattr(self, name), 0))
        if self.clip is not None:
            object.__setattr__(self, "clip", checks.real_number("clip", self.clip, -math.inf))
            if self.clip <= 0:
                rule = "must be above 0; leave it out where gradients are not to be clipped"
                raise ArgumentError(f"clip={self.clip:g}: {rule}")
        for name in ("fixed", "background", "overlap"):
            checks.truth(name, getattr(self, name))
        if self.overlap and self.shards == 1:
            raise ArgumentError("overlap=True: one shard reads nothing of others; shards= must be 2 or more")
        if self.checkpoint not in ("none", "last"):
            kept = checks.whole_number("checkpoint", self.checkpoint, 1, failing=_no_checkpoint)
            object.__setattr__(self, "checkpoint", kept)
        if self.loss is not None and not callable(self.loss):
            raise ArgumentError(f"loss={self.loss!r}: must be a function of predictions and labels, or None")
        checks.one_of("partition", self.partition, PartitionMethod)
        if self.precision is not None:
            checks.one_of("precision", self.precision, Precision)
        object.__setattr__(self, "device", str(self.device))
        checks.one_of("histories", self.histories, Histories)
        checks.byte_count("history_cache", self.history_cache)
        if self.memory is not None:
            checks.byte_count("memory", self.memory)
            if self.shards > 1:
                raise ArgumentError(f"shards={self.shards}: memory= plans for one shard alone; leave one out")
        object.__setattr__(self, "balance", checks.one_of("balance", self.balance or "none", Balance))
        object.__setattr__(self, "metrics", checked_metrics(self.metrics))

    def _is_left_out(self, name: str) -> bool:
        return getattr(self, name) is None and name in _MAY_BE_NONE

    @property
    def checkpoints(self) -> int:
        """How many checkpoints are kept.

        >>> TrainingOptions(checkpoint="last").checkpoints
        1
        """
        words = {"none": 0, "last": 1}
        return words[self.checkpoint] if isinstance(self.checkpoint, str) else self.checkpoint

    @property
    def history_memory(self) -> int | None:
        """Bytes of histories that are held in memory; None for all.

        >>> TrainingOptions(histories="disk", history_cache="1MB").history_memory
        1000000
        """
        on_disk = self.histories == "disk"
        return checks.byte_count("history_cache", self.history_cache) if on_disk else None

    @property
    def batches(self) -> BatchOptions:
        """Those that say how batches are made."""
        given = (self.parts, self.parts_per_batch, self.partition, self.fixed, self.seed)
        return BatchOptions(*given, self.balance, self.batch_share, shards=self.shards)


def _no_checkpoint(line: str) -> ArgumentError:
    return ArgumentError(f"{line}, or one of none, last")
