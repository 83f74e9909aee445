"""`fit`: train a model on one graph, and keep the run in a folder if asked to."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from lmc import checks, memory_use
from lmc.batching.balance import Balance
from lmc.batching.partition import PartitionMethod
from lmc.data.graph import Graph
from lmc.device import move
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator, Init
from lmc.estimators.losses import Loss
from lmc.nn.model import Model
from lmc.precision import Precision
from lmc.runs.display import Progress, display_in_python
from lmc.runs.folder import RunFolder
from lmc.runs.interruption import ended_by
from lmc.runs.loggers import callbacks_of
from lmc.runs.planning import planned
from lmc.torch_processes import joined
from lmc.training.callbacks import Callback
from lmc.training.loop import prepare_training
from lmc.training.metrics import Metrics
from lmc.training.optimizers import MakeOptimizer, MakeScheduler
from lmc.training.options import Checkpoint, Histories, TrainingOptions
from lmc.training.records import Result


@torch.inference_mode(False)  # what is made there cannot be trained with
def fit(
    graph: Graph,
    model: Model,
    estimator: Estimator,
    parts: int | None = None,
    parts_per_batch: int | None = None,
    epochs: int = 100,
    lr: float = 1e-2,
    *,
    seed: int = 0,
    optimizer: str | MakeOptimizer = "adam",
    scheduler: str | MakeScheduler | None = None,
    weight_decay: float | None = None,
    head_weight_decay: float | None = None,
    clip: float | None = None,
    patience: int | None = None,
    evaluate_every: int = 1,
    gradient_error_every: int | None = None,
    partition: PartitionMethod = "auto",
    fixed: bool = False,
    balance: Balance | None = "labels",
    batch_share: float | None = None,
    shards: int = 1,
    overlap: bool = False,
    init: Init = "zero",
    precision: Precision | None = None,
    device: str | torch.device = "auto",
    histories: Histories = "memory",
    history_cache: int | str = "256MB",
    memory: int | str | None = None,
    loss: Loss | None = None,
    background: bool = True,
    checkpoint: Checkpoint = 2,
    checkpoint_seconds: float | None = None,
    metrics: Metrics = (),
    callbacks: Sequence[str | Callback] | str = (),
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress = "auto",
) -> Result:
    """Train a model on one graph.

    Ctrl-C ends it after the step under way, with the result so far; a second one raises KeyboardInterrupt.
    In a script that `torchrun` has started several times, the processes share the shards, with the same
    result; the first one shows progress, is the one whose callbacks are told, and writes `out`.

    Args:
        graph: what is trained on.
        model: what is trained; it ends with the weights of the best validation epoch.
        estimator: how gradients are estimated, such as `lmc.LMC()`.
        parts: into how many clusters the graph is cut; None to choose it by the graph's size, where the
            method needs them. `result.batches` says what was chosen.
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
        partition: how the graph is cut: `"auto"`, `"metis"`, `"stream"`, `"bfs"` or `"random"`; see
            `lmc.partition`.
        fixed: whether every epoch has the same groups of clusters.
        balance: `"labels"` for groups that have nearly the graph's mix of training labels, `"gradients"` for
            groups whose estimates are alike, as far as steps have shown (until then, labels), `"none"` or
            None for random ones.
        batch_share: which share of the graph's nodes a batch has, above 0 and at most 1, instead of
            `parts_per_batch`; None to choose it by the graph's size.
        shards: into how many sets of clusters the graph is divided. A step takes a batch of each, all from
            the same histories, and adds up what they say: gradients of `shards` batches in the memory of one.
        overlap: whether what a step reads of other shards is sent while the step before computes: it is then
            one step older, on any number of processes. The first step of an epoch waits for it.
        init: historical values before a node's first visit, `"zero"` or `"exact"`.
        precision: `"full"`, `"half"` for histories in float16, `"int8"` for int8 with a scale for each row,
            or `"bf16"` for float16 and messages and dense products in bfloat16; None for the
            estimator's own, which is `"full"` unless it was told otherwise.
        device: where it is trained: `"auto"` is a GPU that runs CUDA, if there is one, otherwise the CPU;
            `"cpu"`, `"cuda"`, `"cuda:1"`, `"mps"`. Graph and batches stay on the host, and the model is given
            back where it was.
        histories: where historical values are kept: in `"memory"`, or on `"disk"`, in the folder of the run.
        history_cache: how much of those on disk is held in memory, such as `"256MB"`, or a number of bytes.
        memory: how much the process may take, such as `"2GB"`: clusters, clusters in a batch, where histories
            are, their cache and whether batches are built ahead follow from it, as far as they are not given.
            A graph that stays on disk is prepared in the folder of the run. None for what there is.
        loss: from (rows, out) predictions and (rows, ...) labels to (rows,); of a regression with one target,
            these are (rows, 1) and (rows,). None takes the one of the labels' kind. What is minimised is the
            mean over the labelled nodes of the training, also of a loss with weights of classes: torch's own
            mean divides by the mean weight.
        background: whether the next batch is built while the current one trains.
        checkpoint: how many checkpoints are kept in `out`: `"none"`, `"last"`, or a number.
        checkpoint_seconds: between checkpoints; None takes at most a twentieth of the time for them.
        metrics: further metrics for the records: names out of accuracy, macro_f1, micro_f1, roc_auc, rmse and
            mae, or functions from (rows, out) predictions and (rows, ...) labels to a number, such as
            `{"f1": function}`. The best epoch is chosen by the metric of the labels' kind.
        callbacks: who is told: `lmc.Callback`, or loggers by name, which are `"tensorboard"`, `"wandb"` and
            `"mlflow"`.
        out: a folder for metrics, checkpoints and the best weights, which `lmc.load_run` and the command line
            read; None keeps nothing.
        resume: whether to go on with what is in `out`.
        progress: `"auto"` shows a line that moves in a terminal or a notebook, and nothing where the output
            is piped; True shows plain lines there; `"plain"` shows them everywhere; False shows nothing.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=500)
    >>> model = lmc.GCN(graph.num_features, 16, graph.num_classes)
    >>> result = lmc.fit(graph, model, lmc.LMC(), parts=8, parts_per_batch=2, epochs=3)
    >>> len(result.history), result.best.val is not None
    (3, True)
    """
    options = TrainingOptions(
        parts=parts,
        parts_per_batch=parts_per_batch,
        epochs=epochs,
        lr=lr,
        seed=seed,
        optimizer=optimizer,
        scheduler=scheduler,
        weight_decay=weight_decay,
        head_weight_decay=head_weight_decay,
        clip=clip,
        patience=patience,
        evaluate_every=evaluate_every,
        gradient_error_every=gradient_error_every,
        partition=partition,
        fixed=fixed,
        balance=balance,
        batch_share=batch_share,
        shards=shards,
        overlap=overlap,
        init=init,
        precision=precision,
        device=str(device),
        histories=histories,
        history_cache=history_cache,
        memory=memory,
        loss=loss,
        background=background,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        metrics=metrics,
    )
    folder_path = None if out is None else checks.path("out", out)
    if checks.truth("resume", resume) and folder_path is None:
        raise ArgumentError("resume=True: there is no folder to go on from; out= names it")
    if options.histories == "disk" and folder_path is None:
        raise ArgumentError("histories='disk': there is no folder to keep them in; out= names it")
    processes = joined()
    memory_use.restart_peak()
    with processes.reporting():
        kept = None if folder_path is None else RunFolder(folder_path, resume, processes=processes)
        if kept is not None:
            kept.check_free()
            kept.check_goes_on(options)
        with ExitStack() as contexts:
            display = contexts.enter_context(display_in_python(progress if processes.rank == 0 else False))
            told = [*callbacks_of(callbacks, folder_path), display] if processes.rank == 0 else []
            choice = None if kept is None else kept.choice(options)
            to_be_planned = (graph, model, estimator, options, folder_path, resume, told)
            graph, options = contexts.enter_context(planned(*to_be_planned))
            on_disk = None if kept is None else kept.histories(options)
            given = (told, choice, on_disk, processes)
            training = prepare_training(graph, model, estimator, options, *given)
            try:
                with ended_by(training, [signal.SIGINT]):
                    if kept is None:
                        return training.run()
                    with kept as folder:
                        return folder.train(training)
            finally:
                move(model, training.home)
