"""The loop: epochs, evaluation, early stop. It knows estimators, and nothing of what they do."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lmc import checks, memory_use
from lmc.batching.partition import Method, partition
from lmc.batching.samplers import batches, prefetch
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.errors import ArgumentError, RunError
from lmc.estimators.estimator import Estimator, Init
from lmc.estimators.gradient_error import gradient_error
from lmc.estimators.losses import Loss
from lmc.files import one_line
from lmc.nn.inference import predict
from lmc.nn.model import Model
from lmc.runs.checkpoint_check import check_state, fingerprint
from lmc.training.callbacks import Callback
from lmc.training.memory_check import check_memory
from lmc.training.metrics import evaluate, metric_of
from lmc.training.optimizers import (
    MakeOptimizer,
    MakeScheduler,
    make_optimizer,
    make_scheduler,
    moments_after_a_step,
)
from lmc.training.records import Record, Result

State = dict[str, Any]


@dataclass
class Training:
    """A run: its options, and where it stands.

    Attributes:
        graph: what is trained on.
        model: what is trained.
        estimator: how gradients are estimated.
        parts: into how many clusters the graph is cut; `FullBatch` needs none.
        parts_per_batch: clusters in a batch.
        epochs: how often every cluster is visited.
        lr: the learning rate.
        seed: of the clusters, their groups, and the dropout masks.
        optimizer: `"adam"`, `"adamw"`, `"sgd"`, ..., or any torch optimizer class.
        scheduler: `"cosine"`, `"plateau"`, or a function from the optimizer to any torch scheduler, which
            then takes a step after each epoch.
        weight_decay: of the layers.
        head_weight_decay: of what stands before and behind them; of the last layer, if nothing is behind.
        clip: the largest norm of the gradient, or None.
        patience: how many evaluations may pass without a better validation metric, or None.
        evaluate_every: epochs between evaluations; the last epoch always has one.
        gradient_error_every: epochs between measurements of the gradient's error, or None. Each costs
            passes over the whole graph.
        partition: `"metis"`, `"bfs"` or `"random"`.
        fixed: whether every epoch has the same groups of clusters.
        init: historical values before a node's first visit, `"zero"` or `"exact"`.
        loss: per node; None takes the one of the labels' kind.
        background: whether the next batch is built while the current one trains.
        callbacks: who is told.
    """

    graph: Graph
    model: Model
    estimator: Estimator
    parts: int | None = None
    parts_per_batch: int = 1
    epochs: int = 100
    lr: float = 1e-2
    seed: int = 0
    optimizer: str | MakeOptimizer = "adam"
    scheduler: str | MakeScheduler | None = None
    weight_decay: float = 0.0
    head_weight_decay: float = 0.0
    clip: float | None = None
    patience: int | None = None
    evaluate_every: int = 1
    gradient_error_every: int | None = None
    partition: Method = "metis"
    fixed: bool = False
    init: Init = "zero"
    loss: Loss | None = None
    background: bool = True
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        self._check()
        self.metric = metric_of(self.graph.task)
        self.clusters: Tensor | None = None
        self.steps = 1
        if self.estimator.needs_parts:
            assert self.parts is not None
            self.clusters = partition(self.graph, self.parts, self.partition, self.seed)
            self.steps = -(-len(torch.unique(self.clusters)) // self.parts_per_batch)
        check_memory(self.graph, self.model, self.estimator, self.clusters, self.parts_per_batch)
        self.estimator.bind(self.model, self.graph, self.init, self.loss, self.seed)
        self._optimizer = make_optimizer(
            self.optimizer, self.model, self.lr, self.weight_decay, self.head_weight_decay
        )
        self._scheduler = make_scheduler(
            self.scheduler, self._optimizer, self.epochs, self.metric.higher_is_better
        )
        self.epoch = self.step = 0
        self.records: list[Record] = []
        self.best: Record | None = None
        self.stopped: str | None = None
        self._best_weights: dict[str, Tensor] | None = None
        self._since_best = 0
        self._loss = self._seconds = 0.0

    def _check(self) -> None:
        for name, kind in (("graph", Graph), ("estimator", Estimator)):
            if not isinstance(getattr(self, name), kind):
                given = type(getattr(self, name)).__name__
                raise ArgumentError(f"{name}: {given} is not an lmc.{kind.__name__}")
        if not all(
            isinstance(callback, Callback) for callback in checks.sequence("callbacks", self.callbacks)
        ):
            raise ArgumentError(f"callbacks={self.callbacks}: each must be an lmc.Callback")
        if self.loss is not None and not callable(self.loss):
            raise ArgumentError(f"loss={self.loss!r}: must be a function of predictions and labels, or None")
        least = {
            "parts_per_batch": 1,
            "evaluate_every": 1,
            "patience": 1,
            "parts": 1,
            "gradient_error_every": 1,
        }
        for name, smallest in (least | {"epochs": 0, "seed": 0}).items():
            if getattr(self, name) is not None or name not in MAY_BE_NONE:
                setattr(self, name, checks.whole_number(name, getattr(self, name), smallest))
        for name in ("lr", "weight_decay", "head_weight_decay", "clip"):
            if getattr(self, name) is not None or name not in MAY_BE_NONE:
                setattr(self, name, checks.real_number(name, getattr(self, name), 0))
        if self.patience is not None and not bool(self.graph.val_mask.any()):
            raise ArgumentError(f"patience={self.patience}: the graph has no validation nodes to judge by")
        check_parts(self.estimator, self.parts, self.parts_per_batch)

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> Result:
        """Train from where it stands to the end; the model has the best weights then."""
        memory_use.restart_peak()
        self._lose_patience()
        try:
            for callback in self.callbacks:
                callback.on_start(self)
            coming = self._coming()
            while self.epoch < self.epochs and self.stopped is None:
                self._train_epoch(coming)
            self._check_weights()
            done = self.epoch == self.epochs
            self.stopped = "finished" if done or self.stopped is None else self.stopped
            for callback in self.callbacks:
                callback.on_end(self)
        except BaseException:
            for callback in self.callbacks:
                callback.on_error(self)
            raise
        if self._best_weights is not None:
            self.model.load_state_dict(self._best_weights)
        return Result(self.model, self.records, self.best, self.metric, self.stopped)

    def stop(self, reason: str) -> None:
        """End the run after the step that is under way."""
        self.stopped = reason

    @property
    def best_weights(self) -> dict[str, Tensor]:
        """The weights of the best epoch so far; those of now where there is none."""
        return self._best_weights or self.model.state_dict()

    def _coming(self) -> Iterator[Batch]:
        """The batches from where the run stands to its end."""
        if self.clusters is None:
            return repeat(self.estimator.whole)

        def remaining(first_epoch: int, first_step: int) -> Iterator[Batch]:
            given = (self.graph, self.clusters, self.parts_per_batch, self.seed)
            for epoch in range(first_epoch, self.epochs):
                start = first_step if epoch == first_epoch else 0
                for batch in islice(batches(*given, epoch, self.fixed, norm=None), start, None):
                    self.model.prepare(batch)
                    yield batch

        coming = remaining(self.epoch, self.step)
        return prefetch(coming) if self.background else coming

    def _train_epoch(self, coming: Iterator[Batch]) -> None:
        self.model.train()
        while self.step < self.steps:
            start = time.perf_counter()
            batch = next(coming)
            self._optimizer.zero_grad()
            loss = self.estimator.backward(batch)
            if not math.isfinite(loss):
                raise self._lost(f"the loss is {loss}", self.step + 1)
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            try:
                self._optimizer.step()
            except ArithmeticError as error:
                raise self._lost(f"the optimizer fails ({one_line(error)})", self.step + 1) from None
            self.step += 1
            self._loss += loss / batch.scale
            self._seconds += time.perf_counter() - start
            for callback in self.callbacks:
                callback.on_step(self, loss)
            if self.stopped is not None:
                return
        self._end_epoch()

    def _end_epoch(self) -> None:
        self._check_weights()
        record = self._record()
        self.records.append(record)
        self._judge(record)
        if isinstance(self._scheduler, ReduceLROnPlateau):
            if record.val is not None:
                self._scheduler.step(record.val)
        elif self._scheduler is not None:
            self._scheduler.step()
        self.epoch, self.step, self._loss, self._seconds = self.epoch + 1, 0, 0.0, 0.0
        self._lose_patience()
        for callback in self.callbacks:
            callback.on_epoch(self, record)

    def _lose_patience(self) -> None:
        if self.patience is not None and self._since_best >= self.patience:
            self.stop("early")

    def _check_weights(self) -> None:
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise self._lost("a weight is not finite", self.step)

    def _record(self) -> Record:
        number = self.epoch + 1
        start = time.perf_counter()
        metrics: dict[str, float] = {}
        if number % self.evaluate_every == 0 or number == self.epochs:
            metrics = evaluate(self.graph, predict(self.graph, self.model))
        error = None
        if self.gradient_error_every is not None and number % self.gradient_error_every == 0:
            error = dict(gradient_error(self.graph, self.model, self.estimator, self._measured()))
        return Record(
            epoch=number,
            loss=self._loss,
            train=metrics.get("train"),
            val=metrics.get("val"),
            test=metrics.get("test"),
            seconds=self._seconds,
            evaluation_seconds=time.perf_counter() - start,
            memory=memory_use.peak(),
            lr=float(self._optimizer.param_groups[0]["lr"]),
            gradient_error=error,
        )

    def _measured(self) -> Iterator[Batch]:
        """The batches over which the gradient's error is averaged: those of the epoch to come."""
        if self.clusters is None:
            return iter([self.estimator.whole])
        return batches(self.graph, self.clusters, self.parts_per_batch, self.seed, self.epoch + 1, self.fixed)

    def _judge(self, record: Record) -> None:
        """Keep the weights if the epoch is the best so far."""
        if not bool(self.graph.val_mask.any()):
            self.best = record
            return
        if record.val is None:
            return
        before = None if self.best is None else self.best.val
        if before is None or math.isnan(before) or self.metric.better(record.val, before):
            self.best, self._since_best = record, 0
            self._best_weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        else:
            self._since_best += 1

    def _lost(self, what: str, step: int) -> RunError:
        largest = float(self.graph.x.abs().max()) if self.graph.x.numel() else 0.0
        cause = f"the learning rate may be too high (lr={self.lr:g}); a smaller one, or clip=1.0, helps"
        if largest > 1e4:
            cause = f"features are as large as {largest:.2g}; scale them to the order of one"
        return RunError(f"epoch {self.epoch + 1}, step {step}: {what}: {cause}")

    # -- where it stands ---------------------------------------------------------------------------

    def state(self) -> State:
        """All that the rest of the run depends on; tensors are those in use, not copies."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "loss": self._loss,
            "seconds": self._seconds,
            "records": [asdict(record) for record in self.records],
            "best": None if self.best is None else self.best.epoch,
            "since_best": self._since_best,
            "model": dict(self.model.state_dict()),
            "best_weights": self._best_weights,
            "optimizer": self._optimizer.state_dict(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "estimator": self.estimator.state_dict(),
            "torch": torch.get_rng_state(),
            "graph": fingerprint(self.graph),
        }

    def load_state(self, state: State) -> None:
        """Stand where a run of the same options stood; ValueError where no such run wrote it."""
        made = (self.optimizer, self.model, self.lr, self.weight_decay, self.head_weight_decay)
        own = self.state()
        own["optimizer"]["state"] = moments_after_a_step(*made)
        check_state(own, state, self.steps)
        if state.get("graph", "") not in ("", fingerprint(self.graph)):
            raise ValueError("the graph has other edges, labels or training nodes")
        if state["epoch"] > self.epochs:
            raise ArgumentError(f"epochs={self.epochs}: the run has {state['epoch']} already")
        self.epoch, self.step = state["epoch"], state["step"]
        self._loss, self._seconds = state["loss"], state["seconds"]
        self.records = [Record(**record) for record in state["records"]]
        self.best = next((record for record in self.records if record.epoch == state["best"]), None)
        self._since_best = state["since_best"]
        self.model.load_state_dict(state["model"])
        self._best_weights = state["best_weights"]
        self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        self.estimator.load_state_dict(state["estimator"])
        torch.set_rng_state(state["torch"])


def check_parts(estimator: Estimator, parts: int | None, parts_per_batch: int) -> None:
    """Raise ArgumentError unless the estimator can work on batches of this kind."""
    if not estimator.needs_parts:
        return
    if parts is None:
        method = type(estimator).__name__
        raise ArgumentError(f"parts=None: {method} works on batches; say, parts=80, parts_per_batch=40")
    if parts_per_batch > parts:
        rule = f"must be at most parts={parts}; make parts larger or parts_per_batch smaller"
        raise ArgumentError(f"parts_per_batch={parts_per_batch}: {rule}")


MAY_BE_NONE = ("parts", "patience", "gradient_error_every", "clip")
OPTIONS = [field.name for field in fields(Training) if field.name not in ("graph", "model", "estimator")]


def fit(
    graph: Graph,
    model: Model,
    estimator: Estimator,
    parts: int | None = None,
    parts_per_batch: int = 1,
    epochs: int = 100,
    lr: float = 1e-2,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    **options: Any,
) -> Result:
    """Train a model on one graph.

    Args:
        graph: what is trained on.
        model: what is trained; it ends with the weights of the best validation epoch.
        estimator: how gradients are estimated, such as `lmc.LMC()`.
        parts: into how many clusters the graph is cut; `FullBatch` needs none.
        parts_per_batch: clusters in a batch.
        epochs: how often every cluster is visited.
        lr: the learning rate.
        out: a folder for metrics, checkpoints and the best weights; None keeps nothing.
        resume: whether to go on with what is in `out`.
        options: the other attributes of `lmc.Training`: optimizer, scheduler, weight_decay, clip,
            patience, evaluate_every, callbacks, seed, ...

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=500)
    >>> model = lmc.GCN(graph.num_features, 16, graph.num_classes)
    >>> result = lmc.fit(graph, model, lmc.LMC(), parts=8, parts_per_batch=2, epochs=3)
    >>> len(result.history), result.best.val is not None
    (3, True)
    """
    for name in options:
        checks.one_of("option", name, OPTIONS)
    training = Training(graph, model, estimator, parts, parts_per_batch, epochs, lr, **options)
    if out is None:
        return training.run()
    from lmc.runs.folder import RunFolder

    with RunFolder(Path(out), resume) as folder:
        return folder.train(training)
