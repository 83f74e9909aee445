"""Checkpoints: what goes in comes out, and what is damaged is known."""

import json
import warnings
from collections import Counter

import pytest
import torch

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


def test_round_trip(tmp_path):
    checkpoint.save(tmp_path, 3, 1, STATE)
    assert equal(checkpoint.load_latest(tmp_path), STATE)


def test_two_are_kept_and_the_last_is_used(tmp_path):
    for epoch in (1, 2, 10):
        checkpoint.save(tmp_path, epoch, 0, {"epoch": epoch})
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoint.load_latest(tmp_path) == {"epoch": 10}


def test_none(tmp_path):
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


def test_weights(tmp_path):
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
