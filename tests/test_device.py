"""Everything that a run does on a device that is not the host, shown on one that does not exist.

`pretend.py` says what it does: it computes as the host does, and raises where devices are mixed, or where a
number is read outside of the places for it. Results are those of the host to rounding: only the sparse
products, the sums over all rows and dropout's masks are other operations there.
"""

from copy import deepcopy

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import lmc
from commands import called
from estimating import EVERY, gcn, gcnii, graph_of, mostly_long, sign
from fuzz_pyg import CONVOLUTIONS
from lmc import hashed_random
from lmc.batching.samplers import BatchOptions
from lmc.bench import doctor
from lmc.device import HOST, chosen_device, copied, on_host
from lmc.estimators.host_history import HostHistory
from lmc.kernels import plain
from pretend import PRETEND, MixedDevicesError, PretendTensor, ReadOnHostError, pretending, revealed
from pyg_models import graph_with

ALL = EVERY | {
    "FullBatch": lmc.FullBatch,
    "NeighborSampling": lambda: lmc.NeighborSampling(fanouts=[2], batch_size=8),
    "VRGCN": lambda: lmc.VRGCN(batch_size=8),
    "FastGCN": lambda: lmc.FastGCN(sizes=[10], batch_size=8),
    "LADIES": lambda: lmc.LADIES(sizes=[10], batch_size=8),
    "GraphSAINT": lambda: lmc.GraphSAINT(batch_size=8, coverage=3),
    "Spider": lambda: lmc.Spider(lmc.LMC(), every=2),
}


def wrapped(make, seed=0):
    torch.manual_seed(seed)
    return lmc.from_pyg(make(5, 6, 2, 3).double())


MODELS = {
    "gcn": lambda: gcn(3, norm="batch", dropout=0.4),
    "gcn, input dropped": lambda: gcn(2, input_dropout=0.3, norm="layer", linear_out=True),
    "gcnii": lambda: gcnii(3, dropout=0.3),
    "sage": lambda: wrapped(lambda *sizes: pyg.GraphSAGE(*sizes, norm="BatchNorm", dropout=0.3, jk="cat")),
    "gin": lambda: wrapped(lambda *sizes: pyg.GIN(*sizes, train_eps=True)),
    "gat": lambda: wrapped(lambda *sizes: pyg.GAT(*sizes, heads=2)),
    "edge": lambda: wrapped(pyg.EdgeCNN),
}


