"""GraphSAINT (Zeng et al., 2020): subgraphs; what is in many of them counts less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmc import checks, hashed_random
from lmc.batching.samplers import BatchOptions, Sampler
from lmc.batching.targets import TargetBatch
from lmc.data.batch import Batch
from lmc.data.graph import Graph
from lmc.data.normalization import normalize
from lmc.data.sampled import SampledBlock, heard_among
from lmc.errors import ArgumentError
from lmc.estimators.estimator import LayerSizes
from lmc.estimators.layer_sampling import drawn_by, squared_norms
from lmc.estimators.sampled import Address, SampledEstimator, mean_degree
from lmc.nn.model import Model
from lmc.sparse import CSR

SubgraphKind = Literal["node", "edge", "walk"]
_COUNTED, _TRAINED, _SIZES = 0, 1, 2
"""Addresses of subgraphs: of those that are counted, trained on, and of trials of their size."""
TRIALS = 8
"""Subgraphs by which the number of steps in an epoch is chosen."""


class Counts(NamedTuple):
    """How often nodes and edges were in a subgraph.

    Attributes:
        subgraphs: how many were drawn.
        nodes: (graph's nodes,) C_v.
        edges: (entries of `graph.sources`,) C_vu.
    """

    subgraphs: int
    nodes: Tensor
    edges: Tensor


class Subgraphs:
    """Draws node sets.

    Args:
        graph: the graph.
        kind: `"node"`, `"edge"` or `"walk"`; see `GraphSAINT`.
        size: nodes, edges or roots to draw.
        walk_length: steps of a walk.
    """

    def __init__(self, graph: Graph, kind: SubgraphKind, size: int, walk_length: int) -> None:
        self._graph, self._kind, self._size, self._steps = graph, kind, size, walk_length
        sources = graph.sources
        if kind == "edge" and sources.num_entries == 0:
            raise ArgumentError('sampler="edge": the graph has no edges to draw; "node" takes it')
        if kind == "node":  # by the squared norms of columns
            self._until = squared_norms(normalize(graph, "gcn")).cumsum(0)
        elif kind == "edge":  # by 1 / deg(u) + 1 / deg(v)
            inverse = 1 / sources.row_lengths().double().clamp(min=1)
            self._until = (inverse[sources.row_ids().long()] + inverse[sources.indices.long()]).cumsum(0)

    def nodes(self, *address: int) -> Tensor:
        """(any,) the nodes of a subgraph, in order."""
        sources = self._graph.sources
        if self._kind == "walk":
            visited = self._walked(*address)
        else:
            visited = drawn_by(self._until, self._size, address)
        if self._kind == "edge":
            target = torch.searchsorted(sources.indptr.long(), visited, right=True) - 1
            visited = torch.cat([target, sources.indices.long()[visited]])
        nodes: Tensor = torch.unique(visited)
        return nodes

    def _walked(self, *address: int) -> Tensor:
        """Where walks from random roots come by; a walk stays at a node without neighbours."""
        sources, walks = self._graph.sources, np.arange(self._size)
        at = torch.from_numpy(hashed_random.below(self._graph.num_nodes, *address, 0, walks))
        visited = [at]
        for step in range(1, self._steps + 1):
            first, degree = sources.indptr[at].long(), sources.row_lengths()[at].long()
            turn = torch.from_numpy(hashed_random.below(degree.clamp(min=1).numpy(), *address, step, walks))
            moves = degree > 0
            at = at.clone()
            at[moves] = sources.indices[(first + turn)[moves]].long()
            visited.append(at)
        return torch.cat(visited)

    def counts(self, most_nodes: int, seed: int) -> Counts:
        """Of subgraphs that have so many nodes together."""
        numbered, seen, subgraphs = numbered_sources(self._graph), 0, 0
        nodes = torch.zeros(self._graph.num_nodes, dtype=torch.int64)
        edges = torch.zeros(numbered.num_entries, dtype=torch.int64)
        while seen < most_nodes:
            chosen = self.nodes(seed, _COUNTED, subgraphs)
            inside = heard_among(numbered, chosen, chosen).values
            assert inside is not None
            nodes[chosen] += 1
            edges[inside[inside >= 0]] += 1
            seen, subgraphs = seen + len(chosen), subgraphs + 1
        return Counts(subgraphs, nodes, edges)


def numbered_sources(graph: Graph) -> CSR:
    """`graph.sources` with the places of its entries as values."""
    return graph.sources.with_values(torch.arange(graph.sources.num_entries))


class SubgraphSampler:
    """A subgraph for each step; as many steps as cover all nodes once, on average."""

    def __init__(self, graph: Graph, subgraphs: Subgraphs, steps: int, seed: int) -> None:
        self._graph, self._subgraphs, self._seed, self.steps = graph, subgraphs, seed, steps

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, counted from 0; without the first `start` of them."""
        for step in range(start, self.steps):
            address = (self._seed, _TRAINED, number, step)
            nodes = self._subgraphs.nodes(*address)
            yield TargetBatch(self._graph, nodes, nodes[:0], float(self.steps), address=address)


@dataclass
class GraphSAINT(SampledEstimator):
    """A step trains on a subgraph as if it were all there is, all its nodes at every layer.

    What is more often in a subgraph counts less: the losses of a node are divided by λ_v = C_v / N, its
    messages from u by α_vu = C_vu / C_v, with counts over N subgraphs that are drawn before training. Both
    are unbiased, as far as counts are chances. A batch of your own was not drawn so: its losses and messages
    count as they are. Layers that do more with messages than add them up take them as they are, too.

    Args:
        sampler: `"node"` draws nodes by the squared norms of their columns in the normalised adjacency;
            `"edge"` edges by 1 / deg(u) + 1 / deg(v); `"walk"` walks from random roots.
        batch_size: nodes, edges or roots that are drawn for a subgraph, with replacement.
        walk_length: steps of a walk.
        coverage: how often a node is in the subgraphs that are counted, on average.

    >>> import lmc
    >>> graph = lmc.synthetic(nodes=100)
    >>> estimator = GraphSAINT(sampler="node", batch_size=40)
    >>> estimator.bind(lmc.GCN(graph.num_features, 16, graph.num_classes, layers=2), graph)
    >>> loss = estimator.backward(graph.batch(range(50), scale=2.0))
    """

    sampler: SubgraphKind = "walk"
    batch_size: int = 2000
    walk_length: int = 2
    coverage: int = 50

    def __post_init__(self) -> None:
        checks.one_of("sampler", self.sampler, SubgraphKind)
        for name in ("batch_size", "walk_length", "coverage"):
            checks.whole_number(name, getattr(self, name), 1)

    def make_sampler(self, graph: Graph, options: BatchOptions) -> Sampler:
        """A subgraph for each step; as many steps as cover all nodes once, on average."""
        subgraphs = self._subgraphs(graph)
        nodes = [len(subgraphs.nodes(options.seed, _SIZES, trial)) for trial in range(TRIALS)]
        steps = max(1, round(TRIALS * graph.num_nodes / sum(nodes)))
        return SubgraphSampler(graph, subgraphs, steps, options.seed)

    def _subgraphs(self, graph: Graph) -> Subgraphs:
        return Subgraphs(graph, self.sampler, self.batch_size, self.walk_length)

    def prepare_graph(self) -> None:
        """Draw subgraphs, and count what is in them."""
        super().prepare_graph()
        self._numbered = numbered_sources(self.graph)
        wanted = self.coverage * self.graph.num_nodes
        self._counts = self._subgraphs(self.graph).counts(wanted, self._seed)

    def expected_sizes(self, graph: Graph, model: Model) -> list[LayerSizes]:
        """As if nothing were drawn twice, and all neighbours were in the subgraph."""
        each = {"node": 1, "edge": 2, "walk": self.walk_length + 1}[self.sampler]
        nodes = min(graph.num_nodes, each * self.batch_size)
        return [LayerSizes(nodes, nodes, nodes * mean_degree(graph))] * len(model.layers)

    def draw(self, batch: Batch, address: Address) -> list[SampledBlock]:
        """The subgraph of the batch's nodes, at every layer."""
        within = heard_among(self._numbered, batch.nodes, batch.nodes)
        assert within.values is not None
        inverse_alpha = torch.ones(within.num_entries, dtype=torch.float64)
        others = (within.values >= 0) & isinstance(batch, TargetBatch)
        often = self._often(batch)[within.row_ids()[others]]
        inverse_alpha[others] = often / self._counts.edges[within.values[others]].clamp(min=1)
        block = SampledBlock.of_heard(self.graph, batch.nodes, within.with_values(inverse_alpha))
        return [block] * len(self.model.layers)

    def loss_weights(self, batch: Batch) -> Tensor | None:
        """(nodes,) 1 / λ, over the scale, which counts make up for; of a user's own batch, its weights."""
        if not isinstance(batch, TargetBatch):
            return batch.weights
        inverse_lambda = self._counts.subgraphs / self._often(batch)
        weights = (inverse_lambda / batch.scale).to(self.graph.x.dtype)
        return weights if batch.weights is None else weights * batch.weights

    def _often(self, batch: Batch) -> Tensor:
        """(nodes,) C_v, float64; one for what was never counted, which is rare."""
        return self._counts.nodes[batch.nodes].clamp(min=1).double()
