"""Optimizers that do not load torch's compiler do what torch's do."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from lmc.training.optimizers import OPTIMIZERS, make_optimizer
from lmc.training.uncompiled import uncompiled

TRAINED = """
import sys

import lmc

graph = lmc.synthetic(nodes=300)
model = lmc.GCN(graph.num_features, 8, graph.num_classes)
lmc.fit(graph, model, lmc.LMC(), parts=6, parts_per_batch=2, epochs=2, scheduler="cosine")
print([name for name in ("torch._dynamo", "sympy", "triton") if name in sys.modules])
"""


@pytest.mark.process
def test_a_training_loads_neither_the_compiler_nor_sympy():
    done = subprocess.run([sys.executable, "-c", TRAINED], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


def stepped(kind):
    """Weights and state after some steps, half of them after a state was saved and loaded."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(7, 3))
    optimizer = kind([{"params": [weight], "weight_decay": 0.1}], lr=0.05)
    for step in range(6):
        if step == 3:
            state = optimizer.state_dict()
            optimizer = kind([{"params": [weight], "weight_decay": 0.1}], lr=0.05)
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        (weight**2).sum().backward()
        optimizer.step()
    assert weight.grad_fn is None
    return weight.detach(), optimizer.state_dict()["state"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_have_the_bits_of_torch(name):
    (weight, state), (expected, of_torch) = stepped(uncompiled(OPTIMIZERS[name])), stepped(OPTIMIZERS[name])
    assert torch.equal(weight, expected)
    assert state.keys() == of_torch.keys()
    pairs = [(state[0][key], of_torch[0][key]) for key in of_torch.get(0, {})]
    assert all(torch.equal(torch.as_tensor(one), torch.as_tensor(other)) for one, other in pairs)


def test_hooks_are_called_and_classes_of_others_stay_as_they_are():
    class Mine(torch.optim.SGD):
        pass

    import lmc

    model = lmc.GCN(3, 4, 2)
    made = make_optimizer("sgd", model, 0.1, 0.0, 0.0)
    assert isinstance(made, torch.optim.SGD)
    assert type(made) is not torch.optim.SGD
    seen = []
    made.register_step_pre_hook(lambda *_: seen.append("before"))
    made.register_step_post_hook(lambda *_: seen.append("after"))
    made.step()
    assert seen == ["before", "after"]
    assert type(make_optimizer(Mine, model, 0.1, 0.0, 0.0)) is Mine