def steps(estimator, model, graph, epochs=2, **options):
    """Losses and gradients of the first steps, as fit has them: prepared in the background."""
    estimator.bind(model, graph, **options)
    sampler = estimator.make_sampler(graph, BatchOptions(parts=4, parts_per_batch=2))
    found = []
    for epoch in range(epochs):
        for batch in lmc.prefetch(sampler.epoch(epoch), estimator.prepare):
            model.zero_grad()
            loss = estimator.backward(batch)
            found.append((loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    return found


def check_alike(there, here):
    assert len(there) == len(here) > 0
    for (loss, gradients), (expected, others) in zip(there, here, strict=True):
        assert loss == pytest.approx(expected, rel=1e-11)
        assert gradients.keys() == others.keys()
        for name, other in others.items():
            assert isinstance(gradients[name], PretendTensor)
            torch.testing.assert_close(revealed(gradients[name]), other, rtol=1e-9, atol=1e-11)


# -- the device itself ---------------------------------------------------------------------------


def test_mixing_and_reading_raise():
    with pretending():
        there, here = torch.ones(3).to("pretend"), torch.ones(3)
        assert there.device == PRETEND
        for mix in (lambda: there + here, lambda: there[torch.tensor([0])], lambda: here.add_(there)):
            with pytest.raises(MixedDevicesError):
                mix()
        for read in (lambda: float(there.sum()), there.cpu, lambda: bool(there.any()), there.sum().item):
            with pytest.raises(ReadOnHostError):
                read()
        for read in (there.numpy, there.tolist):  # which torch refuses of any such tensor
            with pytest.raises(RuntimeError, match="not supported for tensor subclasses"):
                read()
        assert float(on_host(there.sum())) == 3
        linear = torch.nn.Linear(3, 2)
        weight = linear.weight
        linear.to("pretend")
        assert linear.weight is weight
        assert linear(there).device == PRETEND


def test_a_place_that_forgets_the_device_is_found(monkeypatch):
    """Blocks that stay on the host, and a loss that is read by another way."""
    graph = graph_of("undirected")
    with pretending():
        monkeypatch.setattr("lmc.estimators.step.on_host", lambda values: values)
        with pytest.raises(ReadOnHostError, match=r"step\.py"):
            steps(lmc.GAS(), gcn(2), graph, device="pretend")
        monkeypatch.undo()
        monkeypatch.setattr("lmc.data.placed.PlacedBatch._copy", lambda self, block: block)
        with pytest.raises(MixedDevicesError):
            steps(lmc.GAS(), gcn(2), graph, device="pretend")


# -- steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "room"), [*((name, None) for name in ALL), *mostly_long([(name, 0) for name in ALL], 4)]
)
def test_every_estimator(name, room):
    """With all on the device, and where there is no room for histories and features."""
    graph, make = graph_of("directed weighted"), MODELS["gcn"]
    with pretending():
        there = steps(ALL[name](), make(), graph, device="pretend", room=room)
    check_alike(there, steps(ALL[name](), make(), graph))


@pytest.mark.parametrize(
    ("name", "method"),
    mostly_long(
        [
            (name, method)
            for name in MODELS
            for method in ("LMC found", "GraphFM", "ClusterGCN", "NeighborSampling", "BackwardSGD")
        ],
        6,
    ),
)
def test_every_model(name, method):
    graph = graph_of("undirected")
    with pretending():
        there = steps(ALL[method](), MODELS[name](), graph, epochs=1, device="pretend")
    check_alike(there, steps(ALL[method](), MODELS[name](), graph, epochs=1))


@pytest.mark.parametrize("method", ["LMC found", "NeighborSampling"])
@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if name != "GatedGraph"])
@pytest.mark.long
def test_every_convolution(name, method):
    """But one with a GRU: elsewhere than on the host torch has that in one piece, which the host lacks."""
    graph = graph_with()
    torch.manual_seed(0)
    layers = [CONVOLUTIONS[name](6, 6), torch.nn.Sequential(torch.nn.ELU(), CONVOLUTIONS[name](6, 6))]
    model = lmc.GNN(layers, torch.nn.Linear(5, 6), torch.nn.Linear(6, 3)).double()
    try:
        here = steps(ALL[method](), deepcopy(model), graph, epochs=1)
    except lmc.errors.ArgumentError:  # it is refused on any device
        return
    with pretending():
        check_alike(steps(ALL[method](), model, graph, epochs=1, device="pretend"), here)


def test_sign_and_weights_of_nodes():
    graph = graph_of("undirected")
    for room in (None, 0):
        with pretending():
            there = steps(
                lmc.Precomputed(batch_size=8), sign(2, dropout=0.3), graph, device=PRETEND, room=room
            )
        check_alike(there, steps(lmc.Precomputed(batch_size=8), sign(2, dropout=0.3), graph))

    def weighted(device):
        model, estimator = gcn(2), lmc.GAS()
        estimator.bind(model, graph, device=device)
        batch = graph.batch(range(12), scale=3.0, weights=np.linspace(0.5, 2, 12))
        return [(estimator.backward(batch), {name: p.grad for name, p in model.named_parameters()})]

    with pretending():
        there = weighted("pretend")
    check_alike(there, weighted(None))


def test_exact_histories_and_half_precision():
    graph, options = graph_of("undirected", dtype=torch.float32), {"init": "exact", "precision": "half"}
    with pretending():
        there = steps(lmc.LMC(), gcn(3, dtype=torch.float32), graph, device="pretend", **options)
    here = steps(lmc.LMC(), gcn(3, dtype=torch.float32), graph, **options)
    for (loss, found), (expected, others) in zip(there, here, strict=True):
        assert loss == pytest.approx(expected, rel=1e-4)
        for name, other in others.items():
            torch.testing.assert_close(revealed(found[name]), other, rtol=2e-3, atol=2e-4)


