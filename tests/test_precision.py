"""Steps in bfloat16 and histories in int8: close to float32, for every estimator and kind of model."""

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric import nn as pyg

import lmc
from commands import run
from estimating import EVERY
from lmc.kernels import fast

pytestmark = pytest.mark.filterwarnings("ignore:precision='bf16'")

GRAPH = lmc.synthetic(nodes=400, features=16, classes=4)
CLUSTERS = lmc.partition(GRAPH, 8)
FEATURES, CLASSES = GRAPH.num_features, GRAPH.num_classes


def batch_of(*parts):
    nodes = torch.isin(CLUSTERS, torch.tensor(parts)).nonzero()[:, 0]
    return GRAPH.batch(nodes, scale=8 / len(parts))


def estimate(estimator, model, precision):
    torch.manual_seed(0)
    estimator.bind(model, GRAPH, precision=precision)
    estimator.backward(batch_of(0, 1, 2))
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def relative(one, other):
    squares = sum((one[name] - other[name]).double().square().sum() for name in other)
    return float(squares.sqrt() / sum(other[name].double().square().sum() for name in other).sqrt())


def compare(make_estimator, model, at_most):
    model.eval()  # batch norms move nothing
    exact, found = (estimate(make_estimator(), model, precision) for precision in ("full", "bf16"))
    assert all(each.dtype == torch.float32 for each in found.values())
    assert 1e-4 < relative(found, exact) < at_most  # below, it would be float32 after all


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("estimator", EVERY)
def test_every_estimator_in_bf16_is_close_to_itself(estimator, norm):
    torch.manual_seed(1)
    # R of TOP makes roundings of messages larger: up to 100 times, where a batch hardly knows a direction.
    at_most = 0.3 if "TOP" in estimator else 0.05
    compare(EVERY[estimator], lmc.GCN(FEATURES, 24, CLASSES, layers=3, norm=norm), at_most)


MODELS = {
    "GCNII": lambda: lmc.GCNII(FEATURES, 24, CLASSES, layers=4),
    "GCN": lambda: lmc.from_pyg(pyg.GCN(FEATURES, 24, 2, CLASSES, norm="batch_norm")),
    "GraphSAGE": lambda: lmc.from_pyg(pyg.GraphSAGE(FEATURES, 24, 2, CLASSES, jk="cat")),
    "GAT": lambda: lmc.from_pyg(pyg.GAT(FEATURES, 24, 2, CLASSES, heads=2)),
    "GIN": lambda: lmc.from_pyg(pyg.GIN(FEATURES, 24, 2, CLASSES)),
    "EdgeCNN": lambda: lmc.from_pyg(pyg.EdgeCNN(FEATURES, 24, 2, CLASSES)),
}


@pytest.mark.parametrize("estimator", [lmc.LMC, lmc.GAS, lmc.BackwardSGD, lmc.NeighborSampling])
@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_model_in_bf16_is_close_to_itself(model, estimator):
    torch.manual_seed(1)
    compare(estimator, MODELS[model](), 0.1)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_the_mean_of_settled_lmc_is_the_gradient(precision):
    """Roundings of single nodes average out over many."""
    torch.manual_seed(2)
    graph = lmc.synthetic(nodes=4000, features=16, classes=4)
    clusters = lmc.partition(graph, 8)
    model, exact, estimator = lmc.GCN(16, 24, 4, layers=3), lmc.FullBatch(), lmc.LMC(alpha=0.0)
    exact.bind(model, graph)
    exact.backward(graph.batch(torch.arange(4000)))
    full = {name: p.grad.clone() for name, p in model.named_parameters()}
    estimator.bind(model, graph, precision=precision)
    for _ in range(6):  # parameters rest, and histories become exact
        model.zero_grad()
        for part in range(8):
            estimator.backward(graph.batch((clusters == part).nonzero()[:, 0], scale=8.0))
    mean = {name: p.grad / 8 for name, p in model.named_parameters()}
    assert 1e-5 < relative(mean, full) < 1e-2


def test_sums_over_neighbours_are_taken_in_float32():
    """In bfloat16, ones add up to 256 and no further."""
    ones = torch.ones(5000, 3, dtype=torch.bfloat16)
    hub = torch.tensor([0, 5000]), torch.arange(5000), None
    assert fast.spmm(*hub, ones, ones[:0]).tolist() == [[4992.0] * 3]  # the nearest that there is


