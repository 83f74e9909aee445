"""Exact inference, against autograd's own forward pass and against dense matrices."""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import lmc
from estimating import MODELS, gcn, gcnii, graph_of, perturbed
from lmc.data.normalization import propagated, sums_of
from lmc.nn.divided import OwnRows
from lmc.nn.inference import _Inference, evaluating
from strategies import graphs


def dense_gcn(graph, model):
    """relu(A h W + b) by dense matrices, with the running statistics of the norms."""
    a = lmc.normalize(graph).to_dense().double()
    h = graph.x.double()
    for place, layer in enumerate(model.layers):
        if place > 0:
            norm = layer.message.norm
            if isinstance(norm, torch.nn.BatchNorm1d):
                h = (h - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
            h = h.clamp(min=0)
        h = a @ h @ layer.linear.weight.T + layer.linear.bias
    return h


@pytest.mark.parametrize("kind", ["undirected", "directed"])
@pytest.mark.parametrize("rows_at_once", [1, 7, 1000])
@pytest.mark.parametrize("columns", [1, 4, 32])
def test_predictions_equal_those_by_dense_matrices(kind, rows_at_once, columns, monkeypatch):
    monkeypatch.setattr("lmc.nn.inference.COLUMNS", columns)  # a width of 6 is several blocks, or one
    graph = graph_of(kind)
    model = gcn(3, norm="batch", dropout=0.5)
    perturbed(model)
    model.train()
    prediction = lmc.predict(graph, model, rows_at_once)
    assert model.training
    assert torch.allclose(prediction, dense_gcn(graph, model).detach(), atol=1e-12)


class Together:
    """Processes that are threads: what each says is where all can read it."""

    def __init__(self, rank, said, barrier):
        self.rank, self.count, self._said, self._barrier = rank, len(said), said, barrier

    def gather(self, data):
        self._said[self.rank] = data
        self._barrier.wait()
        found = [each.clone() for each in self._said]
        self._barrier.wait()
        return found

    def exchange(self, data, sent, received):
        self._said[self.rank] = torch.split(data, sent)
        self._barrier.wait()
        found = [of_peer[self.rank].clone() for of_peer in self._said]
        self._barrier.wait()
        assert [len(each) for each in found] == received
        return torch.cat(found)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_a_process_holds_rows_of_its_shards_and_of_what_they_hear(kind, count):
    graph, model = graph_of(kind), gcn(3, norm="batch")
    perturbed(model)
    n = graph.num_nodes
    shards = torch.arange(n) * 7 % 4
    expected = dense_gcn(graph, model).detach()
    a = lmc.normalize(graph).to_dense()
    said, barrier = [None] * count, threading.Barrier(count, timeout=60)

    def work(rank):
        together = Together(rank, said, barrier)
        with torch.no_grad():
            division = OwnRows.of(graph, model, 3, shards, together)
            model_widths = model.widths(graph)
            rows = _Inference.on(division, model, model_widths).run()
            return division, rows.shape[0], division.of_all(rows)

    with evaluating(model), ThreadPoolExecutor(count) as pool:
        found = list(pool.map(work, range(count)))
    for rank, (division, held, predicted) in enumerate(found):
        assert torch.allclose(predicted, expected, atol=1e-12)
        assert torch.equal(predicted, lmc.predict(graph, model, 3, shards=shards))
        own = shards * count // 4 == rank
        heard = (a[own] != 0).any(dim=0) | own
        assert held == int(heard.sum())
        assert sorted(division.held.tolist()) == heard.nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: gcn(3, residual=True),
        lambda: gcnii(4, dropout=0.2),
        lambda: gcn(2, linear_in=True, linear_out=True),
    ],
)
def test_predictions_equal_the_models_own_forward(make):
    graph, model = graph_of("undirected"), make()
    with evaluating(model), torch.no_grad():
        expected = model(graph)
    assert torch.allclose(lmc.predict(graph, model, 5), expected, atol=1e-12)
    shards = torch.arange(graph.num_nodes) % 3
    assert torch.allclose(lmc.predict(graph, model, 5, shards=shards), expected, atol=1e-12)


@given(example=graphs(), rows=st.integers(1, 13))
def test_predictions_equal_the_forward_pass_on_any_graph(example, rows):
    graph = example.graph
    model = lmc.GCN(graph.num_features, 4, 3, layers=2).to(graph.x.dtype)
    with torch.no_grad():
        assert torch.allclose(lmc.predict(graph, model, rows), model(graph), atol=1e-5)


def test_evaluating_restores_every_module():
    model = gcn(2)
    model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == modes


def test_features_that_do_not_fit_are_one_line():
    graph = lmc.synthetic(nodes=50)
    with pytest.raises(lmc.ArgumentError, match="does not take the graph's 64 features"):
        lmc.predict(graph, lmc.GCN(5, 4, 3))


@pytest.mark.parametrize("name", MODELS)
def test_blocks_of_columns_change_no_prediction(name, monkeypatch):
    graph, model = graph_of("directed weighted"), MODELS[name](3).eval()
    monkeypatch.setattr("lmc.nn.inference.COLUMNS", 4)
    assert torch.allclose(lmc.predict(graph, model, 7), model(graph).detach(), atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_only_a_model_that_reads_its_input_later_says_so(name):
    """Others keep nothing of it, and encode no halo for it."""
    model = MODELS[name](3)
    assert model.reads_initial == (model.initial(torch.ones(2, 6)).shape[1] > 0)


def test_sums_of_features_that_are_known_change_no_prediction():
    graph, model = graph_of("undirected"), gcn(3)
    before = lmc.predict(graph, model)
    propagated(graph).add_(0.0)
    assert sums_of(graph, "gcn", graph.x, slice(None)).data_ptr() == propagated(graph).data_ptr()
    assert torch.equal(lmc.predict(graph, model), before)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that are made in this context, for as long as they live."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.count(tensor.untyped_storage())
        return out

    def count(self, storage):
        place, size = storage.data_ptr(), storage.nbytes()
        if place in self.known or size == 0:
            return
        self.known.add(place)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.forget, place, size)

    def forget(self, place, size):
        self.known.discard(place)
        self.now -= size


def test_a_gcn_is_evaluated_in_the_memory_of_one_matrix_and_a_part():
    graph = lmc.synthetic(nodes=4000, features=8)
    model = lmc.GCN(8, 256, graph.num_classes, layers=3, norm="batch")
    lmc.normalize(graph)
    expected = model.eval()(graph).detach()
    with LiveBytes() as live:
        found = lmc.predict(graph, model, rows_at_once=100)
    matrix = 4000 * 256 * 4
    assert torch.allclose(found, expected, atol=1e-5)
    assert matrix < live.peak < 1.35 * matrix  # with two at a time it would be twice as much