def test_a_model_that_is_there_already_stays_there():
    """`device=None` is where the model is; and such a model is wrapped, and called on a graph."""
    graph = graph_of("undirected")
    with pretending():
        model = gcn(2).to("pretend")
        estimator = lmc.GAS()
        estimator.bind(model, graph)
        assert estimator.placement.device == PRETEND
        estimator.backward(graph.batch(range(12)))
        assert model.layers[0].linear.weight.grad.device == PRETEND
        whole = model.eval()(graph)
        assert whole.device == PRETEND
        torch.testing.assert_close(on_host(whole), lmc.predict(graph, model))
        torch.manual_seed(0)
        module = pyg.GAT(5, 6, 2, 3).double().to("pretend")
        there = lmc.predict(graph, lmc.from_pyg(module))
        assert next(module.parameters()).device == PRETEND
        here = lmc.predict(graph, lmc.from_pyg(module), device="cpu")
    torch.testing.assert_close(there, here)


def test_histories_on_the_host_see_every_push(monkeypatch):
    """Also those that are still on their way."""
    with pretending():
        history = HostHistory(lmc.estimators.history.MemoryHistory(4, 2, torch.float32), PRETEND)
        history.push(torch.tensor([1, -1]), torch.ones(2, 2).to(PRETEND))
        history.push(torch.tensor([3]), 2 * torch.ones(1, 2).to(PRETEND))
        pulled = history.pull(torch.tensor([3, 1, 0]))
        assert pulled.device == PRETEND
        assert on_host(pulled)[:, 0].tolist() == [2, 1, 0]
        history.push(torch.tensor([0]), 5 * torch.ones(1, 2).to(PRETEND))
        assert history.snapshot()[:, 0].tolist() == [5, 1, 0, 2]
        history.push(torch.tensor([0]), torch.ones(1, 2).to(PRETEND))
        history.restore(torch.zeros(4, 2))
        assert not history.snapshot().any()


def test_dropout_has_the_bits_of_the_host():
    keys = hashed_random.bits(3, np.arange(50))
    for width in (1, 2, 7, 64):
        with pretending():
            there = on_host(plain.kept(keys, width, 0.3, PRETEND))
        assert torch.equal(there, plain.kept(keys, width, 0.3))


# -- whole runs ----------------------------------------------------------------------------------

OPTIONS = {"parts": 4, "parts_per_batch": 2, "epochs": 3, "progress": False}


def fitted(device, graph, model, estimator, **options):
    result = lmc.fit(graph, model, estimator, device=device, **OPTIONS | options)
    assert all(p.device == HOST for p in model.parameters())
    return result


def check_same_run(there, here):
    assert len(there.history) == len(here.history)
    for one, other in zip(there.history, here.history, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-6)
        assert (one.train, one.val) == (other.train, other.val)
        if other.gradient_error is not None:
            assert one.gradient_error == pytest.approx(other.gradient_error, rel=1e-4)
    for one, other in zip(there.model.parameters(), here.model.parameters(), strict=True):
        assert type(one.data) is torch.Tensor
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "estimator", "options"),
    mostly_long(
        [
            (MODELS["gcn"], lmc.LMC, {"balance": "gradients", "gradient_error_every": 3, "clip": 0.5}),
            (MODELS["gcnii"], lambda: lmc.MVSGNN(batch_size=12), {"gradient_error_every": 3}),
            (MODELS["gat"], lambda: lmc.Spider(lmc.GAS(), every=2), {"scheduler": "cosine"}),
            (MODELS["sage"], lambda: lmc.NeighborSampling(batch_size=9), {"gradient_error_every": 3}),
            (lambda: sign(2), lambda: lmc.Precomputed(batch_size=9), {"metrics": ["macro_f1"]}),
        ],
        4,
    ),
    ids=["LMC", "MVS-GNN", "Spider", "neighbours", "SIGN"],
)
def test_fit(make, estimator, options):
    graph = graph_of("undirected")
    with pretending():
        there = fitted("pretend", graph, make(), estimator(), **options)
    check_same_run(there, fitted("cpu", graph, make(), estimator(), **options))


@pytest.mark.parametrize("first", ["pretend", "cpu"])
def test_a_run_goes_on_on_another_device(tmp_path, first):
    """Checkpoints are of the host, whatever wrote them."""
    graph, second = graph_of("undirected"), "cpu" if first == "pretend" else "pretend"
    whole = fitted("cpu", graph, MODELS["gcn"](), lmc.LMC())
    with pretending():
        fitted(first, graph, MODELS["gcn"](), lmc.LMC(), epochs=1, out=tmp_path / "run")
        rest = fitted(second, graph, MODELS["gcn"](), lmc.LMC(), out=tmp_path / "run", resume=True)
    check_same_run(rest, whole)
    torch.testing.assert_close(lmc.load_run(tmp_path / "run").predict(graph), lmc.predict(graph, rest.model))


