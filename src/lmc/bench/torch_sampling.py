"""Neighbour sampling as people have it without this library: PyG's loader, or the same in plain torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import lmc
from lmc.bench.rows import TimedRow, pyg_gcn
from lmc.estimators.neighbor_sampling import NeighborSampling
from lmc.nn.inference import evaluating
from lmc.training.metrics import evaluate

FANOUTS, BATCH_SIZE = [25, 10, 10], NeighborSampling.batch_size
"""Of the three layers of the benchmark's model, as by default in `lmc.NeighborSampling`."""

Sample = tuple[Tensor, Tensor, int]
"""The nodes of a sample, targets first; (2, edges) their edges, by place; how many are targets."""


def pyg_neighbors(graph: lmc.Graph, lr: float = 1e-2) -> TimedRow:
    """PyG's GCN on samples of PyG's `NeighborLoader`, or of `sampled` where that is not installed."""
    torch.manual_seed(0)
    model = pyg_gcn(graph, normalize=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    epoch_of_samples = loader_samples if has_loader() else torch_samples

    def epoch() -> None:
        model.train()
        for nodes, edges, targets in epoch_of_samples(graph):
            optimizer.zero_grad()
            out = model(graph.x[nodes], edges)[:targets]
            cross_entropy(out, graph.y[nodes[:targets]]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def validate() -> float:
        with evaluating(model), torch.no_grad():
            return evaluate(graph, model(graph.x, graph.to_pyg().edge_index))["val"]

    return TimedRow(epoch, validate)


def has_loader() -> bool:
    """Whether one of the compiled libraries is there that PyG's loader needs."""
    from torch_geometric import typing

    return bool(typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE)


def loader_samples(graph: lmc.Graph) -> Iterator[Sample]:
    """An epoch of PyG's loader."""
    from torch_geometric.loader import NeighborLoader

    targets = graph.train_mask
    for part in NeighborLoader(graph.to_pyg(), FANOUTS, targets, batch_size=BATCH_SIZE, shuffle=True):
        yield part.n_id, part.edge_index, part.batch_size


def torch_samples(graph: lmc.Graph) -> Iterator[Sample]:
    """An epoch of the same in plain torch."""
    targets = graph.train_mask.nonzero()[:, 0]
    for some in torch.split(targets[torch.randperm(len(targets))], BATCH_SIZE):
        yield sampled(graph, some, FANOUTS)


def sampled(graph: lmc.Graph, targets: Tensor, fanouts: list[int]) -> Sample:
    """Some neighbours of the targets, some of theirs, and so on, drawn without replacement.

    >>> path = lmc.Graph([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> nodes, edges, _ = sampled(path, torch.tensor([0]), [5, 5])
    >>> nodes.tolist(), sorted(edges.T.tolist())
    ([0, 1, 2], [[0, 1], [1, 0], [2, 1]])
    """
    place = torch.full((graph.num_nodes,), -1)
    nodes, last = targets, targets
    place[targets] = torch.arange(len(targets))
    edges: list[Tensor] = []
    for fanout in fanouts:
        row, source = _drawn(graph, last, fanout)
        new: Tensor = torch.unique(source[place[source] < 0])
        place[new] = len(nodes) + torch.arange(len(new))
        nodes = torch.cat([nodes, new])
        edges.append(torch.stack([place[source], place[last[row]]]))
        last = new
    return nodes, torch.cat(edges, dim=1), len(targets)


def _drawn(graph: lmc.Graph, nodes: Tensor, fanout: int) -> tuple[Tensor, Tensor]:
    """(drawn,) the place of who hears, and who is heard: those of a node with the lowest random numbers."""
    some = graph.sources.take(nodes)
    row, source = some.row_ids().long(), some.indices.long()
    by_chance = torch.rand(len(row)).argsort()
    by_row = by_chance[row[by_chance].argsort(stable=True)]
    rank = torch.arange(len(row)) - some.indptr.long()[row]
    chosen = by_row[rank < fanout]
    return row[chosen], source[chosen]
