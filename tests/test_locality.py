"""Own convolutions that look beyond a row's own messages are refused by the name of what they look at."""

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout
from torch_geometric.nn import MessagePassing, PairNorm, SAGEConv
from torch_geometric.utils import softmax

import lmc
from estimating import bound, distance, full_gradient, gradient, graph_of
from pyg_models import graph_with


class Own(MessagePassing):
    """The sum of the neighbours' vectors, mapped; pieces below change it."""

    def __init__(self, width, out, aggr="add"):
        super().__init__(aggr=aggr)
        self.in_channels = width
        self.linear = nn.Linear(width, out)

    def forward(self, x, edge_index):
        return self.linear(self.propagate(edge_index, x=x) + x[1])


class Weighted(Own):
    def forward(self, x, edge_index, edge_weight=None):
        weight = None if edge_weight is None else self.weights(edge_index, edge_weight)
        return self.linear(self.propagate(edge_index, x=x, weight=weight) + x[1])

    def weights(self, edge_index, weight):
        return weight

    def message(self, x_j, weight):
        return x_j if weight is None else weight[:, None] * x_j


# -- that look further ------------------------------------------------------------------------------


class SoftmaxBySource(Weighted):
    def weights(self, edge_index, weight):
        return softmax(weight, edge_index[0])


class WeightsOverTheirMean(Weighted):
    def weights(self, edge_index, weight):
        return weight / weight.mean()


class LogitsBySource(Own):
    def message(self, x_j, edge_index):
        return x_j * softmax(x_j.sum(1), edge_index[0])[:, None]


class MeanOfSources(Own):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + x[0].mean()


class NumberOfSources(Own):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) / len(x[0])


class NumberOfTargets(Own):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) / len(x[1])


class NumberOfEdges(Own):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) / edge_index.shape[1]


class LargestOfAll(Own):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) / x[0].abs().max()


class LargestFeature(Own):
    edge_dim = 2

    def forward(self, x, edge_index, edge_attr):
        return super().forward(x, edge_index) / edge_attr.abs().max()


class TwoHops(Own):
    def forward(self, x, edge_index):
        source = torch.cat([self.propagate(edge_index, x=x), x[0][len(x[1]) :]])
        return super().forward((source, x[1]), edge_index)


class TimesSent(Own):
    def forward(self, x, edge_index):
        sent = torch.bincount(edge_index[0], minlength=len(x[0])).clamp(min=1)
        return super().forward((x[0] / sent[:, None], x[1]), edge_index)


class PairNormOfSources(Own):
    def forward(self, x, edge_index):
        return super().forward((PairNorm()(x[0]), x[1]), edge_index)


class ByLocalNumber(Own):
    def __init__(self, width, out):
        super().__init__(width, out)
        self.table = nn.Embedding(50, width)

    def forward(self, x, edge_index):
        return super().forward((x[0] + self.table.weight[: len(x[0])], x[1]), edge_index)


class ByNumberOfTheTarget(Own):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + torch.arange(len(x[1]))[:, None]


class PlaceInTraining(Own):
    def message(self, x_j):
        return x_j * torch.linspace(1, 2, len(x_j))[:, None] if self.training else x_j


class LongestList(Own):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index) / torch.bincount(edge_index[1]).max()


class OfOtherFeatures(Own):
    edge_dim = 2

    def forward(self, x, edge_index, edge_attr):
        return super().forward(x, edge_index) + edge_attr.mean()


class ClosedGate(Own):
    """A mean over all sources behind a gate that is closed at first."""

    def __init__(self, width, out):
        super().__init__(width, out)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + self.gate * x[0].mean()


class DropsByPlace(Own):
    """Dropout is fine, the place of an edge is not."""

    def message(self, x_j):
        return dropout(x_j, 0.5, self.training) * torch.linspace(1, 2, len(x_j))[:, None]


class Again(Own):
    calls = 0

    def forward(self, x, edge_index):
        self.calls += 1
        return super().forward(x, edge_index) + self.calls


FURTHER = {
    SoftmaxBySource: "the weights of other edges",
    WeightsOverTheirMean: "the weights of other edges",
    LogitsBySource: "what other rows receive",
    MeanOfSources: "the values of other nodes",
    NumberOfSources: "the number of sources",
    NumberOfTargets: "the number of targets",
    NumberOfEdges: "the number of other edges",
    LargestOfAll: "the values of other nodes",
    LargestFeature: "the features of other edges",
    TwoHops: "the values of other nodes",
    TimesSent: "what other rows receive",
    PairNormOfSources: "the values of other nodes",
    ByLocalNumber: "the numbering of the sources",
    ByNumberOfTheTarget: "the numbering of the targets",
    PlaceInTraining: "the order of edges, in training mode",
    LongestList: "the number of other edges",
    OfOtherFeatures: "the features of other edges",
    ClosedGate: "the values of other nodes",
    DropsByPlace: "the order of edges",
}


