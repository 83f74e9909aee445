"""Edges with types: RGCNConv, FastRGCNConv and RGATConv against PyG, and graphs of several types of nodes."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import HeteroData
from torch_geometric.nn import FastRGCNConv, MessagePassing, RGATConv, RGCNConv

import lmc
from estimating import bound, distance, full_gradient, gradient, graph_of, mostly_long, settled
from lmc.data.normalization import normalize, normalize_transposed
from test_multigraphs import multigraph

TYPES = 4


def typed(kind, seed=1):
    """With a type of which there is no edge, and edges of several types between two nodes."""
    data = multigraph(kind)
    generator = torch.Generator().manual_seed(seed)
    data.edge_type = torch.tensor([0, 1, 3])[torch.randint(0, 3, (data.num_edges,), generator=generator)]
    return data


def rgat(*sizes, **options):
    conv = RGATConv(*sizes, TYPES, **options)
    with torch.no_grad():
        conv.l2.fill_(1 / conv.out_channels)  # which PyG leaves as the memory was
    return conv


class OwnGates(MessagePassing):
    """A gate for each type of edges; it does not say for how many."""

    def __init__(self, width, out):
        super().__init__(aggr="add")
        self.in_channels = width
        self.linear, self.gates = nn.Linear(width, out), nn.Parameter(torch.rand(TYPES, width))

    def forward(self, x, edge_index, edge_type):
        source, target = (x, x) if isinstance(x, torch.Tensor) else x
        return self.linear(self.propagate(edge_index, x=(source, target), edge_type=edge_type) + target)

    def message(self, x_j, edge_type):
        return self.gates[edge_type] * x_j


LINEAR = {
    "RGCNConv": lambda *s: RGCNConv(*s, TYPES),
    "RGCNConv, more relations": lambda *s: RGCNConv(*s, TYPES + 2),
    "RGCNConv, sum": lambda *s: RGCNConv(*s, TYPES, aggr="add"),
    "RGCNConv, bases": lambda *s: RGCNConv(*s, TYPES, num_bases=2),
    "RGCNConv, blocks": lambda width, out: RGCNConv(width, out, TYPES, num_blocks=3 if width == 6 else 1),
    "RGCNConv, no root": lambda *s: RGCNConv(*s, TYPES, root_weight=False, bias=False),
    "FastRGCNConv": lambda *s: FastRGCNConv(*s, TYPES),
    "FastRGCNConv, sum": lambda *s: FastRGCNConv(*s, TYPES, aggr="add", num_bases=3),
}
OTHER = {
    "RGCNConv, max": lambda *s: RGCNConv(*s, TYPES, aggr="max"),
    "RGATConv": rgat,
    "RGATConv, within": lambda *s: rgat(*s, attention_mechanism="within-relation", mod="additive"),
    "RGATConv of edges": lambda *s: rgat(*s, edge_dim=2, num_bases=2, mod="scaled"),
    "a convolution of one's own": OwnGates,
}
EVERY = LINEAR | OTHER
IN_THE_TABLE = ("RGCNConv", "RGCNConv, sum", "FastRGCNConv", "RGCNConv, max", "RGATConv")


def model_of(kind, depth=2, seed=0):
    torch.manual_seed(seed)
    sizes = [5, *[6] * (depth - 1), 3]
    convs = [EVERY[kind](*pair).double() for pair in pairwise(sizes)]
    for conv in convs:
        for parameter in conv.parameters():
            parameter.data += 0.3 * torch.randn(parameter.shape) if parameter.ndim == 1 else 0
    unread = ("w", "l1", "b1", "l2", "b2")  # of RGATConv, where it has no use for them
    for name, parameter in (named for conv in convs for named in conv.named_parameters()):
        parameter.requires_grad_(name not in unread)
    return lmc.GNN([convs[0], *(nn.Sequential(nn.ReLU(), conv) for conv in convs[1:])]), convs


def by_pyg(convs, data):
    z = data.x
    for place, conv in enumerate(convs):
        given = {} if getattr(conv, "edge_dim", None) is None else {"edge_attr": data.edge_attr}
        z = conv(z.relu() if place else z, data.edge_index, data.edge_type, **given)
    return z


@pytest.mark.parametrize("of_edges", ["undirected features", "directed weighted features"])
@pytest.mark.parametrize("kind", EVERY)
def test_predictions_and_gradients_are_those_of_pyg(kind, of_edges):
    data = typed(of_edges)
    graph, (model, convs) = lmc.Graph.from_pyg(data), model_of(kind)
    out = by_pyg(convs, data)
    for rows in (7, 1 << 14):
        assert torch.allclose(lmc.predict(graph, model, rows_at_once=rows), out, rtol=1e-9, atol=1e-12)
    few = lmc.predict(graph, model, nodes=[3, 23])
    assert torch.allclose(few, out[[3, 23]], rtol=1e-9, atol=1e-12)
    loss = cross_entropy(out[data.train_mask], data.y[data.train_mask])
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    expected = dict(zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True))
    for estimator in (lmc.FullBatch(), lmc.LMC(0.4)):
        bound(estimator, model, graph).backward(graph.batch(range(graph.num_nodes)))
        found = {name: p.grad.clone() for name, p in trained.items()}
        model.zero_grad()
        assert max(distance(found, expected).values()) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("of_edges", ["undirected", "directed"])
@pytest.mark.parametrize("kind", LINEAR)
def test_settled_lmc_averages_to_the_gradient(kind, of_edges):
    graph, (model, _) = lmc.Graph.from_pyg(typed(of_edges)), model_of(kind, depth=3)
    _, expected = full_gradient(model, graph)
    found = settled(bound(lmc.LMC(alpha=0), model, graph), graph)
    assert max(distance(found, expected).values()) < 1e-8
    exact = [gradient(bound(lmc.BackwardSGD(), model, graph), batch)[1] for batch in four_of(graph)]
    mean = {name: sum(each[name] for each in exact) / 4 for name in expected}
    assert max(distance(mean, expected).values()) < 1e-8


def four_of(graph):
    quarter = graph.num_nodes // 4
    return [graph.batch(range(start, start + quarter), scale=4.0) for start in range(0, 4 * quarter, quarter)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_long(IN_THE_TABLE, every=3))
def test_error_of_the_mean_gradient(kind):
    """The table of docs/models.md; `pytest -rP -k error_of_the_mean` prints it."""
    data, errors = graph_of("undirected").to_pyg(), {}
    data.edge_type = torch.randint(0, 3, (data.num_edges,), generator=torch.Generator().manual_seed(0))
    graph = lmc.Graph.from_pyg(data, num_classes=3)
    for name, estimator in {"LMC": lmc.LMC(alpha=0), "LMC 0.4": lmc.LMC(), "GAS": lmc.GAS()}.items():
        model, _ = model_of(kind, depth=3)
        _, full = full_gradient(model, graph)
        mean = settled(bound(estimator, model, graph), graph)
        flat = [torch.cat([g[n].flatten() for n in full]) for g in (mean, full)]
        errors[name] = float((flat[0] - flat[1]).norm() / flat[1].norm())
    print(kind, {name: f"{error:.1e}" for name, error in errors.items()})
    assert errors["LMC"] < (1e-8 if kind in LINEAR else errors["GAS"])


def test_cluster_gcn_counts_within_the_batch():
    """The gradient of Cluster-GCN is PyG's on the part of the graph that the batch has."""
    data, nodes = typed("directed"), torch.tensor([2, 3, 5, 8, 9, 11, 14, 20])
    graph, (model, convs) = lmc.Graph.from_pyg(data), model_of("RGCNConv")
    part = data.subgraph(nodes)
    out = by_pyg(convs, part)
    loss = cross_entropy(out[part.train_mask], part.y[part.train_mask], reduction="sum")
    grads = torch.autograd.grad(loss / data.train_mask.sum(), list(model.parameters()))
    expected = dict(zip(dict(model.named_parameters()), grads, strict=True))
    _, found = gradient(bound(lmc.ClusterGCN(), model, graph), graph.batch(nodes))
    assert max(distance(found, expected).values()) < 1e-9


