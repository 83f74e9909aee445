"""Checkpoints: what goes in comes out, and what is damaged is known."""

import json
import os
import warnings
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.nn import GCNConv

import lmc
from lmc.runs import checkpoint


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype == other.dtype
    if isinstance(one, dict):
        return (
            type(one) is type(other)
            and one.keys() == other.keys()
            and all(equal(one[k], other[k]) for k in one)
        )
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return one == other


STATE = {
    "a": torch.arange(6).reshape(2, 3),
    "empty": torch.empty(0, 4),
    "half": torch.ones(2, dtype=torch.float16),
    "scalar": torch.tensor(3),
    "nested": {0: {"step": torch.tensor(1.0), "betas": (0.9, 0.999)}, "x": [1, None, True, 0.1 + 0.2]},
    "counter": Counter({3: 1}),
    "inf": float("inf"),
    "nothing": None,
}


def test_every_state_comes_back_as_it_was(tmp_path):
    checkpoint.save(tmp_path, 3, 1, STATE)
    assert equal(checkpoint.load_latest(tmp_path), STATE)


def test_two_are_kept_and_the_last_is_used(tmp_path):
    for epoch in (1, 2, 10):
        checkpoint.save(tmp_path, epoch, 0, {"epoch": epoch})
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoint.load_latest(tmp_path) == {"epoch": 10}


@pytest.mark.parametrize("keep", [1, 3])
def test_as_many_are_kept_as_asked_for(tmp_path, keep):
    for epoch in range(5):
        checkpoint.save(tmp_path, epoch, 0, {"epoch": epoch}, keep)
    assert len(list(tmp_path.iterdir())) == keep
    assert checkpoint.load_latest(tmp_path) == {"epoch": 4}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_have_the_mode_of_any_other(tmp_path, umask):
    before = os.umask(umask)
    try:
        checkpoint.save_weights(tmp_path / "best", {"w": torch.ones(2)}, {})
        file = checkpoint.save(tmp_path, 1, 0, STATE)
        (tmp_path / "other").touch()
    finally:
        os.umask(before)
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "best", file)} == {0o666 & ~umask}
    assert (tmp_path / "other").stat().st_mode == file.stat().st_mode


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.load_latest(tmp_path) is None


@pytest.mark.parametrize("damage", ["truncated", "emptied", "first", "middle", "last", "swapped"])
def test_a_damaged_one_is_passed_over(tmp_path, damage):
    checkpoint.save(tmp_path, 1, 0, {"epoch": 1, "t": torch.ones(50)})
    file = checkpoint.save(tmp_path, 2, 0, {"epoch": 2, "t": torch.ones(50)})
    raw = bytearray(file.read_bytes())
    if damage == "truncated":
        raw = raw[:-7]
    elif damage == "emptied":
        raw = bytearray()
    elif damage == "swapped":
        raw = bytearray(json.dumps({"epoch": 3}).encode())
    else:
        raw[{"first": 0, "middle": len(raw) // 2, "last": len(raw) - 1}[damage]] ^= 1
    file.write_bytes(raw)
    with pytest.warns(UserWarning, match="damaged .*the one before is used"):
        assert checkpoint.load_latest(tmp_path)["epoch"] == 1


def test_all_damaged_is_one_line(tmp_path):
    checkpoint.save(tmp_path, 1, 0, {"epoch": 1}).write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):  # and stays so
            with pytest.raises(lmc.RunError, match="none of its 1 checkpoints is whole"):
                checkpoint.load_latest(tmp_path)


def test_what_json_cannot_hold_is_named(tmp_path):
    with pytest.raises(lmc.RunError, match=r"scheduler\.f is a function"):
        checkpoint.save(tmp_path, 1, 0, {"scheduler": {"f": lambda: 0}})
    assert not list(tmp_path.iterdir())


def test_weights_come_back_and_other_files_are_named(tmp_path):
    weights = {"w": torch.ones(2, 2)}
    checkpoint.save_weights(tmp_path / "best", weights, {"task": "multiclass"})
    found, about = checkpoint.load_weights(tmp_path / "best")
    assert equal(found, weights)
    assert about == {"task": "multiclass"}
    (tmp_path / "best").write_bytes(b"no")
    with pytest.raises(lmc.RunError, match="not the weights of a run"):
        checkpoint.load_weights(tmp_path / "best")
    with pytest.raises(lmc.RunError, match="there are no weights yet"):
        checkpoint.load_weights(tmp_path / "missing")


def test_weights_that_layers_share_are_kept_once_and_all_come_back(tmp_path):
    graph = lmc.synthetic(nodes=200, features=8)
    data = graph.to_pyg()
    data.val_mask[:] = False  # then the last weights are the best: those of the model itself, not copies
    convolution = GCNConv(8, 8)
    model = lmc.GNN([convolution, convolution], head=torch.nn.Linear(8, graph.num_classes))
    lmc.fit(lmc.Graph.from_pyg(data), model, lmc.LMC(), parts=4, epochs=1, out=tmp_path / "run")
    found, _ = checkpoint.load_weights(tmp_path / "run" / "best.safetensors")
    assert equal(found, dict(model.state_dict()))
    held = load_file(tmp_path / "run" / "best.safetensors")
    assert sum(tensor.numel() for tensor in held.values()) == 64 + 8 + 80 + 10


@pytest.mark.parametrize("other", [lambda w: w.flatten(), lambda w: w[1:], lambda w: w.T])
def test_views_of_one_tensor_are_kept(tmp_path, other):
    weight = torch.arange(6.0).reshape(2, 3)
    state = {"weight": weight, "same": weight, "other": other(weight)}
    checkpoint.save(tmp_path, 1, 0, state)
    assert equal(checkpoint.load_latest(tmp_path), state)
    checkpoint.save_weights(tmp_path / "best", state, {})
    assert equal(checkpoint.load_weights(tmp_path / "best")[0], state)
