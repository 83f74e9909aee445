"""What an estimator is."""

from __future__ import annotations

import warnings
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.batching.samplers import BatchOptions, ClusterSampler, Sampler
from lmc.data import rules
from lmc.data.batch import Batch, InducedBatch
from lmc.data.given import check_graph
from lmc.data.graph import Graph
from lmc.data.normalization import propagated
from lmc.data.set_once import times_changed
from lmc.device import HOST, chosen_device, device_of, free_memory, move
from lmc.errors import ArgumentError
from lmc.estimators.exact import ExactHalo, exact_values
from lmc.estimators.halo import HaloPolicy
from lmc.estimators.history import History, MakeHistory, MemoryHistory, Remembered
from lmc.estimators.losses import Loss, loss_of, own_loss
from lmc.estimators.placement import Placement
from lmc.estimators.step import Step, Watch, first_messages_are_features
from lmc.malloc import keep_large_buffers, trim_free_memory
from lmc.nn.fitting import layer_widths, warn_of_unread_edges
from lmc.nn.fixed_order import first_compiled
from lmc.nn.model import LayerWidths, LinearLayer, Model
from lmc.precision import Precision, check_precision, remembered_type, warn_if_slow

Reference = Callable[[Batch], dict[nn.Parameter, Tensor]]
"""From a batch to an estimate of every parameter's gradient."""
Init = Literal["zero", "exact"]


class LayerSizes(NamedTuple):
    """How much of a graph a layer has in a step that draws messages.

    Attributes:
        nodes: that receive.
        members: these, and the others that send.
        messages: that they receive.
    """

    nodes: int
    members: int
    messages: int


class Kept(NamedTuple):
    """How wide what is kept of a node is, by the layer, counted from 1, after which it stands."""

    embeddings: dict[int, int]
    auxiliaries: dict[int, int]
    bases: dict[int, int] = {}  # noqa: RUF012

    @property
    def width(self) -> int:
        """Numbers kept of a node."""
        return sum(width for kind in self for width in kind.values())