def test_the_stacked_adjacency_by_hand():
    data = typed("undirected")
    data.edge_type = (data.edge_index.sum(0)) % 3  # the same there and back
    graph = lmc.Graph.from_pyg(data)
    dense = torch.zeros(3, 24, 24, dtype=torch.float64)
    source, target = data.edge_index
    dense.index_put_((data.edge_type, target, source), torch.ones(len(source)).double(), accumulate=True)
    count = dense.sum(2, keepdim=True)
    for norm, wanted in {"typed sum": dense, "typed mean": dense / count.clamp(min=1)}.items():
        matrix, back = normalize(graph, norm), normalize_transposed(graph, norm)
        assert torch.allclose(matrix.to_dense().view(24, 3, 24), wanted.transpose(0, 1))
        assert torch.allclose(back.to_dense().view(24, 3, 24), wanted.permute(2, 0, 1))
        assert (back is matrix) == (norm == "typed sum")
        batch = graph.batch([3, 9, 1])
        inside = wanted[:, batch.nodes][:, :, batch.members].transpose(0, 1)
        assert torch.allclose(batch.block(norm).to_dense().view(3, 3, -1), inside)


def test_what_is_wrong_is_one_line():
    plain = lmc.Graph.from_pyg(multigraph("directed"))
    for kind in ("RGCNConv", "RGATConv", "RGCNConv, max"):
        with pytest.raises(lmc.GraphError, match=r"^edge_type: the graph has none; convolutions of typed"):
            lmc.predict(plain, model_of(kind)[0])
        data = lmc.Graph.from_pyg(typed("directed")).to_pyg()
        data.edge_type = data.edge_type + 3
        many = lmc.Graph.from_pyg(data)
        with pytest.raises(
            lmc.ArgumentError, match=r"^RG\w+: has num_relations=4; edge_type of the graph goes up to 6"
        ):
            lmc.predict(many, model_of(kind)[0])
    with pytest.raises(lmc.ArgumentError, match=r"FastRGCNConv\): aggr='max'; PyG's takes 'mean' and 'add'"):
        lmc.GNN([FastRGCNConv(5, 3, TYPES, aggr="max")])


