"""The same bytes with any number of threads: of the operations, and of runs of every kind of model."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.nn import models

import lmc
from lmc.kernels.fixed_sums import total
from lmc.nn.fixed_order import FixedOrder
from lmc.training.gradient_hooks import ClipNorm
from pyg_models import EVERY, pna

THREADS = (1, 2, 3)
WIDTH = 33  # odd, so that the pieces of two threads do not end with whole vectors


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def equal_with_any_threads(function):
    """Whether the tensors that a function gives are the same, to the bit."""
    results = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        results.append(function())
    return all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


# -- operations -------------------------------------------------------------------------------------


def vjp_of(module, z, fixed=True):
    """Its value, the derivatives at z and at the parameters, and the buffers after it."""

    def computed():
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        z_in = z.clone().requires_grad_()
        if fixed:
            with FixedOrder():
                value = module(z_in)
        else:
            value = module(z_in)
        derivative = torch.linspace(-1, 1, value.numel(), dtype=z.dtype).sin().view(value.shape)
        found = torch.autograd.grad(value, [z_in, *module.parameters()], derivative)
        after = [buffer.clone() for buffer in module.buffers()]
        module.load_state_dict(before, strict=False)
        return [value.detach(), *found, *after]

    return computed


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(()))

    def forward(self, z):
        return (1 + self.scale) * z / self.scale - self.shift


MODULES = {
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "batch norm, no scale": lambda: nn.BatchNorm1d(WIDTH, affine=False),
    "batch norm, own statistics": lambda: nn.BatchNorm1d(WIDTH, track_running_stats=False),
    "batch norm, mean of all": lambda: nn.BatchNorm1d(WIDTH, momentum=None),
    "batch norm, options": lambda: nn.BatchNorm1d(WIDTH, eps=0.3, momentum=0.4),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "layer norm, no scale": lambda: nn.LayerNorm(WIDTH, elementwise_affine=False),
    "layer norm, no shift": lambda: nn.LayerNorm(WIDTH, bias=False),
    "layer norm, large eps": lambda: nn.LayerNorm(WIDTH, eps=0.3),
    "one slope": nn.PReLU,
    "slopes": lambda: nn.PReLU(WIDTH),
    "one column": lambda: nn.Linear(WIDTH, 1),
    "scaled": Scaled,
    "softmax": lambda: nn.Softmax(-1),
    "glu": lambda: nn.GLU(0),
}
ACTIVATIONS = [nn.ELU, nn.SELU, nn.CELU, nn.SiLU, nn.Mish, nn.GELU, nn.Softplus, nn.Sigmoid, nn.LogSigmoid]


@pytest.mark.parametrize("name", [*MODULES, *ACTIVATIONS])
def test_a_module_has_torchs_values_and_the_same_bits(name):
    make = MODULES.get(name, name)
    z = torch.randn(6002, WIDTH, generator=torch.Generator().manual_seed(0)) * 2 + 1
    assert equal_with_any_threads(vjp_of(make(), z.repeat(9, 1) if name == "one column" else z))
    double = make().double()
    for mode in (True, False):
        double.train(mode)
        expected, found = (vjp_of(double, z.double(), fixed)() for fixed in (False, True))
        for one, other in zip(expected, found, strict=True):
            assert torch.allclose(one.double(), other.double(), rtol=1e-9, atol=1e-9)


def test_torch_itself_depends_on_threads():
    """Else these tests show nothing."""
    z = torch.randn(6002, WIDTH, generator=torch.Generator().manual_seed(0)) * 2 + 1
    for name in ("batch norm", "layer norm", "one slope", "scaled"):
        assert not equal_with_any_threads(vjp_of(MODULES[name](), z, fixed=False)), name
    assert not equal_with_any_threads(vjp_of(nn.Linear(WIDTH, 1), z.repeat(9, 1), fixed=False))
    assert not equal_with_any_threads(vjp_of(nn.ELU(), z, fixed=False))


def test_an_activation_in_place_stays_in_place():
    with FixedOrder():
        z = torch.tensor([-1.0, 2.0])
        assert nn.ELU(inplace=True)(z) is z
    assert torch.equal(z, nn.functional.elu(torch.tensor([-1.0, 2.0])))


def test_sums_and_norms():
    values = torch.randn(100_003, generator=torch.Generator().manual_seed(0))
    assert equal_with_any_threads(lambda: [total(values)])
    assert float(total(values.double())) == pytest.approx(float(values.double().sum()), rel=1e-12)
    weights = [nn.Parameter(torch.zeros(300, 300)), nn.Parameter(torch.zeros(3))]

    def clipped():
        for weight in weights:
            weight.grad = torch.ones_like(weight).cumsum(0).sin() * 3
        expected = torch.cat([weight.grad.double().flatten() for weight in weights])
        ClipNorm(0.7)(weights)
        found = torch.cat([weight.grad.flatten() for weight in weights])
        assert torch.allclose(found.double(), expected * 0.7 / expected.norm(), rtol=1e-4)
        return [found]

    assert equal_with_any_threads(clipped)


# -- runs -------------------------------------------------------------------------------------------


def graph_of_task(task, nodes):
    graph = lmc.synthetic(nodes=nodes, degree=4, features=WIDTH, classes=4, seed=0)
    if task == "multiclass":
        return graph
    data = graph.to_pyg()
    data.y = data.x.sum(1, keepdim=True)
    return lmc.Graph.from_pyg(data)


def trained(make, task="multiclass", nodes=2001):
    """Weights, buffers, losses and a prediction after two epochs."""
    graph = graph_of_task(task, nodes)
    clusters = torch.arange(graph.num_nodes) % 3

    def run():
        torch.manual_seed(0)
        model = make(graph.num_features, WIDTH + 1, 2, 1 if task == "regression" else graph.num_classes)
        model = model if isinstance(model, lmc.GCN | lmc.GCNII) else lmc.from_pyg(model)
        estimator = lmc.LMC()
        estimator.bind(model, graph)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        losses = []
        for epoch in range(2):
            for batch in lmc.batches(graph, clusters, 2, epoch=epoch):
                optimizer.zero_grad()
                losses.append(estimator.backward(batch))
                optimizer.step()
        prediction = lmc.predict(graph, model.eval())
        return [*(value.clone() for value in model.state_dict().values()), torch.tensor(losses), prediction]

    return run


def built_in(kind, **options):
    return lambda features, hidden, layers, out: kind(features, hidden, out, layers=layers, **options)


def of_pyg(kind, **options):
    return lambda *sizes: kind(*sizes, **options)


RUNS = {
    "GCN, layer norm": built_in(lmc.GCN, norm="layer", linear_out=True),
    "GCNII, layer norm": built_in(lmc.GCNII, norm="layer"),
    "SAGE, one slope": of_pyg(models.GraphSAGE, act="prelu"),
    "SAGE, batch norm, ELU": of_pyg(models.GraphSAGE, norm="BatchNorm", act="elu"),
    "SAGE, ELU, batch norm": of_pyg(models.GraphSAGE, norm="BatchNorm", act="elu", act_first=True),
    "GIN, batch norm": of_pyg(models.GIN, norm="BatchNorm"),
    "GIN, trained eps": of_pyg(models.GIN, train_eps=True),
    "EdgeCNN, batch norm": of_pyg(models.EdgeCNN, norm="BatchNorm"),
}


IN_A_PROCESS = """
import sys