@pytest.mark.parametrize("kind", FURTHER)
def test_what_looks_beyond_its_messages_is_refused(kind):
    with pytest.raises(lmc.ArgumentError) as error:
        lmc.GNN([nn.Sequential(nn.ReLU(), kind(5, 6))], in_features=5)
    expected = f"layers[0] ({kind.__name__}): mixes nodes: a row depends on {FURTHER[kind]}"
    assert str(error.value) == expected


def test_what_changes_from_call_to_call_is_refused():
    with pytest.raises(lmc.ArgumentError, match=r"\(Again\): gives something else when it is called again"):
        lmc.GNN([Again(5, 6)])


# -- that do not ------------------------------------------------------------------------------------


class ByTarget(Weighted):
    def weights(self, edge_index, weight):
        return softmax(weight, edge_index[1])


class OfBothEnds(Own):
    def message(self, x_i, x_j):
        return torch.tanh(x_i - x_j)


class DegreeOfTarget(Own):
    def forward(self, x, edge_index):
        degree = torch.bincount(edge_index[1], minlength=len(x[1])).clamp(min=1)
        return super().forward(x, edge_index) / degree[:, None]


class OfItsFeatures(Own):
    edge_dim = 2

    def forward(self, x, edge_index, edge_attr):
        return self.linear(self.propagate(edge_index, x=x, edge_attr=edge_attr) + x[1])

    def message(self, x_j, edge_attr):
        return x_j * edge_attr.sum(1, keepdim=True)


class Dropping(Own):
    """By a function with a rate of its own, and dropped nodes."""

    def forward(self, x, edge_index):
        kept = torch.rand(len(x[0]), 1) < 0.6 if self.training else torch.ones(len(x[0]), 1)
        return super().forward((dropout(x[0], 0.3, self.training) * kept, x[1]), edge_index)


WITHIN = [Own, Weighted, ByTarget, OfBothEnds, DegreeOfTarget, OfItsFeatures]


def by_hand(convs, graph):
    """The gradient of the whole graph in one call of each convolution."""
    data = graph.to_pyg()
    z = data.x
    for place, conv in enumerate(convs):
        given = {}
        if isinstance(conv, Weighted):
            given = {"edge_weight": data.edge_weight}
        elif isinstance(conv, OfItsFeatures):
            given = {"edge_attr": data.edge_attr}
        z = conv((z, z), data.edge_index, **given)
        z = z if place else z.tanh()
    nn.functional.cross_entropy(z[graph.train_mask], graph.y[graph.train_mask]).backward()
    return [p.grad.clone() for conv in convs for p in conv.parameters()]


@pytest.mark.parametrize("kind", WITHIN)
def test_what_does_not_has_the_gradient_of_the_whole_graph(kind):
    torch.manual_seed(0)
    convs = [kind(5, 6).double(), kind(6, 3).double()]
    graph = graph_with()
    expected = by_hand(convs, graph)
    model = lmc.GNN([convs[0], nn.Sequential(nn.Tanh(), convs[1])])
    _, full = full_gradient(model, graph)
    named = {name: g for (name, _), g in zip(model.named_parameters(), expected, strict=True)}
    assert max(distance(full, named).values()) < 1e-9
    whole = lmc.predict(graph, model)
    assert torch.allclose(lmc.predict(graph, model, rows_at_once=5), whole, rtol=1e-9)


def test_dropout_of_its_own_is_no_reason():
    graph, model = graph_of("undirected"), lmc.GNN([Dropping(5, 3)]).double()
    loss, _ = gradient(bound(lmc.GAS(), model, graph), graph.batch([0]))
    assert loss > 0


# -- node by node -----------------------------------------------------------------------------------


class CentredInTraining(nn.Module):
    def forward(self, x):
        return x - x.mean(0) if self.training else x


class NumberOfRows(nn.Module):
    def forward(self, x):
        return x / len(x)


class LargestOfRows(nn.Module):
    def forward(self, x):
        return x / x.abs().max()


