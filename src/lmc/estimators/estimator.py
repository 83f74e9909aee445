"""What an estimator is, and what those with histories share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.errors import ArgumentError
from lmc.estimators.exact import exact_values
from lmc.estimators.history import History
from lmc.estimators.linear_pass import LayerPass
from lmc.estimators.losses import Loss, loss_of
from lmc.estimators.step import LayerwiseStep, Outside
from lmc.malloc import keep_large_buffers
from lmc.nn.model import Model, check_model
from lmc.nn.parts import without_dropout

Init = Literal["zero", "exact"]
Precision = Literal["full", "half"]


class Estimator(ABC):
    """A way to estimate the full-batch gradient from a batch.

    The loss is the mean over all labelled nodes of the graph. The estimate of a batch is `batch.scale`
    times the sum over its rows. With everything outside exact, it averages to the gradient: over the
    batches of an epoch if all have as many clusters, over random groups of clusters in any case.
    """

    needs_parts = True
    """Whether it works on batches; if not, every step is on the whole graph."""

    precision: Precision = "full"
    """Of what is remembered."""

    model: Model
    graph: Graph
    loss: Loss
    _init: Init
    _seed: int
    _step: int
    _frozen: bool = False

    def bind(
        self,
        model: Model,
        graph: Graph,
        init: Init = "zero",
        loss: Loss | None = None,
        seed: int = 0,
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
        """
        checks.one_of("init", init, Init)
        seed, widths = checks.whole_number("seed", seed, 0), boundary_widths(model, graph)
        keep_large_buffers()
        self.model, self.graph, self._init, self._seed = model, graph, init, seed
        self.loss, self._widths = loss or loss_of(graph.task), widths
        vars(self).pop("whole", None)
        self.reset()

    @cached_property
    def whole(self) -> Batch:
        """The batch of all nodes."""
        return self.graph.batch(torch.arange(self.graph.num_nodes))

    def remembered(self, depth: int) -> tuple[range, range]:
        """The layers behind which embeddings and auxiliary variables are kept, from 1 to `depth`."""
        return range(0), range(0)

    def reset(self) -> None:
        """Forget what was learned since `bind`."""
        self._step = 0

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

    def estimate(self, batch: Batch) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The same without touching `.grad`: the loss, and the estimate of every parameter's gradient."""
        if not hasattr(self, "model"):
            raise ArgumentError(f"{type(self).__name__} is not bound: call bind(model, graph) first")
        if batch.graph is not self.graph:
            raise ArgumentError("batch: it is of another graph than the one in bind(model, graph)")
        result = self.estimate_in(*self.scene(batch))
        if not self._frozen:
            self._step += 1
        return result

    def estimate_in(self, where: Batch, outside: Outside) -> tuple[float, dict[nn.Parameter, Tensor]]:
        """The estimate on a scene of any making: the normalisation of appendix A.3.1."""
        step = LayerwiseStep(self.model, where, outside, self.loss, self.address)
        loss = step.run()
        factor = where.scale / int(self.graph.train_mask.sum())
        return factor * loss, {p: factor * gradient for p, gradient in step.gradients.of.items()}

    @abstractmethod
    def scene(self, batch: Batch) -> tuple[Batch, Outside]:
        """What the step runs on, and what stands in for what is outside of it."""

    @property
    def address(self) -> tuple[int, int]:
        """(seed, step) of the dropout masks."""
        return self._seed, self._step

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Estimates in this context leave no trace in the estimator."""
        before, self._frozen = self._frozen, True
        try:
            yield
        finally:
            self._frozen = before

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


class HistoryEstimator(Estimator):
    """An estimator that remembers values of nodes from when they were last in a batch."""

    precision: Precision
    revisits_halo = False

    def __post_init__(self) -> None:
        checks.one_of("precision", self.precision, Precision)

    def remembered(self, depth: int) -> tuple[range, range]:
        """Embeddings alone."""
        return range(1, depth), range(0)

    def reset(self) -> None:
        """Forget all histories, or fill them anew by an exact pass, as `bind` was told."""
        super().reset()
        dtype = torch.float16 if self.precision == "half" else self.graph.x.dtype
        nodes, widths = self.graph.num_nodes, self._widths
        embeddings, auxiliaries = self.remembered(len(widths))
        self.embeddings = {at: History(nodes, widths[at - 1], dtype) for at in embeddings}
        self.auxiliaries = {at: History(nodes, widths[at - 1], dtype) for at in auxiliaries}
        if self._init == "exact":
            with untouched_statistics(self.model), without_dropout(self.model):
                given = (self.model, self.whole, self.loss, self.address)
                exact = exact_values(*given, backward=bool(self.auxiliaries))
            for layer, history in self.embeddings.items():
                history.push(self.whole.nodes, exact.embeddings[layer - 1])
            for layer, history in self.auxiliaries.items():
                history.push(self.whole.nodes, exact.auxiliaries[layer - 1])

    def scene(self, batch: Batch) -> tuple[Batch, Outside]:
        """The batch as it is; the halo by this estimator's own rules."""
        return batch, self

    def halo_embeddings(self, layer: int, at: LayerPass) -> Tensor:
        """(halo, width) H̄ˡ, as it was when each node was last in a batch."""
        return self.embeddings[layer].pull(at.batch.halo, self.graph.x.dtype)

    def halo_auxiliaries(self, layer: int, halo: Tensor, up_to_date: Callable[[], Tensor]) -> Tensor | None:
        """Dropped."""
        return None

    def keep_embeddings(self, layer: int, nodes: Tensor, z: Tensor) -> None:
        """Write the batch's rows."""
        self._keep(self.embeddings, layer, nodes, z)

    def keep_auxiliaries(self, layer: int, nodes: Tensor, v: Tensor) -> None:
        """Write the batch's rows."""
        self._keep(self.auxiliaries, layer, nodes, v)

    def _keep(self, histories: dict[int, History], layer: int, nodes: Tensor, values: Tensor) -> None:
        if layer in histories and not self._frozen:
            histories[layer].push(nodes, values)

    def state_dict(self) -> dict[str, Tensor]:
        """The step and every history."""
        state = super().state_dict()
        state |= {f"embeddings.{layer}": history.values for layer, history in self.embeddings.items()}
        state |= {f"auxiliaries.{layer}": history.values for layer, history in self.auxiliaries.items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state_dict` was taken, by an estimator bound in the same way."""
        super().load_state_dict(state)
        for layer, history in self.embeddings.items():
            history.values.copy_(state[f"embeddings.{layer}"])
        for layer, history in self.auxiliaries.items():
            history.values.copy_(state[f"auxiliaries.{layer}"])


@contextmanager
def untouched_statistics(model: nn.Module) -> Iterator[None]:
    """A pass in this context leaves the buffers (a batch norm's running statistics) as they were."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


def boundary_widths(model: Model, graph: Graph) -> list[int]:
    """The width of every boundary, found by sending one node through the model alone."""
    check_model(model)
    _check_parameters(model)
    *widths, out = model.widths(graph)
    if out < graph.num_classes or (out > graph.num_classes and graph.task != "multiclass"):
        raise ArgumentError(f"model: predicts {out} columns; the graph's labels need {graph.num_classes}")
    return widths


def _check_parameters(model: Model) -> None:
    known = {p for part in (model.encoder, model.layers, model.head) for p in part.parameters()}
    for name, parameter in model.named_parameters():
        if parameter not in known:
            raise ArgumentError(f"model: parameter {name!r} is in neither encoder, layers nor head")