@pytest.mark.parametrize(
    "estimator", [lmc.LMC, lmc.GAS, lmc.GraphFM, lambda: lmc.TOP(8, "history"), lmc.VRGCN]
)
def test_every_estimator_with_int8_is_close_to_itself(estimator):
    """After an epoch that fills histories, which then are read."""

    def second(precision):
        torch.manual_seed(1)
        model, made = lmc.GCN(FEATURES, 24, CLASSES, layers=3), estimator()
        made.bind(model, GRAPH, precision=precision)
        for parts in ((0, 1), (2, 3), (4, 5), (6, 7), (0, 3, 5)):
            model.zero_grad()
            made.backward(batch_of(*parts))
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    assert 0 < relative(second("int8"), second("full")) < 2e-2


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("int8", torch.int8)])
def test_training_goes_on_to_the_same_bytes(tmp_path, precision, dtype):
    def trained(out, epochs, **options):
        torch.manual_seed(3)
        model = lmc.GCN(FEATURES, 24, CLASSES, layers=3, norm="batch", dropout=0.5)
        sizes = {"parts": 8, "parts_per_batch": 2}
        lmc.fit(GRAPH, model, lmc.LMC(), **sizes, epochs=epochs, out=out, precision=precision, **options)
        return sorted((out / "checkpoints").iterdir())[-1]

    whole = trained(tmp_path / "whole", 4)
    trained(tmp_path / "part", 2)
    again = trained(tmp_path / "part", 4, resume=True)
    files = [
        load_file(next(each.glob("**/*.safetensors")) if each.is_dir() else each) for each in (whole, again)
    ]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(files[0][name], files[1][name]) for name in files[0])
    assert dtype in {value.dtype for value in files[0].values()}


def test_predictions_in_bf16_are_close_and_float32():
    torch.manual_seed(4)
    model = lmc.GCN(FEATURES, 24, CLASSES, layers=3, norm="batch")
    exact, found = lmc.predict(GRAPH, model), lmc.predict(GRAPH, model, precision="bf16")
    assert found.dtype == torch.float32
    assert 1e-4 < float((found - exact).norm() / exact.norm()) < 2e-2


def test_what_cannot_be_is_one_line():
    model = lmc.GCN(FEATURES, 24, CLASSES)
    with pytest.raises(lmc.ArgumentError, match="precision='bf61': must be one of full, half, int8, bf16"):
        lmc.LMC().bind(model, GRAPH, precision="bf61")
    double = GRAPH.to(torch.float64)
    with pytest.raises(lmc.ArgumentError, match=r"features are of torch\.float64; they must be float32"):
        lmc.LMC().bind(model.double(), double, precision="bf16")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("able", "faster"),
    [
        ({"cpu_name": "Intel Xeon"}, False),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, False),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, True),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": True}, True),
        ({"cpu_name": "Neoverse V1", "bf16": True}, True),
    ],
)
def test_a_processor_that_gains_nothing_is_warned_of(able, faster, monkeypatch, recwarn):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: able)
    lmc.GAS().bind(lmc.GCN(FEATURES, 24, CLASSES), GRAPH, precision="bf16")
    assert any("no faster than float32" in str(each.message) for each in recwarn) != faster


MANY_SHAPES = """
import lmc
import torch

weight = torch.ones(64, 64, dtype=torch.bfloat16)
for rows in [*range(100, 200), 199, 100]:
    torch.ones(rows, 64, dtype=torch.bfloat16) @ weight
"""


@pytest.mark.process
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")
def test_what_is_built_for_shapes_of_products_is_not_kept_for_long():
    """Batches have shapes of their own: a long run would fill memory with it."""
    told = os.environ | {"ONEDNN_VERBOSE": "profile_create"}
    done = subprocess.run([sys.executable, "-c", MANY_SHAPES], env=told, capture_output=True, text=True)
    built = [line.split(",")[3] for line in done.stdout.splitlines() if "create:cache" in line]
    assert built[-2:] == ["create:cache_hit", "create:cache_miss"], done.stdout + done.stderr


def test_the_command_line_trains_and_predicts_in_it(tmp_path):
    done = run("train", "--precision", "bf16", "--epochs", "2", "--hidden", "8", "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert lmc.load_run(tmp_path / "a").settings["training"]["precision"] == "bf16"