class PlaceOfTheRow(nn.Module):
    def forward(self, x):
        return x + torch.arange(len(x))[:, None]


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (CentredInTraining(), "the values of other rows, in training mode"),
        (NumberOfRows(), "the number of rows"),
        (LargestOfRows(), "the values of other rows"),
        (PlaceOfTheRow(), "the order of rows"),
    ],
)
@pytest.mark.parametrize("where", ["encoder", "layers[1], before the convolution", "head"])
def test_what_comes_between_works_row_by_row(module, what, where):
    parts = {"layers": [SAGEConv(5, 6), SAGEConv(6, 3)]}
    if where in ("encoder", "head"):
        parts[where] = module
    else:
        parts["layers"][1] = nn.Sequential(module, SAGEConv(6, 3))
    with pytest.raises(lmc.ArgumentError) as error:
        lmc.GNN(**parts)
    assert str(error.value) == f"{where}: {type(module).__name__} mixes nodes: a row depends on {what}"


# -- no trace ---------------------------------------------------------------------------------------


class Counting(Own):
    """Keeps a running mean, and has a gate that starts at zero."""

    def __init__(self, width, out):
        super().__init__(width, out)
        self.register_buffer("seen", torch.zeros(1))
        self.gate = nn.Parameter(torch.zeros(3))

    def forward(self, x, edge_index):
        self.seen += x[0].detach().mean()
        return super().forward(x, edge_index) + self.gate.sum()


def test_the_trial_leaves_no_trace():
    conv, norm = Counting(5, 6), nn.BatchNorm1d(6)
    second = nn.Sequential(norm, nn.ReLU(), nn.Dropout(0.5), SAGEConv(6, 3, aggr="max"))
    before = torch.get_rng_state()
    model = lmc.GNN([conv, second])
    graph = graph_of("undirected", dtype=torch.float32)
    lmc.LMC().bind(model, graph)
    assert not conv.seen.any()
    lmc.predict(graph, model)
    assert torch.equal(torch.get_rng_state(), before)
    assert not conv.gate.any()
    assert not norm.running_mean.any()
    assert all(module.training for module in model.modules())


# -- on a real graph --------------------------------------------------------------------------------


class FewAreFine(Own):
    """Ten nodes do not show it."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + (x[0].mean() if len(x[0]) > 20 else 0.0)


class FewRowsAreFine(nn.Module):
    def forward(self, x):
        return x - x.mean(0) if len(x) > 20 else x


@pytest.mark.parametrize("use", [lambda g, m: lmc.predict(g, m), lambda g, m: lmc.LMC().bind(m, g)])
def test_what_ten_nodes_do_not_show_is_found_on_the_graph(use):
    graph = graph_of("undirected", nodes=200)
    with pytest.raises(
        lmc.ArgumentError, match=r"layers\[0\] \(FewAreFine\): gives a node other rows in a batch"
    ):
        use(graph, lmc.GNN([FewAreFine(5, 3)]).double())
    with pytest.raises(lmc.ArgumentError, match=r"head: gives a node other rows in a batch of 4 nodes"):
        use(graph, lmc.GNN([Own(5, 3)], head=FewRowsAreFine()).double())


class LookedUp(nn.Module):
    """The first column is a place in a table, as it hardly ever is in what is made up."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 4)

    def forward(self, x):
        return torch.cat([self.table(x[:, 0].long()), x[:, 1:]], 1)


def test_what_only_real_features_fit_is_tried_on_them():
    data = graph_of("directed").to_pyg()
    data.x[:, 0] = torch.arange(36) % 3
    graph, encoder, conv = lmc.Graph.from_pyg(data), LookedUp().double(), SAGEConv(8, 3).double()
    found = lmc.predict(graph, lmc.GNN([conv], encoder=encoder, in_features=5))
    assert torch.allclose(found, conv(encoder(data.x), data.edge_index), rtol=1e-9)
    with pytest.raises(lmc.ArgumentError, match=r"head: LookedUp: raised IndexError: .*out of range"):
        lmc.GNN([SAGEConv(5, 5)], head=LookedUp())


class LargestBatch(Own):
    """Remembers the most messages that it was ever given."""

    most = 0

    def forward(self, x, edge_index):
        self.most = max(self.most, edge_index.shape[1])
        return super().forward(x, edge_index)


def test_the_check_on_the_graph_leaves_out_hubs_where_there_are_others():
    hub = torch.stack([torch.arange(1, 1000), torch.zeros(999, dtype=torch.long)])
    graph = lmc.Graph(torch.cat([hub, hub.flip(0)], 1), torch.ones(1000, 5), torch.arange(1000) % 3)
    model = lmc.GNN([LargestBatch(5, 3)])
    model.widths(graph)
    assert 0 < model.layers[0].conv.most < 999
