"""Models of parts, put together by hand; and what cannot be put together."""

from functools import partial

import pytest
import torch
from torch import nn
from torch_geometric.nn import (
    FeaStConv,
    GATConv,
    GCN2Conv,
    GCNConv,
    GraphConv,
    JumpingKnowledge,
    NNConv,
    SAGEConv,
    models,
)

import lmc
from estimating import bound, distance, full_gradient, gradient, graph_of, settled
from lmc.nn.activation import Activation
from lmc.training.optimizers import parameter_groups
from pyg_models import graph_with, make


def test_linear_convolutions_without_a_fast_path_are_exact_too():
    """GraphConv has no path of its own: halo rows go through the convolution itself."""
    layers = [
        GraphConv(5, 6),
        nn.Sequential(nn.Tanh(), GraphConv(6, 6)),
        nn.Sequential(nn.Tanh(), GraphConv(6, 3)),
    ]
    graph, model = graph_of("directed weighted"), lmc.GNN(layers).double()
    _, expected = full_gradient(model, graph)
    assert max(distance(settled(bound(lmc.LMC(alpha=0), model, graph), graph), expected).values()) < 1e-8


def test_what_does_nothing_is_in_nobodys_way():
    """Sums of features are known in advance, and a norm and a ReLU are one, as without it."""
    nothing = nn.Identity()
    layers = [GCNConv(5, 6), nn.Sequential(nn.BatchNorm1d(6), nothing, nn.ReLU(), GCNConv(6, 3))]
    model = lmc.GNN(layers, encoder=nothing)
    assert model.encoder.is_identity
    assert model.layers[0].message.is_identity
    assert isinstance(model.layers[1].message, Activation)


# -- by hand ----------------------------------------------------------------------------------------


def test_gcnii_of_pyg_layers_equals_the_built_in():
    graph = graph_of("undirected weighted")
    own = lmc.GCNII(5, 6, 3, layers=3).double()
    convs = [GCN2Conv(6, 0.1, 0.5, layer).double() for layer in (1, 2, 3)]
    with torch.no_grad():
        for conv, layer in zip(convs, own.layers, strict=True):
            conv.weight1.copy_(layer.linear.weight.T)
    encoder = nn.Sequential(own.encoder.parts[1], nn.ReLU())
    head = nn.Sequential(nn.ReLU(), own.head.parts[1])
    layers = [convs[0], nn.Sequential(nn.ReLU(), convs[1]), nn.Sequential(nn.ReLU(), convs[2])]
    model = lmc.GNN(layers, encoder, head)
    assert torch.allclose(lmc.predict(graph, model), lmc.predict(graph, own), rtol=1e-9)
    _, expected = full_gradient(model, graph)
    assert max(distance(settled(bound(lmc.LMC(alpha=0), model, graph), graph), expected).values()) < 1e-8


class Doubling(nn.Module):
    """A convolution that is none of PyG's."""

    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index):
        source, target = x
        received = target.new_zeros(target.shape).index_add(0, edge_index[1], source[edge_index[0]])
        return self.linear(received + 2 * target)


def test_a_convolution_that_is_not_of_pyg_is_exact_too():
    graph, model = graph_of("undirected"), lmc.GNN([Doubling(5, 6), nn.Sequential(nn.ReLU(), Doubling(6, 3))])
    model = model.double()
    _, expected = full_gradient(model, graph)
    assert max(distance(settled(bound(lmc.LMC(alpha=0), model, graph), graph), expected).values()) < 1e-8


def test_jumps_may_have_several_widths_and_modules_may_work_in_place():
    graph = graph_of("undirected")
    first, second = SAGEConv(5, 4).double(), SAGEConv(4, 8).double()
    head = nn.Linear(12, 3).double()
    layers = [first, nn.Sequential(nn.ELU(inplace=True), second, nn.ELU(inplace=True))]
    model = lmc.GNN(layers, head=head, jump=JumpingKnowledge("cat"))
    data = graph.to_pyg()
    between = nn.functional.elu(first(data.x, data.edge_index))
    expected = head(torch.cat([between, nn.functional.elu(second(between, data.edge_index))], 1))
    for _ in range(2):
        assert torch.allclose(lmc.predict(graph, model), expected, rtol=1e-9)
    _, full = full_gradient(model, graph)
    assert max(distance(settled(bound(lmc.LMC(alpha=0), model, graph), graph), full).values()) < 1e-8


