"""Repeated edges and self-loops: the numbers of PyG, on the edges as they were given."""

from itertools import product

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import EdgeConv, GATConv, GCNConv, GINConv, GraphConv, SAGEConv

import lmc
from estimating import bound, distance, full_gradient, gradient, settled
from lmc.data.edges import in_both_directions
from lmc.data.normalization import normalize, normalize_transposed
from lmc.data.subgraph import subgraph
from lmc.training.state_check import fingerprint


def multigraph(kind, nodes=24, seed=0):
    """PyG's data in no order: many edges twice or more, self-loops too, each with its own weight."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, nodes - 1, (2, 3 * nodes))  # the last node has no edges
    loops = np.tile(rng.integers(0, nodes - 1, 5), (2, 1))
    ends = np.concatenate([ends, loops, loops[:, :3], ends[:, :nodes], ends[:, : nodes // 2]], axis=1)
    weight, attr = rng.uniform(0.2, 2.0, ends.shape[1]), rng.normal(size=(ends.shape[1], 2))
    if "undirected" in kind:
        ends = np.sort(ends, axis=0)
        ends, weight = np.concatenate([ends, ends[::-1]], axis=1), np.tile(weight, 2)
        attr = np.tile(attr, (2, 1))
    else:
        order = rng.permutation(ends.shape[1])
        ends, weight, attr = ends[:, order], weight[order], attr[order]
    data = Data(torch.tensor(rng.normal(size=(nodes, 5))), torch.tensor(ends))
    data.y = torch.tensor(rng.integers(0, 3, nodes))
    data.train_mask = torch.tensor(rng.integers(0, 3, nodes) > 0)
    if "weighted" in kind:
        data.edge_weight = torch.tensor(weight)
    if "features" in kind:
        data.edge_attr = torch.tensor(attr)
    return data


KINDS = ["undirected", "directed", "undirected weighted", "directed weighted"]
FEATURES = ["undirected features", "directed weighted features"]


def network(width, out):
    return nn.Sequential(nn.Linear(width, out), nn.Tanh())


LINEAR = {
    "GCN": GCNConv,
    "GCN without loops": lambda *s: GCNConv(*s, add_self_loops=False),
    "GIN": lambda *s: GINConv(network(*s)),
    "SAGE mean": SAGEConv,
    "SAGE sum": lambda *s: SAGEConv(*s, aggr="sum"),
}
OTHER = {
    "SAGE max": lambda *s: SAGEConv(*s, aggr="max"),
    "GAT": GATConv,
    "GraphConv": GraphConv,
    "GraphConv mean": lambda *s: GraphConv(*s, aggr="mean"),
    "GraphConv max": lambda *s: GraphConv(*s, aggr="max"),
    "EdgeConv": lambda width, out: EdgeConv(network(2 * width, out)),
}
OF_EDGES = {"GAT of edges": lambda *s: GATConv(*s, edge_dim=2)}
EVERY = LINEAR | OTHER | OF_EDGES
CASES = [*product(LINEAR | OTHER, KINDS), *product(OF_EDGES, FEATURES)]


def model_of(kind):
    torch.manual_seed(0)
    first, second = EVERY[kind](5, 6).double(), EVERY[kind](6, 3).double()
    return lmc.GNN([first, nn.Sequential(nn.ReLU(), second)]), (first, second)


def by_pyg(convs, data):
    z = data.x
    for place, conv in enumerate(convs):
        given = {}
        if isinstance(conv, GCNConv | GraphConv):
            given["edge_weight"] = data.get("edge_weight")
        if getattr(conv, "edge_dim", None) is not None:
            given["edge_attr"] = data.get("edge_attr")
        z = conv(z.relu() if place else z, data.edge_index, **given)
    return z


@pytest.mark.parametrize(("kind", "of_edges"), CASES)
def test_predictions_and_gradients_are_those_of_pyg(kind, of_edges):
    data = multigraph(of_edges)
    graph = lmc.Graph.from_pyg(data)
    assert graph.num_edges == data.num_edges
    model, convs = model_of(kind)
    out = by_pyg(convs, data)
    for rows in (7, 1 << 14):
        assert torch.allclose(lmc.predict(graph, model, rows_at_once=rows), out, rtol=1e-9, atol=1e-12)
    few = lmc.predict(graph, model, nodes=[3, 23])
    assert torch.allclose(few, out[[3, 23]], rtol=1e-9, atol=1e-12)
    loss = cross_entropy(out[data.train_mask], data.y[data.train_mask])
    parameters = dict(model.named_parameters())
    expected = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    for estimator in (lmc.FullBatch(), lmc.LMC(0.4)):
        _, found = gradient(bound(estimator, model, graph), graph.batch(range(graph.num_nodes)))
        assert max(distance(found, expected).values()) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("of_edges", ["undirected weighted", "directed"])
@pytest.mark.parametrize("kind", LINEAR)
def test_settled_lmc_averages_to_the_gradient(kind, of_edges):
    graph = lmc.Graph.from_pyg(multigraph(of_edges))
    model, _ = model_of(kind)
    _, expected = full_gradient(model, graph)
    found = settled(bound(lmc.LMC(alpha=0), model, graph), graph)
    assert max(distance(found, expected).values()) < 1e-8


def test_the_transpose_of_an_undirected_one_is_itself():
    for of_edges in KINDS:
        graph = lmc.Graph.from_pyg(multigraph(of_edges))
        assert graph.is_undirected == of_edges.startswith("undirected")
        assert (normalize_transposed(graph) is normalize(graph)) == graph.is_undirected
        assert torch.equal(normalize_transposed(graph).to_dense(), normalize(graph).to_dense().T)


def test_weights_in_another_order_on_the_way_back_are_not_the_same():
    """As sums they are; message by message they are not."""
    graph = lmc.Graph([[0, 0, 1, 1], [1, 1, 0, 0]], edge_weight=[1.0, 2.0, 2.0, 1.0])
    assert not graph.is_undirected
    assert graph.edge_weight.tolist() == [2.0, 1.0, 1.0, 2.0]
    assert graph.transposed.values.tolist() == [1.0, 2.0, 2.0, 1.0]


def test_they_are_kept_wherever_a_graph_goes(tmp_path):
    data = multigraph("directed weighted features")
    data.edge_type = torch.arange(data.num_edges) % 4
    graph = lmc.Graph.from_pyg(data)
    order = np.lexsort(data.edge_index.numpy())  # by target, source, and then as given
    assert torch.equal(graph.to_pyg().edge_index, data.edge_index[:, order])
    for name in ("edge_weight", "edge_attr", "edge_type"):
        assert torch.equal(getattr(graph, name), data[name][order]), name
    graph.save(tmp_path / "folder")
    adjacency = graph.adjacency
    arrays = {"indptr": adjacency.indptr, "indices": adjacency.indices, "x": graph.x, "y": graph.y}
    arrays |= {name: data[name][order] for name in ("edge_weight", "edge_attr", "edge_type")}
    arrays["train_mask"] = graph.train_mask
    np.savez(tmp_path / "file.npz", **arrays)
    again = [
        lmc.Graph.open(tmp_path / "folder"),
        lmc.load(tmp_path / "file.npz"),
        lmc.Graph.from_pyg(graph.to_pyg()),
        subgraph(graph, range(graph.num_nodes)),
    ]
    assert {fingerprint(each) for each in again} == {fingerprint(graph)}
    graph.edge_type[0] += 1
    assert fingerprint(graph) != fingerprint(again[0])


def test_a_part_has_the_messages_among_its_nodes():
    data = multigraph("directed weighted features")
    data.edge_type = torch.arange(data.num_edges) % 4
    nodes = [9, 2, 17, 4, 11, 3]
    part = subgraph(lmc.Graph.from_pyg(data), nodes)
    wanted = [
        (nodes.index(target), nodes.index(source), edge)
        for edge, (source, target) in enumerate(data.edge_index.T.tolist())
        if source in nodes and target in nodes
    ]
    target, source, edge = torch.tensor(sorted(wanted)).T
    assert torch.equal(part.to_pyg().edge_index, torch.stack([source, target]))
    for name in ("edge_weight", "edge_attr", "edge_type"):
        assert torch.equal(getattr(part, name), data[name][edge]), name


@pytest.mark.parametrize("heavy", [0, 1])
def test_metis_counts_a_repeated_edge_as_often(heavy):
    """A ring of four, two opposite edges of which are there nine times: these are not cut."""
    ring = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    ends = np.concatenate([ring, *[ring[:, heavy::2]] * 8], axis=1)
    graph = lmc.Graph(np.concatenate([ends, ends[::-1]], axis=1))
    clusters = lmc.partition(graph, 2, cache=False).tolist()
    assert clusters[heavy] == clusters[heavy + 1] != clusters[heavy + 2]


node, one_of_three = st.integers(0, 3), st.integers(0, 2)
edges = st.lists(st.tuples(node, node, st.integers(1, 9), one_of_three), max_size=9)


@pytest.mark.filterwarnings("ignore:.*another weight there than back", "ignore:.*repeats? an edge")
@given(edges)
def test_in_both_directions_by_hand(given_edges):
    """The first from i to j and the first from j to i are one edge, of the larger weight; and so on."""
    weights = {}
    for source, target, weight, kind in given_edges:
        weights.setdefault((source, target, kind), []).append(weight)
    wanted = {}
    for i, j, kind in [*weights, *((j, i, kind) for i, j, kind in weights)]:
        one, other = weights.get((i, j, kind), []), weights.get((j, i, kind), [])
        longest = max(len(one), len(other))
        padded = [each + [0] * (longest - len(each)) for each in (one, other)]
        wanted[i, j, kind] = [max(pair) for pair in zip(*padded, strict=True)]
    source, target, weight, kind = np.array(given_edges, dtype=np.int64).reshape(-1, 4).T
    found = {}
    for i, j, of_edge, of_kind in zip(*in_both_directions(source, target, weight, 4, kind), strict=True):
        found.setdefault((i, j, of_kind), []).append(of_edge)
    assert found == wanted


def test_weights_that_differ_there_and_back_are_counted(tmp_path):
    (tmp_path / "edges.csv").write_text(
        "source,target,weight,edge_type\na,b,1,0\nb,a,5,0\nb,a,5,1\na,c,2,0\n"
    )
    with pytest.warns(UserWarning, match="^1 edges have another weight there than back; the larger"):
        graph = lmc.read_tables(tmp_path / "edges.csv", undirected=True)
    assert graph.is_undirected
    assert (graph.num_edges, sorted(graph.edge_weight.tolist())) == (6, [2, 2, 5, 5, 5, 5])


@pytest.mark.filterwarnings("ignore:.*another weight there than back", "ignore:.*repeats? an edge")
def test_a_table_of_edges_with_types(tmp_path):
    rows = ["source,target,edge_type,weight", "0,1,2,5", "0,1,2,3", "1,0,2,4", "1,2,0,1"]
    (tmp_path / "edges.csv").write_text("\n".join(rows))
    graph = lmc.read_tables(tmp_path / "edges.csv")
    assert graph.to_pyg().edge_index.tolist() == [[1, 0, 0, 1], [0, 1, 1, 2]]
    assert (graph.edge_type.tolist(), graph.edge_weight.tolist()) == ([2, 2, 2, 0], [4.0, 5.0, 3.0, 1.0])
    both = lmc.read_tables(tmp_path / "edges.csv", undirected=True)
    assert both.is_undirected
    assert both.to_pyg().edge_index.tolist() == [[1, 1, 0, 0, 2, 1], [0, 0, 1, 1, 1, 2]]
    assert (both.edge_type.tolist(), both.edge_weight.tolist()) == ([2, 2, 2, 2, 0, 0], [5, 3, 5, 3, 1, 1])


def test_rows_that_repeat_an_edge_are_counted(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,a\nb,c\nb,c\nb,c\n")
    with pytest.warns(UserWarning, match="^2 rows repeat an edge in the same direction"):
        graph = lmc.read_tables(tmp_path / "edges.csv", undirected=True)
    assert graph.num_edges == 8


def test_a_multigraph_of_networkx():
    made = networkx.MultiGraph()
    made.add_edges_from([(0, 1, {"weight": 2.0}), (1, 0, {"weight": 3.0}), (1, 1, {}), (1, 1, {})])
    graph = lmc.Graph.from_networkx(made, features=None, label=None)
    assert graph.is_undirected
    assert graph.to_pyg().edge_index.tolist() == [[1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1]]
    assert graph.edge_weight.tolist() == [2.0, 3.0, 2.0, 3.0, 1.0, 1.0]