from test_threads import RUNS, equal_with_any_threads, trained

print([name for name in sys.argv[1:] if not equal_with_any_threads(trained(RUNS[name]))])
"""


@pytest.mark.slow
@pytest.mark.process
def test_a_run_has_the_same_bits():
    """In a process of its own, as a user's: what a product's sums depend on is settled at MKL's first use."""
    command = [sys.executable, "-c", IN_A_PROCESS, *(name for name in RUNS if "EdgeCNN" not in name)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


@pytest.mark.long
def test_a_run_of_edgecnn_has_the_same_bits():
    assert equal_with_any_threads(trained(RUNS["EdgeCNN, batch norm"]))


@pytest.mark.long
@pytest.mark.parametrize("make", [built_in(lmc.GCN), of_pyg(models.GraphSAGE)])
def test_a_prediction_of_one_column_has_the_same_bits(make):
    assert equal_with_any_threads(trained(make, "regression", nodes=60_001))


BETWEEN = {
    "elu": {"act": "elu"},
    "prelu": {"act": "prelu"},
    "batch norm, elu": {"norm": "BatchNorm", "act": "elu"},
    "batch norm, act first": {"norm": "BatchNorm", "act_first": True},
    "layer norm": {"norm": "LayerNorm", "norm_kwargs": {"mode": "node"}},
}
OTHERS = {
    **{act: {"act": act} for act in ("gelu", "silu", "softplus", "sigmoid", "tanh", "mish", "rrelu")},
    **{f"jk {jump}": {"jk": jump} for jump in ("cat", "max", "lstm")},
}
PARTICULAR = {
    "PNA, trained norm": of_pyg(pna, train_norm=True),
    "SAGE, project": of_pyg(models.GraphSAGE, project=True),
    "SAGE of unit length": of_pyg(models.GraphSAGE, normalize=True),
    "SAGE of two kinds": of_pyg(models.GraphSAGE, aggr=["mean", "std", "softmax"]),
    "GATv2, residual, dropout": of_pyg(models.GAT, v2=True, residual=True, dropout=0.3),
}


EVERY_MODEL = {
    **{f"{kind}, {between}": (EVERY[kind], BETWEEN[between]) for kind, between in product(EVERY, BETWEEN)},
    **{f"SAGE, {name}": (models.GraphSAGE, options) for name, options in OTHERS.items()},
}


@pytest.mark.parametrize("name", [*EVERY_MODEL, *PARTICULAR])
@pytest.mark.long
def test_every_model_of_pyg_has_the_same_bits(name):
    make = PARTICULAR[name] if name in PARTICULAR else of_pyg(EVERY_MODEL[name][0], **EVERY_MODEL[name][1])
    assert equal_with_any_threads(trained(make))
