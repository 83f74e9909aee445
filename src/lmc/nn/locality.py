"""Whether each row that a module gives depends on its own messages alone: tried on ten nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lmc.data.batch import Edges
from lmc.errors import ArgumentError
from lmc.files import raised_text
from lmc.nn.convolution import ConvolutionLayer
from lmc.nn.inference import evaluating
from lmc.nn.linear_convolutions import GINConvLayer
from lmc.nn.mean_randomness import mean_randomness
from lmc.nn.module_context import training_mode, untouched_statistics
from lmc.nn.node_wise import Chain, NodeWiseModule
from lmc.nn.rows import Rows
from lmc.nn.trial import MESSAGES, Trial, changes

if TYPE_CHECKING:
    from lmc.data.graph import Graph
    from lmc.nn.gnn import GNN
    from lmc.nn.node_wise import NodeWise

NODES = 10
NO_FORM = "has no bipartite form, conv((x_source, x_target), edge_index)"
ROW_BY_ROW = """; PyG's takes a node by itself with norm_kwargs={"mode": "node"}"""
WITHIN = "; a convolution of PyG in it may have none, but can be a layer by itself"

_ENDS = torch.tensor([[(node + shift) % NODES, node] for node in range(NODES) for shift in (1, 3, 6)]).T
"""(2, edges) in the order of the targets."""


class UndecidedError(Exception):
    """A module failed on made-up input, which says nothing about real input."""


def input_width(model: GNN) -> int | None:
    """How many features the model takes, where its first module says so."""
    layer: Any = model.layers[0]
    first = [*model.encoder.modules(), *layer.message.modules(), layer.conv]
    if isinstance(layer, GINConvLayer):  # which leaves the width to its network
        first += layer.conv.nn.modules()
    for module in first:
        for name in ("in_features", "in_channels", "num_features"):
            width = getattr(module, name, None)
            width = width[0] if isinstance(width, tuple) else width
            if isinstance(width, int) and width > 0:
                return width
    return None


def check_locality(model: GNN, width: int, graph: Graph | None = None) -> bool:
    """Raise ArgumentError for the first module that mixes nodes, or has no bipartite form.

    Args:
        model: what is tried, in both modes.
        width: of the features.
        graph: whose features are taken; None for random ones.

    Returns:
        True; False if a module may have failed only because the features were not real ones.
    """
    try:
        for mode, suffix in ((evaluating, ""), (training_mode, ", in training mode")):
            with mode(model), as_if_trained(model), without_chance():
                _Tried.with_features(model, width, graph, suffix).run()
    except UndecidedError:
        return False
    except _FailedError as error:
        raise ArgumentError(str(error)) from error.__cause__
    return True


