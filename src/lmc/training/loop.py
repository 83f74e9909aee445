"""The loop: epochs, evaluation, early stop. It does not know which method it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lmc import memory_use, typed
from lmc.batching.choice import Choice
from lmc.batching.prefetch import prefetch
from lmc.batching.samplers import ClusterSampler, Sampler, batches_in_words, clusters_of
from lmc.data import advice, rules
from lmc.data.batch import Batch
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.device import HOST, chosen_device, device_of, on_host, peak_memory
from lmc.errors import ArgumentError, DivergedError
from lmc.estimators.disk_history import DiskHistories
from lmc.estimators.estimator import Estimator, check_estimator
from lmc.estimators.gradient_error import gradient_error
from lmc.estimators.history import MemoryHistory
from lmc.files import one_line
from lmc.kernels import compiled_seconds
from lmc.nn.fitting import check_model, in_type_of
from lmc.nn.model import Model
from lmc.nn.weights import weights_of
from lmc.processes import ALONE, Processes
from lmc.training.alike import check_alike, share_weights
from lmc.training.best import BestEpoch
from lmc.training.callbacks import Callback, check_callbacks
from lmc.training.divergence import diverged
from lmc.training.gradient_hooks import ClipNorm, GradientHook
from lmc.training.memory_check import check_memory
from lmc.training.metrics import evaluate, metric_functions, metric_of
from lmc.training.optimizers import make_optimizer, make_scheduler, moments_after_a_step
from lmc.training.options import TrainingOptions
from lmc.training.records import Record, Result, step_memory_of
from lmc.training.sharding import (
    agreed_stop,
    check_sharing,
    gather_descriptors,
    of_this_training,
    predicted_by,
    remembered_in,
    shared_sampler,
    steps_of,
    taken,
    takes,
)
from lmc.training.state_check import check_state, fingerprint

State = dict[str, Any]


def prepare_training(
    graph: Graph,
    model: Model,
    estimator: Estimator,
    options: TrainingOptions,
    callbacks: Sequence[Callback] = (),
    choice: Choice | None = None,
    on_disk: DiskHistories | None = None,
    processes: Processes = ALONE,
) -> Training:
    """A training that is ready to run: the graph is cut, memory is enough, the estimator is bound.

    Features are taken in the type of the model's weights. A run that goes on has the batches of its `choice`.
    Histories are in memory, unless others are given. Several processes share its shards.
    """
    check_graph(graph)
    graph = graph.by_cluster
    check_estimator(estimator)
    check_sharing(estimator, options, processes)
    check_callbacks(callbacks)
    check_model(model)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ArgumentError("model: has no parameter with requires_grad=True; training needs one or more")
    rules.trainable(graph.train_mask, graph.y, graph.task)
    if graph.task == "regression":
        advice.on_scale(graph.y[graph.train_mask])
    graph = of_this_training(in_type_of(model, graph), processes)
    if options.patience is not None and not bool(graph.val_mask.any()):
        raise ArgumentError(f"patience={options.patience}: the graph has no validation nodes to judge by")
    for callback in callbacks:
        callback.on_phase("cutting the graph into batches")
    sampler = shared_sampler(graph, estimator, replace(options.batches, choice=choice), processes)
    for callback in callbacks:
        callback.on_phase("preparing the model")
    precision = options.precision or estimator.precision
    device, home = chosen_device(options.device), device_of(model)
    room = check_memory(graph, model, estimator, sampler, precision, device, options.history_memory)
    share_weights(model, processes)
    outside = remembered_in(graph, estimator, sampler, processes)
    if on_disk is not None and isinstance(outside, Tensor | None):
        outside = on_disk.arrange(outside, clusters_of(sampler))
    given = (options.init, options.loss, options.seed, on_disk or MemoryHistory, outside, precision)
    estimator.bind(model, graph, *given, device, room)
    training = Training(graph, model, estimator, sampler, options, callbacks, home, processes)
    check_alike(training)
    return training


def _training_clock() -> float:
    """Seconds that stand still while kernels are compiled, which happens once and is no part of training."""
    return time.perf_counter() - compiled_seconds()


class Training:
    """A run and its state. Use `prepare_training` to make one: the estimator must be bound already.

    Attributes:
        graph: what is trained on.
        model: what is trained.
        estimator: how gradients are estimated.
        sampler: what yields the batches.
        options: how it is trained.
        callbacks: who is told.
        home: where the model was before.
        processes: those that share it.
        stepping: what estimates a step: the estimator, or over shards.
        metric: by which epochs are judged.
        epoch: how many epochs are done.
        step: how many steps of the current epoch are done.
        records: one per epoch.
        best: the best epoch so far.
        stopped: why it is to end, or None.
        began: `time.monotonic()` when work on it began in this process.
    """

    def __init__(
        self,
        graph: Graph,
        model: Model,
        estimator: Estimator,
        sampler: Sampler,
        options: TrainingOptions,
        callbacks: Sequence[Callback] = (),
        home: torch.device = HOST,
        processes: Processes = ALONE,
    ) -> None:
        self.home, self.processes = home, processes
        self.graph, self.model, self.estimator, self.sampler = graph, model, estimator, sampler
        self.options, self.callbacks = options, list(callbacks)
        self.metric = metric_of(graph.task)
        self._further_metrics = metric_functions(options.metrics, graph.task)
        self.epoch = self.step = 0
        self.records: list[Record] = []
        validates = bool(graph.val_mask.any())
        self.best = BestEpoch(self.metric, validates)
        self.stopped: str | None = None
        self.began = time.monotonic()
        self._gradient_hooks: list[GradientHook] = [] if options.clip is None else [ClipNorm(options.clip)]
        decays = options.weight_decay, options.head_weight_decay
        self._optimizer = make_optimizer(options.optimizer, model, options.lr, *decays)
        followed = self.metric.higher_is_better if validates else None
        self._scheduler = make_scheduler(options.scheduler, self._optimizer, options.epochs, followed)
        self._descriptors = sampler.descriptors if isinstance(sampler, ClusterSampler) else None
        self.stepping = steps_of(estimator, sampler, processes, options.overlap)
        estimator.watch = None if self._descriptors is None else self._descriptors.see
        self._peak_before = 0
        self._held_before: int | None = None
        self._step_memory: int | None = None
        self._loss = self._share = self._seconds = self._wall_before = self._wall_at_step = 0.0

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> Result:
        """Train from the current state to the end; the model then has the best weights."""
        self._lose_patience()
        try:
            for callback in self.callbacks:
                callback.on_start(self)
            goes_on = self.epoch < self.options.epochs and self.stopped is None
            for callback in self.callbacks if goes_on else ():
                callback.on_phase("first batch")
            # The first epoch is by itself: what it leaves, once in a process, is no memory of a step.
            first = min(self.epoch + 1, self.options.epochs)
            for until in (first, self.options.epochs):
                coming = self._coming(until)
                if until > first or self._step_memory is None:
                    self._measure_steps()
                while self.epoch < until and self.stopped is None:
                    self._train_epoch(coming)
            self._check_weights()
            done = self.epoch == self.options.epochs
            self.stopped = "finished" if done or self.stopped is None else self.stopped
            for callback in self.callbacks:
                callback.on_end(self)
        except BaseException:
            for callback in self.callbacks:
                callback.on_error(self)
            raise
        if self.best.weights is not None:
            self.model.original.load_state_dict(self.best.weights)
        return Result(
            self.model,
            self.records,
            self.best.record,
            self.metric,
            self.stopped,
            self.wall_seconds,
            batches_in_words(self.sampler),
        )

    def stop(self, reason: str) -> None:
        """End the run after the step that is under way."""
        self.stopped = reason

    @property
    def wall_seconds(self) -> float:
        """On the clock since work on the run began, in all processes that had it."""
        return self._wall_before + time.monotonic() - self.began

    @property
    def best_weights(self) -> dict[str, Tensor]:
        """The weights of the best epoch so far, or the current ones if there is none."""
        return self.best.weights or weights_of(self.model.original)

    def _coming(self, until: int) -> Iterator[Batch]:
        """The remaining batches before an epoch, each prepared for its step."""

        def remaining(first_epoch: int, first_step: int) -> Iterator[Batch]:
            for epoch in range(first_epoch, until):
                yield from self.sampler.epoch(epoch, first_step if epoch == first_epoch else 0)

        coming = remaining(self.epoch, self.step)
        return prefetch(coming, self.estimator.prepare) if self.options.background else coming

    def _train_epoch(self, coming: Iterator[Batch]) -> None:
        self.model.train()
        while self.step < self.sampler.steps:
            start = _training_clock()
            batch = taken(self.sampler, coming, self.epoch, self.step)
            self._optimizer.zero_grad()
            loss = self.stepping.backward(batch)
            if not math.isfinite(loss):
                raise self._lost(f"the loss is {loss}", self.step + 1)
            for hook in self._gradient_hooks:
                hook(list(self.model.parameters()))
            try:
                self._optimizer.step()
            except ArithmeticError as error:
                raise self._lost(f"the optimizer fails ({one_line(error)})", self.step + 1) from None
            self.step += 1
            self._loss += loss / batch.scale
            self._share += 1 / batch.scale
            self._seconds += _training_clock() - start
            self._wall_at_step = self.wall_seconds
            for callback in self.callbacks:
                callback.on_step(self, loss)
            self.stopped = agreed_stop(self.processes, self.stopped)
            if self.stopped is not None:
                return
        self._end_epoch()

    def _end_epoch(self) -> None:
        self._check_weights()
        record = self._record()
        self.records.append(record)
        if self._descriptors is not None:
            gather_descriptors(self._descriptors, self.sampler, self.processes)
            self._descriptors.end_epoch(self.epoch)
        self.best.judge(record, self.model)
        if isinstance(self._scheduler, ReduceLROnPlateau):
            if record.val is not None:
                self._scheduler.step(record.val)
        elif self._scheduler is not None:
            self._scheduler.step()
        self.epoch, self.step = self.epoch + 1, 0
        self._loss = self._share = self._seconds = 0.0
        self._lose_patience()
        self._wall_at_step = self.wall_seconds
        for callback in self.callbacks:
            callback.on_epoch(self, record)

    def _lose_patience(self) -> None:
        if self.options.patience is not None and self.best.evaluations_since >= self.options.patience:
            self.stop("early")

    def _check_weights(self) -> None:
        if not all(bool(on_host(p.isfinite().all())) for p in self.model.parameters()):
            raise self._lost("a weight is not finite", self.step)

    def _measure_steps(self) -> None:
        """From now to the end of the epoch, the peak is that of steps."""
        self._peak_before = max(self._peak_before, memory_use.peak())
        memory_use.restart_peak()
        self._held_before = memory_use.now()

    def _record(self) -> Record:
        number, options = self.epoch + 1, self.options
        if self._held_before is not None:  # later, memory that the evaluation has left would count
            self._step_memory = max(0, memory_use.peak() - self._held_before)
            self._held_before = None
        metrics: dict[str, float] = {}
        further = None
        if number % options.evaluate_every == 0 or number == options.epochs:
            precision = options.precision or self.estimator.precision
            prediction = predicted_by(self.processes, self.graph, self.model, self.sampler, precision)
            metrics = evaluate(self.graph, prediction)
            further = {n: evaluate(self.graph, prediction, of) for n, of in self._further_metrics.items()}
        error = None
        if options.gradient_error_every is not None and number % options.gradient_error_every == 0:
            ahead = takes(self.sampler, number)  # of the epoch to come
            error = dict(gradient_error(self.graph, self.model, self.stepping, ahead))
        return Record(
            epoch=number,
            loss=self._loss / self._share,
            train=metrics.get("train"),
            val=metrics.get("val"),
            test=metrics.get("test"),
            seconds=self._seconds,
            memory=max(self._peak_before, memory_use.peak()),
            lr=float(self._optimizer.param_groups[0]["lr"]),
            metrics=further or None,
            gradient_error=error,
            step_memory=self._step_memory,
            device_memory=peak_memory(device_of(self.model)),
            found=self.estimator.found() or None,
        )

    def _lost(self, what: str, step: int) -> DivergedError:
        return diverged(self.graph, self.options, f"epoch {self.epoch + 1}, step {step}: {what}")

    # -- its state ---------------------------------------------------------------------------------

    def state(self) -> State:
        """All that the rest of the run depends on; tensors are those in use, not copies."""
        if self._descriptors is not None:
            gather_descriptors(self._descriptors, self.sampler, self.processes)
        return {
            "epoch": self.epoch,
            "step": self.step,
            "loss": self._loss,
            "share": self._share,
            "seconds": self._seconds,
            "wall_seconds": self._wall_at_step,  # the same at one place, however often it is saved
            "records": [asdict(record) for record in self.records],
            "best": None if self.best.record is None else self.best.record.epoch,
            "since_best": self.best.evaluations_since,
            "model": weights_of(self.model.original),
            "best_weights": self.best.weights,
            "optimizer": self._optimizer.state_dict(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "estimator": self.stepping.state_dict(),
            "sampler": {} if self._descriptors is None else self._descriptors.state(),
            "torch": torch.get_rng_state(),
            "graph": self.fingerprint,
        }

    @cached_property
    def fingerprint(self) -> str:
        """Of the graph."""
        return fingerprint(self.graph)

    def is_on_graph_of(self, state: State) -> bool:
        """Whether its graph is that of a state, as far as the state says which it was."""
        return state.get("graph", "") in ("", self.fingerprint)

    def load_state(self, state: State) -> None:
        """Go on from the state of a run with the same options; ValueError where no such run wrote it."""
        options = self.options
        decays = options.weight_decay, options.head_weight_decay
        if not self.is_on_graph_of(state):
            raise ValueError("the graph has other edges, features, labels or masks")
        own = self.state()
        own["optimizer"]["state"] = moments_after_a_step(options.optimizer, self.model, options.lr, *decays)
        check_state(own, state, self.sampler.steps)
        records = typed.read("records", state["records"], list[Record], ValueError)
        if state["epoch"] > options.epochs:
            raise ArgumentError(f"epochs={options.epochs}: the run has {state['epoch']} already")
        self.epoch, self.step = state["epoch"], state["step"]
        self._loss, self._seconds = state["loss"], state["seconds"]
        # Where nothing is said of it, batches were alike.
        share = typed.read("share", state.get("share", self.step / self.sampler.steps), float, ValueError)
        if self.step > 0 and not share > 0:
            raise ValueError(f"share={share}: must be above 0 after a step")
        self._share = share
        self._wall_before = typed.read("wall_seconds", state.get("wall_seconds", 0.0), float, ValueError)
        self._wall_at_step = self._wall_before
        self.records, self._step_memory = records, step_memory_of(records)
        self.best.record = next((r for r in self.records if r.epoch == state["best"]), None)
        self.best.weights, self.best.evaluations_since = state["best_weights"], state["since_best"]
        self.model.original.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        self.stepping.load_state_dict(state["estimator"])
        if self._descriptors is not None:
            width = self.model.widths(self.graph)[-2]
            self._descriptors.load_state(state.get("sampler", {}), width, self.graph.x.dtype)
        torch.set_rng_state(state["torch"])