def no_number(prediction, y):
    return torch.nan * prediction.sum(1)


def test_a_run_that_fails_gives_the_model_back():
    graph, model = graph_of("undirected"), gcn(2)
    with pretending():
        with pytest.raises(lmc.errors.DivergedError):
            lmc.fit(graph, model, lmc.GAS(), device="pretend", loss=no_number, **OPTIONS)
        assert all(p.device == HOST for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "room"), mostly_long([(name, room) for name in [*MODELS, "sign"] for room in (None, 0)], 3)
)
def test_predict(name, room, monkeypatch):
    """With matrices on the device, and where there is no room for them."""
    graph, make = graph_of("directed"), MODELS.get(name, lambda: sign(2))
    model = make()
    here = lmc.predict(graph, model)
    monkeypatch.setattr("lmc.nn.inference.free_memory", lambda device: room)
    with pretending():
        there = lmc.predict(graph, model, rows_at_once=10, device="pretend")
        some = lmc.predict(graph, model, nodes=[7, 3], device="pretend")
        assert all(p.device == HOST for p in model.parameters())
    assert type(there) is torch.Tensor
    torch.testing.assert_close(there, here)
    torch.testing.assert_close(some, here[[7, 3]])


# -- which device --------------------------------------------------------------------------------


def test_auto_is_a_gpu_if_there_is_one(monkeypatch):
    assert chosen_device("auto") == HOST
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(lmc.errors.ArgumentError, match=r"^device='cuda'"):  # it was asked for, in vain
        chosen_device("auto")


@pytest.mark.parametrize("given", ["gpu", "cuda", "cuda:1", "mps", "meta", "", 3.5])
def test_a_device_that_is_not_there_is_one_line(given):
    graph = graph_of("undirected")
    for call in (
        lambda: lmc.fit(graph, gcn(2), lmc.GAS(), device=given, **OPTIONS),
        lambda: lmc.GAS().bind(gcn(2), graph, device=given),
        lambda: lmc.predict(graph, gcn(2), device=given),
    ):
        with pytest.raises(lmc.errors.ArgumentError, match=r"^device=.*: must be auto, cpu, cuda") as raised:
            call()
        assert "\n" not in str(raised.value)


def test_float64_needs_a_device_that_has_it(monkeypatch):
    monkeypatch.setattr("lmc.device.widest_type", lambda device: torch.float32)
    with pytest.raises(lmc.errors.ArgumentError, match=r"device='cpu': has no float64; graph\.to"):
        lmc.GAS().bind(gcn(2), graph_of("undirected"), device="cpu")
    chosen_device("cpu", torch.float32)


def test_no_room_for_a_step_is_said_before_it(monkeypatch):
    graph = graph_of("undirected")
    monkeypatch.setattr("lmc.training.memory_check.free_memory", lambda device: 3000)
    with pretending(), pytest.raises(lmc.errors.ArgumentError, match=r"training needs .* are free"):
        lmc.fit(graph, gcn(2), lmc.LMC(), device="pretend", **OPTIONS)


def test_copied_keeps_what_is_no_tensor():
    with pretending():
        values, none, text = copied((torch.ones(2), None, "text"), PRETEND)
        assert (values.device, none, text) == (PRETEND, None, "text")
        block = graph_of("undirected").batch(range(4)).block()
        there = copied(block, PRETEND)
        assert there.indptr.device == there.values.device == PRETEND
        assert there.num_cols == block.num_cols


@pytest.mark.long
def test_the_doctor_finds_nothing(monkeypatch):
    monkeypatch.setattr("lmc.bench.doctor._epoch", lambda device: (None, "not timed"))
    with pretending():
        found = list(doctor.findings(PRETEND))
    assert [each for each in found if each.passed is False] == []
    assert sum(each.name.startswith("step of") for each in found) > 10


def test_from_the_command_line(tmp_path):
    done = called(
        "train", "--data", "synthetic", "--epochs", "1", "--device", "cuda:7", "--out", tmp_path / "a"
    )
    assert done.returncode == 2
    assert "device='cuda:7'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