@contextmanager
def without_chance() -> Iterator[None]:
    """Passes in this context have no noise, and leave torch's generator as it was."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]), mean_randomness():
        yield


@contextmanager
def as_if_trained(model: nn.Module) -> Iterator[None]:
    """In this context parameters that are all zero are not: a gate that starts closed hides what it opens."""
    random = torch.Generator().manual_seed(1)
    closed = [p for p in model.parameters() if not p.is_sparse and not p.any()]
    for p in closed:
        p.data.copy_(torch.randn(p.shape, generator=random))
    try:
        yield
    finally:
        for p in closed:
            p.data.zero_()


def differ(one: Tensor, other: Tensor) -> bool:
    """Whether values differ by more than rounding."""
    largest = float(one.abs().nan_to_num(0.0, 0.0, 0.0).max()) if one.numel() else 0.0
    tolerance = torch.finfo(one.dtype).eps ** 0.5 if one.is_floating_point() else 0.0
    return not torch.allclose(one, other, rtol=tolerance, atol=tolerance * largest, equal_nan=True)


@dataclass(frozen=True)
class _Tried:
    """A model on ten nodes.

    Attributes:
        model: the model.
        x: (10, features).
        graph: whose features they are; None for random ones.
        suffix: of messages.
        draw: (rows, columns) numbers for what nobody gave.
    """

    model: GNN
    x: Tensor
    graph: Graph | None
    suffix: str
    draw: Callable[[int, int], Tensor]

    @staticmethod
    def with_features(model: GNN, width: int, graph: Graph | None, suffix: str) -> _Tried:
        """On features of the graph; None for random ones."""
        random = torch.Generator().manual_seed(0)
        example = next(model.parameters(), torch.empty(0))

        def draw(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=random).to(example)

        if graph is None:
            return _Tried(model, draw(NODES, width), None, suffix, draw)
        x = graph.x[torch.arange(NODES) % graph.num_nodes].to(example)
        return _Tried(model, x, graph, suffix, draw)

    @property
    def growth(self) -> float:
        """By how much values that are made up may be larger than others; real ones stay what they are."""
        return 4.0 if self.graph is None else 1.0

    def run(self) -> None:
        """Raise ArgumentError for the first module that does not work."""
        model = self.model
        z = self._node_wise(model.encoder, self.x, "encoder")
        initial, seen, place = model.initial(z), list[Tensor](), -1
        layer: Any
        for layer in model.layers:
            place += layer.opens  # of the convolution
            message = self._node_wise(layer.message, z, f"layers[{place}], before the convolution")
            read = layer.what_it_reads(seen, initial)
            seen.append(message)
            title = f"layers[{place}] ({type(layer.conv).__name__})"
            if isinstance(layer, ConvolutionLayer):
                z = layer.update(self._convolution(layer, message, title), initial)
            else:
                z = called(title, model, layer.update, message, message, read)
        if not model.jumps:
            self._node_wise(model.head, z, "head")
            return
        by_head = [*(seen[place - 1] for place in model.jumped_to), z]
        widths = [each.shape[1] for each in by_head]
        self._rows_alone(
            "jump", lambda z, rows: model.read(torch.split(z, widths, 1), rows), torch.cat(by_head, 1)
        )

    # -- node by node ----------------------------------------------------------------------------

    def _node_wise(self, function: NodeWise, z: Tensor, where: str) -> Tensor:
        """The value for all rows, of modules that work row by row."""
        if isinstance(function, Chain):
            for part in function.parts:
                z = self._node_wise(part, z, where)  # type: ignore[arg-type]
            return z
        shown = function.module if isinstance(function, NodeWiseModule) else function
        try:
            return self._rows_alone(f"{where}: {type(shown).__name__}", function, z)
        except _FailedError:
            if where == "encoder" and self.graph is None:
                raise UndecidedError from None
            raise

    def _rows_alone(self, title: str, function: Callable[[Tensor, Rows], Tensor], z: Tensor) -> Tensor:
        """The value for all rows; each must stay the same whatever else there is."""
        half, order = NODES // 2, torch.tensor([3, 7, 0, 9, 4, 1, 8, 2, 6, 5])
        other = torch.cat([z[:half], self.growth * z[:half].flip(0)])
        whole = called(title, self.model, function, z, _rows(NODES))
        if len(whole) != NODES:
            raise ArgumentError(f"{title} gives {len(whole)} rows for {NODES} nodes: it pools over the graph")
        for what, given, watched in (
            ("the values of other rows", other, torch.arange(half)),
            ("the number of rows", z[:half], torch.arange(half)),
            ("the order of rows", z[order], order),
        ):
            nodes = order if watched is order else torch.arange(len(given))
            found = called(title, self.model, function, given, Rows(nodes, (0,), inside=False))
            if differ(whole[watched], found[: len(watched)]):
                remedy = ROW_BY_ROW if title.endswith(" LayerNorm") else ""
                raise ArgumentError(f"{title} mixes nodes: a row depends on {what}{self.suffix}{remedy}")
        return whole

    # -- convolutions ----------------------------------------------------------------------------

    def _convolution(self, layer: ConvolutionLayer, message: Tensor, title: str) -> Tensor:
        """The value for all nodes; every row must depend on its own messages alone."""
        attr, kind = self._features_of_edges(layer), _made_types(layer.conv, MESSAGES)
        try:
            self._try(layer, Trial.of(message, None, attr, kind, self.growth), title)
        except _FailedError:
            if attr is not None or not layer.takes_attr:
                raise
            raise UndecidedError from None
        if layer.takes_weight:
            weight = 0.5 + self.draw(MESSAGES, 1)[:, 0].abs()
            self._try_weights(layer, Trial.of(message, weight, attr, kind, self.growth), title)
        more = None if attr is None else attr.repeat(2, 1)
        edges = Edges(_ENDS, None, more, _made_types(layer.conv, _ENDS.shape[1]))
        given = edges, message, message[:0], _rows(NODES)
        return called(_no_form(title, layer), layer, layer.receive, *given)

    def _features_of_edges(self, layer: ConvolutionLayer) -> Tensor | None:
        """(15, columns) those of the graph, or random ones, as many as the convolution says; or None."""
        if self.graph is not None and self.graph.edge_attr is not None:
            attr = self.graph.edge_attr
            return attr[torch.arange(MESSAGES) % len(attr)].to(self.x.dtype) if len(attr) else None
        columns = getattr(layer.conv, "edge_dim", None)
        return self.draw(MESSAGES, columns) if isinstance(columns, int) else None

    def _try_weights(self, layer: ConvolutionLayer, first: Trial, title: str) -> None:
        try:
            self._try(layer, first, title)
        except _FailedError:  # of no concern where edges have none
            if self.graph is None:
                raise UndecidedError from None
            if self.graph.edge_weight is not None:
                raise

    def _try(self, layer: ConvolutionLayer, first: Trial, title: str) -> None:
        """Raise ArgumentError if rows change with what is not theirs."""
        expected = _watched(_no_form(title, layer), layer, first)
        if differ(expected, _watched(title, layer, first)):
            raise ArgumentError(f"{title}: gives something else when it is called again{self.suffix}")
        for what, other in changes(first):
            why = f"{title}: mixes nodes: a row depends on {what}{self.suffix}"
            if differ(expected, _watched(why, layer, other)):
                raise ArgumentError(why)


def _made_types(conv: Any, count: int) -> Tensor:
    """(count,) of all the types that the convolution knows."""
    return torch.arange(count) % getattr(conv, "num_relations", 1)


def _watched(title: str, layer: ConvolutionLayer, trial: Trial) -> Tensor:
    """(watched, out) the rows that are compared."""
    own, others = trial.sources[: trial.targets], trial.sources[trial.targets :]
    received = called(title, layer, layer.receive, trial.edges, own, others, _rows(trial.targets))
    if len(received) != trial.targets:
        rule = f"gives {len(received)} rows for {trial.targets} targets; must be one each"
        raise ArgumentError(f"{title}: {rule}")
    return received[trial.watched]


class _FailedError(ArgumentError):
    """A call that raised an error."""


def called(title: str, model: nn.Module, function: Any, *given: Any) -> Tensor:
    """What a function gives, its buffers left as they were; ArgumentError where it fails."""
    try:
        with untouched_statistics(model):  # which also change weights that are normalised by the last call
            out = function(*given)
    except Exception as error:  # modules of users may raise anything
        raise _FailedError(f"{title}: raised {raised_text(error)}") from error
    if not isinstance(out, Tensor):
        raise _FailedError(f"{title}: gives a {type(out).__name__}; must be a tensor")
    return out


def _rows(count: int) -> Rows:
    return Rows(torch.arange(count), (0,), inside=False)


def _no_form(title: str, layer: ConvolutionLayer) -> str:
    is_own = not type(layer.conv).__module__.startswith("torch_geometric.")
    return f"{title}: {NO_FORM}{WITHIN if is_own else ''}"
