"""`lmc doctor` says what works on a machine, and what does not."""

import json

import torch

from commands import called
from lmc.kernels import fast
from lmc.runs.registry import METHODS


def test_a_wrong_kernel_fails_and_everything_else_passes(tmp_path, monkeypatch):
    """Of a kernel that no step of a GCN reads: nothing else may fail with it."""
    right = fast.sums
    monkeypatch.setattr(fast, "sums", lambda g, z: tuple(1.01 * each for each in right(g, z)))
    monkeypatch.setattr("lmc.bench.doctor._epoch", lambda device: (None, "not timed"))
    done = called("doctor", "--out", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    failed = {each["name"] for each in found["checks"] if each["passed"] is False}
    assert failed == {f"kernel sums, {name}" for name in ("float32", "float64", "bfloat16")}
    assert done.returncode == 1
    assert "3 of " in done.stdout
    assert "FAIL" in done.stdout
    assert found["machine"]["torch"] == torch.__version__
    names = {each["name"] for each in found["checks"]}
    assert {f"step of {each.title}" for each in METHODS.values() if each.model is None} < names


def test_what_raises_fails_in_one_line_and_ends_nothing(monkeypatch):
    from lmc.bench import doctor

    def broken(*_):
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(
        doctor, "_kernels", lambda device: [("kernel", broken), ("other", lambda: (True, ""))]
    )
    monkeypatch.setattr(doctor, "_estimators", lambda device: [])
    monkeypatch.setattr(doctor, "_training", lambda device: (True, ""))
    monkeypatch.setattr(doctor, "_epoch", lambda device: (None, ""))
    first, second, *_ = doctor.findings()
    assert (first.passed, second.passed) == (False, True)
    assert first.detail.startswith("RuntimeError: first")
    assert "\n" not in first.detail