class Estimator(ABC):
    """A way to estimate the full-batch gradient from a batch.

    The loss is the mean over all labelled nodes of the graph. The estimate of a batch is `batch.scale`
    times the sum over its rows, each times its weight. With everything outside exact, it averages to the
    gradient: over the batches of an epoch if all have as many clusters, over random groups of clusters in
    any case.

    A subclass overrides what differs: mostly `halo_policy`; `trained_on` if a step runs on something
    other than the batch; `make_sampler` if batches are not groups of clusters; `prepare` and `remembered`;
    `estimate_on` and `references` if a step is another one than that over a batch and its halo.
    """

    precision: Precision = "full"
    """Of what is computed and remembered, where `bind` is told nothing else."""

    model: Model
    graph: Graph
    loss: Loss
    placement: Placement
    _init: Init
    _seed: int
    _step: int
    is_frozen: bool = False
    """Whether estimates leave no trace; see `frozen`."""
    watch: Watch | None = None
    """Who is told what steps see, while they leave a trace."""

    def __getattr__(self, name: str) -> Any:
        """What there is only after `bind`."""
        if name in ("model", "graph", "placement", "_step"):
            raise ArgumentError(f"{type(self).__name__} is not bound: call bind(model, graph) first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def computes_halo(self) -> bool:
        """Whether halo rows are computed at a step, not only fetched."""
        return False

    @property
    def writes_halo(self) -> bool:
        """Whether a step also remembers values of halo rows."""
        return False

    @property
    def passes_over_graph(self) -> bool:
        """Whether each step reads the whole graph, whatever its batch is."""
        return False

    # -- what a method decides -----------------------------------------------------------------------

    def check_batches(self, options: BatchOptions) -> None:
        """Raise ArgumentError unless it can work on batches of this kind."""
        options.check_clusters()

    def make_sampler(self, graph: Graph, options: BatchOptions) -> Sampler:
        """What yields its batches; here, groups of clusters."""
        return ClusterSampler.cut(graph, options)

    def trained_on(self, batch: Batch) -> Batch:
        """What a step runs on: the batch itself, or what the method makes of it."""
        return batch

    def halo_policy(self, batch: Batch) -> HaloPolicy:
        """What replaces the values outside of the batch at this step; here, they are dropped."""
        return HaloPolicy(len(batch.halo))

    def remembered(self, model: Model, widths: list[LayerWidths]) -> Kept:
        """What is kept of every node, in numbers: embeddings and auxiliary variables by layer, from 1."""
        return Kept({}, {})

    def expected_sizes(self, graph: Graph, model: Model) -> list[LayerSizes] | None:
        """What a step has in each layer, the last layer first; None where each is one over a batch."""
        return None

    # -- what every method does ----------------------------------------------------------------------

    @torch.inference_mode(False)  # what is made there cannot be trained with
    def bind(
        self,
        model: Model,
        graph: Graph,
        init: Init = "zero",
        loss: Loss | None = None,
        seed: int = 0,
        histories: MakeHistory = MemoryHistory,
        outside: Tensor | Remembered | None = None,
        precision: Precision | None = None,
        device: str | torch.device | None = None,
        room: int | None = None,
    ) -> None:
        """Tie the estimator to a model and a graph, and make room for what it remembers.

        Args:
            model: the model whose gradients are estimated.
            graph: the graph it is trained on.
            init: historical values before a node's first visit: `"zero"`, or `"exact"` for one exact
                pass over the graph, layer by layer.
            loss: (rows, out) predictions and labels to (rows,) losses; None takes the one of the
                labels' kind.
            seed: of the dropout masks.
            histories: makes the store of one boundary's historical values, from how many, width and type.
            outside: (any,) the nodes that may be outside of a batch: others are not remembered; None for all;
                or the places of those that are.
            precision: `"full"`, `"half"`, `"int8"` or `"bf16"`, see `Precision`; None for its own.
            device: `"cpu"`, `"cuda"`, `"cuda:1"`, `"mps"` or `"auto"`, where steps compute, and where the
                model is moved to; None for where it is. Graph and batches stay on the host.
            room: bytes on the device for histories and features, which stay on the host if they are larger;
                None for what is free there.
        """
        check_graph(graph)
        checks.one_of("init", init, Init)
        precision = precision or self.precision
        check_precision(precision, graph.x.dtype)
        warn_if_slow(precision)
        rules.trainable(graph.train_mask, graph.y, graph.task)
        if graph.num_features == 0:
            warnings.warn(
                "the graph has no features: its nodes look alike to a model; "
                "graph.with_features('structure'), or --features structure, makes some of its edges",
                stacklevel=3,
            )
        seed, widths = checks.whole_number("seed", seed, 0), layer_widths(model, graph)
        warn_of_unread_edges(model, graph)
        if compiled := first_compiled(model):
            warnings.warn(
                f"{compiled}: is compiled, so its sums may depend on the number of threads; "
                "with the same number, or without compilation, a run gives the same bytes",
                stacklevel=3,
            )
        keep_large_buffers()
        self.model, self.graph, self._init, self._seed = model, graph, init, seed
        self.loss = loss_of(graph.task) if loss is None else own_loss(loss)
        self._widths = widths
        self._make_history, self._outside = histories, outside
        here = device_of(model) if device is None else chosen_device(device, graph.x.dtype)
        move(model, here)
        self.placement = Placement.of(graph, precision, here, *self._room_and_kept(room, here, precision))
        vars(self).pop("whole", None)  # it belongs to the graph before
        self._times_changed = times_changed(graph)
        with self.placement.computing():
            self.prepare_graph()
            self.reset()

    def _room_and_kept(
        self, room: int | None, device: torch.device, precision: Precision
    ) -> tuple[int | None, int]:
        """Bytes that there are for what is kept, None where nobody says, and bytes that it has."""
        room = free_memory(device) if room is None else room
        if room is None or device == HOST:
            return None, 0
        nodes = self.graph.num_nodes if self._outside is None else len(self._outside)
        width = self.remembered(self.model, self._widths).width
        return room, width * nodes * remembered_type(precision, self.graph.x.dtype).itemsize

    def reset(self) -> None:
        """Forget what was learned since `bind`."""
        self._step = 0

    def prepare_graph(self) -> None:
        """Build all that every step will read of the graph, before histories take what room there is."""
        for layer in self.model.layers:
            layer.prepare_graph(self.graph)
        first = self.model.layers[0]
        if isinstance(first, LinearLayer) and first_messages_are_features(self.model):
            propagated(self.graph, first.aggregation)
        trim_free_memory()

    def prepare(self, batch: Batch) -> None:
        """Build all that a step will read of a batch; meant for the background, see `lmc.prefetch`."""
        self.prepare_there(self.trained_on(batch), halo=False)

    def prepare_there(self, batch: Batch, halo: bool) -> Batch:
        """The batch as its step will read it, where that is: blocks, and with `halo` those of halo rows.

        On a device, also labels, ids, and the features that there is no room for in whole.
        """
        there = self.placement.batch(batch, ahead=True)
        self.model.prepare(there, halo)
        if there is batch:
            return there
        _ = there.y, there.train_mask
        source, first = self.graph.x, self.model.layers[0]
        if isinstance(first, LinearLayer) and first_messages_are_features(self.model):
            source = source if isinstance(batch, InducedBatch) else propagated(self.graph, first.aggregation)
        for part in ("nodes", "halo"):
            self.placement.fetch(there, source, part)
        return there

    @torch.inference_mode(False)  # what is made there cannot be trained with
    def backward(self, batch: Batch) -> float:
        """Add the estimate to the parameters' `.grad`.

        Returns:
            The batch's estimate of the loss: scale times the sum over its labelled nodes, over the
            number of labelled nodes in the graph.
        """
        loss, gradients = self.estimate(batch)
        for parameter, gradient in gradients.items():
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient
        return loss

    @torch.inference_mode(False)  # what is made there cannot be trained with
    def estimate(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The same without touching `.grad`: the loss, and the estimate of every parameter's gradient."""
        bound_to = self.graph
        if not isinstance(batch, Batch):
            raise ArgumentError(
                f"batch: {type(batch).__name__} is not an lmc.Batch; graph.batch(nodes) makes one"
            )
        if batch.graph is not bound_to:
            raise ArgumentError("batch: it is of another graph than the one in bind(model, graph)")
        for name, times in times_changed(bound_to).items():
            if times != self._times_changed[name]:
                raise ArgumentError(f"graph.{name}: changed in place since bind(model, graph); bind again")
        with self.placement.computing():
            result = self.estimate_on(batch)
        if not self.is_frozen:
            self._step += 1
        return result

    def estimate_on(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The estimate of a batch of this graph."""
        where = self.placement.batch(self.trained_on(batch))
        return self.estimate_with(where, self.halo_policy(where))

    def estimate_with(self, batch: Batch, halo: HaloPolicy) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The estimate with any policy: the normalisation of appendix A.3.1."""
        step = self.step_on(batch, halo)
        loss, gradients = (step if self.is_frozen else replace(step, watch=self.watch)).run()
        return self.normalized(batch, loss, gradients.of)

    def references(self) -> Reference:
        """What `gradient_error` measures estimates by: of a batch, its exact estimate, free of bias.

        Here that of `BackwardSGD`: values and derivatives outside are exact (Theorem 1). What all batches
        share is computed once, here.
        """
        exact = exact_values(self.step_on(self.whole, HaloPolicy()))

        def reference(batch: Batch) -> dict[nn.Parameter, Tensor]:
            where = self.placement.batch(batch)
            return self.estimate_with(where, ExactHalo(exact, where))[1]

        return reference

    def normalized(
        self, batch: Batch, loss: float, gradients: dict[nn.Parameter, Tensor]
    ) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """Of sums over a batch, what stands for the means over all labelled nodes of the graph."""
        factor = batch.scale / int(self.graph.train_mask.sum())
        return factor * loss, {p: factor * gradient for p, gradient in gradients.items()}

    def step_on(self, batch: Batch, halo: HaloPolicy) -> Step:
        """The step itself, not yet run."""
        address, where = (self._seed, self._step), self.placement.batch(batch)
        return Step(self.model, where, halo, self.loss, address, self.placement)

    @property
    def stores(self) -> dict[str, History]:
        """All that is remembered of nodes, by its name in `state_dict`; here, nothing."""
        return {}

    def learned(self) -> list[Tensor]:
        """What else steps change, few numbers for all nodes; as in use. Here, nothing."""
        return []

    def found(self) -> dict[str, float]:
        """Numbers that the method has found by itself so far, for the record of an epoch; here, none."""
        return {}

    @cached_property
    def whole(self) -> Batch:
        """The batch of all nodes, with all that was built for it."""
        self.graph.within = None
        return self.graph.batch(torch.arange(self.graph.num_nodes))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Estimates in this context are what they would be outside of it, and leave no trace here."""
        before, self.is_frozen = self.is_frozen, True
        try:
            yield
        finally:
            self.is_frozen = before

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next estimate depends on, apart from the model and the options.

        As in torch, tensors are those in use, not copies.
        """
        return {"step": torch.tensor(self._step)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken, by an estimator bound in the same way."""
        own = self.state_dict()
        if different := sorted(own.keys() ^ state.keys()):
            why = "is missing" if different[0] in own else "is of another estimator"
            raise ArgumentError(f"state[{different[0]!r}] {why}")
        for name, value in own.items():
            if state[name].shape != value.shape:
                shapes = f"{tuple(state[name].shape)}: must be {tuple(value.shape)}"
                raise ArgumentError(f"state[{name!r}] has shape {shapes}")
        self._step = int(state["step"])


def check_estimator(given: object) -> None:
    """Raise ArgumentError unless it is an estimator."""
    if not isinstance(given, Estimator):
        hint = f"; {given.__name__}() makes one" if isinstance(given, type) else ", such as lmc.LMC()"
        raise ArgumentError(f"estimator: {checks.shown(given)} is not an lmc.Estimator{hint}")
