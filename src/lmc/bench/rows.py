"""What is timed: one epoch of a method on a graph, each in a process of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from itertools import chain, count, islice, pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR

import lmc
from lmc.batching.samplers import BatchOptions, ever_outside
from lmc.data.normalization import normalize_transposed, propagated
from lmc.device import HOST, copied, move, on_host
from lmc.malloc import keep_large_buffers
from lmc.nn.inference import evaluating
from lmc.nn.model import Model
from lmc.precision import Precision
from lmc.sparse import CSR
from lmc.training.metrics import evaluate
from lmc.training.uncompiled import uncompiled

Architecture = Literal["gcn", "gcnii"]
HIDDEN = 256
COARSE = BatchOptions(parts=80, parts_per_batch=40)


class TimedRow(NamedTuple):
    """What takes turns.

    Attributes:
        epoch: what is timed.
        accuracy: of the model as it is, on the validation nodes.
        begin_anew: forgets the batch that was built ahead, which is memory of a step.
    """

    epoch: Callable[[], None]
    accuracy: Callable[[], float] = lambda: math.nan
    begin_anew: Callable[[], None] = lambda: None


def own(
    graph: lmc.Graph,
    estimator: lmc.Estimator,
    batches: BatchOptions = COARSE,
    make_model: Callable[[lmc.Graph], Any] | None = None,
    lr: float = 1e-2,
    decay_over: int | None = None,
    precision: Precision = "full",
    device: torch.device = HOST,
) -> TimedRow:
    """A method of this library.

    `make_model=None` is the GCN of the benchmark. Over `decay_over` epochs the learning rate falls to zero,
    as by `scheduler="cosine"`; None: it stays.
    """
    _load_kernels()
    torch.manual_seed(0)
    model = (make_model or gcn)(graph)
    sampler = estimator.make_sampler(graph, batches)
    estimator.bind(model, graph, outside=ever_outside(sampler), precision=precision, device=device)
    optimizer = uncompiled(torch.optim.Adam)(model.parameters(), lr=lr)
    scheduler = CosineAnnealingLR(optimizer, decay_over) if decay_over else None

    def batches_ahead() -> Iterator[lmc.Batch]:
        return lmc.prefetch(chain.from_iterable(map(sampler.epoch, count())), estimator.prepare)

    coming = batches_ahead()

    def begin_anew() -> None:
        nonlocal coming
        coming = batches_ahead()

    def epoch() -> None:
        model.train()
        for batch in islice(coming, sampler.steps):
            optimizer.zero_grad()
            estimator.backward(batch)
            optimizer.step()
        if scheduler is not None:
            scheduler.step()

    def accuracy() -> float:
        return evaluate(graph, lmc.predict(graph, model, precision=precision))["val"]

    return TimedRow(epoch, accuracy, begin_anew)


@cache
def _load_kernels() -> None:
    """One step on a tiny graph, so that the loading of kernels is not measured later."""
    graph = lmc.synthetic(nodes=500, features=4)
    estimator = lmc.LMC()
    estimator.bind(gcn(graph), graph)
    estimator.backward(graph.batch(torch.arange(100)))


def gcn(graph: lmc.Graph) -> lmc.GCN:
    """The GCN of the benchmark."""
    return lmc.GCN(graph.num_features, HIDDEN, graph.num_classes, layers=3, dropout=0.5, norm="batch")


def brought(name: str, graph: lmc.Graph) -> Model:
    """A model by its name, as wide and deep as the GCN of the benchmark."""
    return lmc.build_model(name, graph, hidden=HIDDEN, layers=3, dropout=0.5, norm="batch")


def wrapped_gcn(graph: lmc.Graph) -> lmc.GNN:
    """The same, as a model of PyG that is wrapped."""
    return lmc.from_pyg(pyg_gcn(graph, normalize=True))


def gcnii(graph: lmc.Graph) -> lmc.GCNII:
    """The GCNII of the benchmark."""
    return lmc.GCNII(graph.num_features, HIDDEN, graph.num_classes, layers=4, dropout=0.5)


def pyg(
    graph: lmc.Graph, architecture: Architecture = "gcn", lr: float = 1e-2, device: torch.device = HOST
) -> TimedRow:
    """PyG's own full-batch training, with the normalised adjacency in CSR and computed once."""
    torch.manual_seed(0)
    a = lmc.normalize(graph)
    values = torch.ones(a.num_entries) if a.values is None else a.values
    adjacency = torch.sparse_csr_tensor(a.indptr.long(), a.indices.long(), values, a.shape).to(device)
    model = pyg_gcn(graph, normalize=False) if architecture == "gcn" else _PyGGCNII(graph)
    move(model, device)
    x, y, learned = copied((graph.x, graph.y, graph.train_mask), device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def epoch() -> None:
        model.train()
        optimizer.zero_grad()
        out = model(x, adjacency)
        cross_entropy(out[learned], y[learned]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def validate() -> float:
        with evaluating(model), torch.no_grad():
            return evaluate(graph, on_host(model(x, adjacency)))["val"]

    return TimedRow(epoch, validate)


def pyg_gcn(graph: lmc.Graph, normalize: bool) -> Any:
    """The GCN of the benchmark, in PyG; `normalize`: whether it makes the weights of messages itself."""
    from torch_geometric.nn.models import GCN

    sizes = (graph.num_features, HIDDEN, 3, graph.num_classes)
    return GCN(*sizes, dropout=0.5, norm="BatchNorm", normalize=normalize)


def pyg_keeping_buffers(graph: lmc.Graph) -> TimedRow:
    """The same where malloc keeps large buffers, as for our rows: a part of the distance is that alone."""
    keep_large_buffers()
    return pyg(graph)


class _PyGGCNII(nn.Module):
    """Four of PyG's GCN2Conv between two linear layers, as in its example."""

    def __init__(self, graph: lmc.Graph) -> None:
        from torch_geometric.nn import GCN2Conv

        super().__init__()
        self.encoder = nn.Linear(graph.num_features, HIDDEN)
        convs = [GCN2Conv(HIDDEN, 0.1, 0.5, layer, normalize=False) for layer in range(1, 5)]
        self.convs = nn.ModuleList(convs)
        self.head = nn.Linear(HIDDEN, graph.num_classes)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = initial = self.encoder(x).relu()
        for conv in self.convs:
            h = conv(nn.functional.dropout(h, 0.5, self.training), initial, adjacency).relu()
        out: Tensor = self.head(nn.functional.dropout(h, 0.5, self.training))
        return out


def products(graph: lmc.Graph, parts: int = 80, parts_per_batch: int = 40) -> TimedRow:
    """The floor: the dense and sparse products of an LMC epoch (GCN, alpha = 0) alone, on its shapes."""
    _load_kernels()
    batches = list(lmc.batches(graph, lmc.partition(graph, parts), parts_per_batch, balance="labels"))
    widths = [graph.num_features, HIDDEN, HIDDEN, graph.num_classes]
    weights = [torch.randn(o, i) for i, o in pairwise(widths)]
    propagated(graph)  # known before the first epoch

    sizes = [(batch.num_nodes, batch.num_halo) for batch in batches]
    hidden = [[torch.rand(n, HIDDEN) for n in size] for size in sizes]
    outputs = [[torch.rand(n, widths[-1]) for n in size] for size in sizes]

    def epoch() -> None:
        for batch, (inside, halo), (out, halo_out) in zip(batches, hidden, outputs, strict=True):
            block: CSR = batch.block()
            received = [batch.received_features(), block.times(inside, halo), block.times(inside, halo)]
            for a, weight in zip(received, weights, strict=True):
                z = a @ weight.T
                z.T @ a
            batch.transposed_block().times(out, halo_out) @ weights[2]
            batch.transposed_block().times(inside, halo) @ weights[1]

    return TimedRow(epoch)


def preparation(graph: lmc.Graph, parts: int = 80, parts_per_batch: int = 40) -> TimedRow:
    """What comes before the first step: normalise, add up the features, partition, build the first batch."""
    _load_kernels()

    def epoch() -> None:
        fresh = copy(graph)  # nothing is cached for it yet
        vars(fresh).pop("neighbours", None)
        normalize_transposed(fresh)
        propagated(fresh)
        clusters = lmc.partition(fresh, parts, cache=False)
        next(lmc.batches(fresh, clusters, parts_per_batch, balance="labels"))

    return TimedRow(epoch)
