import hashlib

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn.models import GCN, MLP

import lmc
from commands import called, fails
from lmc.data.synthetic import write_synthetic
from lmc.data.synthetic_blocks import SyntheticBlocks


def digest(graph):
    h = hashlib.sha256()
    for array in (graph.adjacency.indptr, graph.adjacency.indices, graph.x, graph.y, graph.train_mask):
        h.update(array.numpy().tobytes())
    return h.hexdigest()[:16]


def test_the_same_graph_on_every_machine():
    assert digest(lmc.synthetic(nodes=1000, seed=0)) == "07cde79228e02794"
    assert digest(lmc.synthetic(nodes=1000, seed=1)) == "70be744c04f58727"


def test_sizes_are_parameters():
    graph = lmc.synthetic(nodes=5000, degree=20, classes=4, features=7)
    assert graph.num_nodes == 5000
    assert (graph.num_classes, graph.num_features) == (4, 7)
    assert 0.8 * 20 < graph.num_edges / 5000 <= 20
    assert graph.is_undirected
    assert graph.edge_weight is None
    assert graph.adjacency.without_diagonal() is graph.adjacency
    shares = [m.double().mean().item() for m in (graph.train_mask, graph.val_mask, graph.test_mask)]
    assert shares == pytest.approx([0.5, 0.2, 0.3], abs=0.01)


def test_degrees_follow_a_power_law():
    degree = lmc.synthetic(nodes=50_000, features=1).adjacency.row_lengths().numpy()
    assert degree.max() > 20 * degree.mean()
    # Of a tail P(d > t) ~ t^-2, a quarter remains where t doubles.
    tails = [(degree > t).mean() for t in (20, 40)]
    assert 0.15 < tails[1] / tails[0] < 0.35


def test_communities_are_nested_in_classes():
    graph = lmc.synthetic(nodes=4000)
    a = graph.adjacency
    same_class = (graph.y[a.row_ids()] == graph.y[a.indices]).double().mean()
    assert 0.45 < same_class < 0.75
    clusters = lmc.partition(graph, 40)
    assert lmc.reserved_messages(graph, clusters)["ClusterGCN"].forward > 0.45
    # A cluster found in the edges alone is mostly of one class.
    purity = [torch.bincount(graph.y[clusters == c]).max() / (clusters == c).sum() for c in range(40)]
    assert np.mean(purity) > 0.6


@pytest.mark.slow
def test_a_gcn_gains_clearly_over_an_mlp():
    graph = lmc.synthetic(nodes=5000)
    data = graph.to_pyg()

    def accuracy(model, *inputs):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(60):
            optimizer.zero_grad()
            cross_entropy(model(*inputs)[data.train_mask], data.y[data.train_mask]).backward()
            optimizer.step()
        model.eval()
        right = model(*inputs).argmax(1) == data.y
        return right[data.test_mask].double().mean().item()

    torch.manual_seed(0)
    gcn = accuracy(GCN(64, 64, 2, 10, dropout=0.5), data.x, data.edge_index)
    mlp = accuracy(MLP([64, 64, 10], dropout=0.5, norm=None), data.x)
    print(f"GCN {gcn:.1%}, MLP {mlp:.1%}")
    assert gcn > mlp + 0.25
    assert gcn > 0.7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 1}, "nodes=1: must be 2 or more"),
        ({"classes": 0}, "classes=0: must be 1 or more"),
        ({"features": 0}, "features=0: must be 1 or more"),
        ({"nodes": 10, "degree": 10}, "degree=10: must be 0 or more, and less than nodes=10"),
        ({"nodes": 5, "degree": 2, "classes": 6}, "classes=6: must not exceed nodes=5"),
    ],
)
def test_impossible_sizes_are_named(arguments, message):
    with pytest.raises(lmc.ArgumentError) as caught:
        lmc.synthetic(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("nodes", [2, 3, 10, 99, 101])
def test_every_node_of_a_small_graph_has_a_role(nodes):
    graph = lmc.synthetic(nodes=nodes, degree=1, classes=2, features=1)
    assert graph.num_nodes == nodes
    assert int((graph.train_mask | graph.val_mask | graph.test_mask).sum()) == nodes


@pytest.mark.parametrize("sizes", [{}, {"nodes": 3000, "degree": 7.5, "classes": 3, "seed": 2}])
def test_a_folder_holds_the_same_bytes(tmp_path, monkeypatch, sizes):
    """Made in pieces and buckets, all of them much smaller than the graph."""
    sizes = {"nodes": 500, "degree": 4, "classes": 10, "features": 3, "seed": 0} | sizes
    whole = lmc.synthetic(**sizes)
    whole.save(tmp_path / "whole")
    monkeypatch.setattr("lmc.data.synthetic_blocks.PIECE", 100)
    monkeypatch.setattr("lmc.data.synthetic.PIECE", 100)
    monkeypatch.setattr("lmc.data.sorted_edges.BUCKET_EDGES", 300)
    told = []
    write_synthetic(tmp_path / "streamed", SyntheticBlocks(**sizes), lambda *said: told.append(said))
    names = sorted(file.name for file in (tmp_path / "whole").glob("*.npy"))
    for name in names:
        streamed, saved = (tmp_path / each / name for each in ("streamed", "whole"))
        assert streamed.read_bytes() == saved.read_bytes(), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["streamed", "whole"]
    assert [what for what, done, total in told if done == total] == ["rows of neighbours", "features"]


def test_on_the_command_line(tmp_path):
    done = called("synthetic", "--nodes", "1e3", "--degree", "8", "--features", "4", "--out", tmp_path / "g")
    assert "1,000 nodes" in done.stdout
    made = lmc.synthetic(nodes=1000, degree=8, features=4)
    assert digest(lmc.load(tmp_path / "g")) == digest(made)
    assert "holds a graph already" in fails(2, "synthetic", "--out", tmp_path / "g", through=called)
    line = fails(2, "synthetic", "--nodes", "many", "--out", tmp_path / "h", through=called)
    assert "many: must be a whole number, such as 10000 or 10e6" in line