def test_every_dropout_has_a_mask_of_its_own():
    """Two in the encoder, one in a convolution, two in the head: a share of the product is left."""
    graph = graph_of("undirected", nodes=400)
    two = [nn.Dropout(0.5), nn.Identity(), nn.Dropout(0.5)]
    model = lmc.GNN([nn.Sequential(nn.Linear(5, 64), Doubling(64, 64))], head=nn.Sequential(*two)).double()
    kept = (model(graph) != 0).double().mean()
    assert 0.22 < float(kept) < 0.28


def test_a_convolution_of_unknown_edge_width_is_tried_when_there_is_a_graph():
    """NNConv takes features of edges and does not say how many: it is tried when there is a graph."""
    model = lmc.GNN([NNConv(5, 6, nn.Linear(2, 30)), nn.Sequential(nn.ReLU(), GATConv(6, 3))]).double()
    _, full = full_gradient(model, graph_with())
    assert all(g.isfinite().all() for g in full.values())
    with pytest.raises(lmc.ArgumentError, match="does not take the graph's 5 features"):
        lmc.LMC().bind(model, graph_of("undirected"))


def test_a_module_at_both_ends_is_trained_once():
    act = nn.PReLU()
    ends = nn.Sequential(nn.Linear(5, 8), act), nn.Sequential(act, nn.Linear(8, 3))
    groups = parameter_groups(lmc.GNN([SAGEConv(8, 8)], *ends), 0.0, 0.0)
    listed = [p for group in groups for p in group["params"]]
    assert len(listed) == len(set(listed))


def test_a_model_of_pyg_as_it_is_is_told_what_to_do():
    graph, model = graph_of("undirected"), make("GCN")
    for use in (lambda: lmc.predict(graph, model), lambda: lmc.fit(graph, model, lmc.FullBatch(), epochs=1)):
        with pytest.raises(lmc.ArgumentError, match=r"model: GCN is not an lmc model.*lmc.from_pyg"):
            use()


@pytest.mark.parametrize("estimator", [lmc.LMC, lmc.GraphFM, lmc.ClusterGCN, lmc.BackwardSGD])
@pytest.mark.parametrize("conv", [FeaStConv, partial(SAGEConv, aggr="median"), partial(SAGEConv, aggr="mul")])
def test_without_a_halo_and_without_messages(conv, estimator):
    """Node 34 has no neighbours, so there is neither; a row of it is the same alone and among all."""
    torch.manual_seed(0)
    graph, model = graph_of("undirected"), lmc.GNN([conv(5, 6), nn.Sequential(nn.ELU(), conv(6, 3))]).double()
    by_estimator = bound(estimator(), model, graph)
    for nodes in ([34], range(36), [34, 0]):
        loss, found = gradient(by_estimator, graph.batch(nodes))
        assert loss >= 0
        assert all(g.isfinite().all() for g in found.values())
    whole = lmc.predict(graph, model)
    for rows in (1, 5):
        assert torch.allclose(lmc.predict(graph, model, rows_at_once=rows), whole, rtol=1e-12)
    order = torch.arange(35, -1, -1)  # now the first node has no neighbours
    data = graph.to_pyg()
    turned = lmc.Graph(35 - data.edge_index, graph.x[order], graph.y[order], graph.train_mask[order])
    assert torch.allclose(lmc.predict(turned, model)[order], whole, rtol=1e-12)


# -- what cannot work -------------------------------------------------------------------------------


class Own(models.GCN):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index).mean(0)


class Pool(nn.Module):
    def forward(self, x):
        return x.mean(0, keepdim=True)


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Means(nn.Module):
    def forward(self, xs):
        return sum(x.mean(0, keepdim=True) for x in xs)


class LocalDegrees(Doubling):
    """The usual way to write a GCN, which is wrong on a part of a graph."""

    in_channels = 5

    def forward(self, x, edge_index):
        source, target = x
        degree = torch.bincount(edge_index[1], minlength=len(source)).clamp(min=1)[:, None]
        return super().forward((source / degree, target), edge_index)


class Square(nn.Module):
    """Takes one matrix only."""

    def forward(self, x, edge_index):
        return x.relu()