# -- several types of nodes -----------------------------------------------------------------------


def library(widths=(3, 3)):
    data, generator = HeteroData(), torch.Generator().manual_seed(0)
    data["paper"].x = torch.randn(6, widths[0], generator=generator).double()
    data["paper"].y = torch.tensor([0, 1, 2, 0, 1, 2])
    data["paper"].train_mask = torch.tensor([1, 1, 1, 1, 0, 0]).bool()
    data["paper"].test_mask = ~data["paper"].train_mask
    data["author"].x = torch.randn(4, widths[1], generator=generator).double()
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2, 3, 3], [0, 1, 2, 3, 3]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[5, 1, 0], [1, 0, 4]])
    data["paper", "by", "author"].edge_index = torch.tensor([[4, 0, 1], [0, 0, 1]])
    return data


def test_a_graph_of_several_types_is_that_of_pyg():
    data = library()
    graph, one = lmc.Graph.from_pyg(data), data.to_homogeneous()
    wanted = lmc.Graph(one.edge_index, one.x, edge_type=one.edge_type)
    assert graph.adjacency.equal(wanted.adjacency)
    assert torch.equal(graph.edge_type, wanted.edge_type)
    assert torch.equal(graph.x, one.x)
    assert graph.y.tolist() == [0, 1, 2, 0, 1, 2, -1, -1, -1, -1]
    assert graph.train_mask.nonzero().flatten().tolist() == [0, 1, 2, 3]
    assert graph.test_mask.nonzero().flatten().tolist() == [4, 5]
    assert graph.id.tolist()[5:8] == ["paper:5", "author:0", "author:1"]
    split = {"train": {"paper": torch.tensor([5])}, "valid": {"paper": [0]}}
    again = lmc.Graph.from_pyg(data, split_idx=split)
    assert again.train_mask.nonzero().tolist() == [[5]]
    assert again.val_mask.nonzero().tolist() == [[0]]


def test_an_encoder_per_type_is_one_of_features_side_by_side():
    data = library(widths=(3, 2))
    data["place"].num_nodes = 2
    graph = lmc.Graph.from_pyg(data, by_type=True)
    encoder = nn.Linear(graph.num_features, 4, bias=False).double()
    per_type = encoder.weight.split([1 + 3, 1 + 2, 1], dim=1)
    wanted = [
        data["paper"].x @ per_type[0][:, 1:].T + per_type[0][:, 0],
        data["author"].x @ per_type[1][:, 1:].T + per_type[1][:, 0],
        per_type[2][:, 0].expand(2, -1),
    ]
    assert torch.allclose(encoder(graph.x), torch.cat(wanted))
    model = lmc.GNN([RGCNConv(4, 3, 3).double()], encoder=encoder)
    assert lmc.fit(graph, model, lmc.LMC(), parts=2, epochs=2).history[-1].loss > 0


def test_mistakes_in_several_types_are_one_line():
    rule = "types of nodes must have as many; by_type=True puts them side by side, for an encoder per type"
    with pytest.raises(lmc.GraphError) as caught:
        lmc.Graph.from_pyg(library(widths=(3, 2)))
    assert str(caught.value) == f"x: paper has 3, author has 2 features: {rule}"
    outside = library()
    outside["author", "writes", "paper"].edge_index[0, 2] = 4
    with pytest.raises(lmc.GraphError, match=r"edge_index\[0\]\[2\] = 4: node ids must be in 0\.\.3"):
        lmc.Graph.from_pyg(outside)
    short = library()
    short["paper"].y = torch.tensor([0, 1])
    with pytest.raises(
        lmc.GraphError, match=r"^paper\.y has shape \(2,\): must be 6 long, one per node of this"
    ):
        lmc.Graph.from_pyg(short)


# -- a real graph ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", [RGCNConv, FastRGCNConv, RGATConv])
def test_cora_by_small_batches_is_as_accurate_as_by_full_ones(kind, real, narrow):
    """Types are made up: by the parity of an edge's ends."""
    data = narrow(real("cora")).to_pyg()
    data.edge_type = data.edge_index.sum(0) % 2
    graph = lmc.Graph.from_pyg(data)

    def accuracy(estimator, **options):
        torch.manual_seed(0)
        second = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), kind(32, graph.num_classes, 2))
        model = lmc.GNN([kind(32, 32, 2), second])
        lmc.fit(graph, model, estimator, lr=1e-2, weight_decay=5e-4, **options)
        right = (lmc.predict(graph, model).argmax(1) == graph.y)[graph.test_mask]
        return float(right.double().mean())

    full = accuracy(lmc.FullBatch(), epochs=60)
    small = accuracy(lmc.LMC(), epochs=30, parts=20, parts_per_batch=5)
    print(f"{kind.__name__}: full batch {full:.3f}, LMC {small:.3f}")
    assert small > full - 0.03