REFUSED = {
    "norm over the graph": (
        lambda: lmc.from_pyg(make("GCN", norm="GraphNorm")),
        "layers[1], before the convolution: GraphNorm mixes nodes: a row depends on the values of other rows",
    ),
    "layer norm over the graph": (
        lambda: lmc.from_pyg(make("GAT", norm="LayerNorm")),
        "layers[1], before the convolution: LayerNorm mixes nodes: a row depends on the values of other rows"
        """; PyG's takes a node by itself with norm_kwargs={"mode": "node"}""",
    ),
    "pooling": (
        lambda: lmc.GNN([SAGEConv(5, 6)], head=nn.Sequential(nn.ReLU(), Pool())),
        "head: Pool gives 1 rows for 10 nodes: it pools over the graph",
    ),
    "mixing": (
        lambda: lmc.GNN([SAGEConv(5, 6), nn.Sequential(Centred(), SAGEConv(6, 6))]),
        "layers[1], before the convolution: Centred mixes nodes",
    ),
    "no bipartite form": (
        lambda: lmc.GNN([nn.Sequential(nn.Linear(5, 6), Square())]),
        "layers[0] (Square): has no bipartite form, conv((x_source, x_target), edge_index)",
    ),
    "an LSTM over neighbours": (
        lambda: lmc.from_pyg(models.GraphSAGE(5, 6, 2, 3, aggr="lstm")),
        "layers[0] (SAGEConv): mixes nodes: a row depends on the order of edges",
    ),
    "no convolution": (
        lambda: lmc.GNN([nn.Linear(5, 6)]),
        "layers[0] (Linear): has no argument named edge_index",
    ),
    "two convolutions": (
        lambda: lmc.GNN([nn.Sequential(SAGEConv(5, 6), SAGEConv(6, 6))]),
        "layers[0]: SAGEConv, SAGEConv: must have one convolution, not 2",
    ),
    "no layers": (lambda: lmc.GNN([]), "layers=[]"),
    "another direction": (
        lambda: lmc.GNN([GCNConv(5, 6, flow="target_to_source")]),
        "layers[0] (GCNConv): flow='target_to_source'",
    ),
    "kept edges": (
        lambda: lmc.GNN([nn.Sequential(nn.Linear(5, 6), _cached())]),
        "layers[0] (GATConv): cached=True would keep the edges",
    ),
    "columns in parts": (
        lambda: lmc.GNN([GATConv(6, 6, decomposed_layers=2)]),
        "layers[0] (GATConv): decomposed_layers=2: PyG splits the columns of one matrix, not of a pair",
    ),
    "no shape yet": (lambda: lmc.GNN([SAGEConv(-1, 6)]), "has no shape yet; run the model once"),
    "a forward of its own": (lambda: lmc.from_pyg(Own(5, 6, 2, 3)), "model: Own has a forward of its own"),
    "another model": (
        lambda: lmc.from_pyg(nn.Linear(5, 6)),
        "model: Linear is none of torch_geometric's GCN, GraphSAGE, GIN, GAT, PNA, EdgeCNN; lmc.GNN",
    ),
    "a jump that pools": (
        lambda: lmc.GNN([SAGEConv(5, 6), SAGEConv(6, 6)], jump=Means()),
        "jump gives 1 rows for 10 nodes: it pools over the graph",
    ),
    "degrees of sources, counted in the batch": (
        lambda: lmc.GNN([LocalDegrees(5, 6)]),
        "layers[0] (LocalDegrees): mixes nodes: a row depends on the number of other edges",
    ),
    "no list": (lambda: lmc.GNN(SAGEConv(5, 6)), "layers: must be a list of modules"),
    "no modules": (lambda: lmc.GNN([torch.relu]), "layers: must be a list of modules"),
}


def _cached():
    conv = GATConv(6, 6)
    conv.cached = True
    return conv


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_at_the_door(case):
    made, message = REFUSED[case]
    with pytest.raises(lmc.ArgumentError) as error:
        made()
    assert str(error.value).startswith(message) or message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_module_of_unknown_width_is_refused_when_there_is_a_graph():
    model = lmc.GNN([nn.Sequential(Centred(), nn.ReLU(), Square())])
    with pytest.raises(lmc.ArgumentError, match="Centred mixes nodes"):
        lmc.LMC().bind(model, graph_of("undirected"))


def test_a_layer_of_another_width_is_an_error_of_ours():
    layers = [GCNConv(8, 16), GCNConv(32, 3)]
    with pytest.raises(lmc.ArgumentError, match=r"layers\[1\] \(GCNConv\): raised RuntimeError") as error:
        lmc.GNN(layers)
    assert type(error.value) is lmc.ArgumentError
