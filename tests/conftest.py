"""Where the tests find real graphs, and a cache of their own."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

import lmc

# Two workers on two cores: one thread each.
torch.set_num_threads(1)

# Triton's loops run without a GPU, if this is said before anything loads Triton.
os.environ.setdefault("TRITON_INTERPRET", "1")

# The same examples every time, so that a change answers for itself alone; `make fuzz` looks for others.
settings.register_profile(
    "lmc", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fuzz", settings.get_profile("lmc"), max_examples=2000, derandomize=False)
settings.load_profile("lmc")

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if "LMC_DATA" not in os.environ and BESIDE.is_dir():
    os.environ["LMC_DATA"] = str(BESIDE)


def pytest_collection_modifyitems(items):
    if os.name != "posix":
        for item in items:
            if item.get_closest_marker("posix"):
                item.add_marker(pytest.mark.skip(reason="needs POSIX"))


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    os.environ["LMC_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    # Workers share what they have compiled.
    os.environ["NUMBA_CACHE_DIR"] = str(tmp_path_factory.getbasetemp().parent / "kernels")


@pytest.fixture(params=["fast", pytest.param("plain", marks=pytest.mark.long)])
def _either_kernels(request, monkeypatch):
    """The test runs twice: with the fast loops and with their plain twins."""
    monkeypatch.setenv("LMC_KERNELS", request.param)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A graph whose epochs take a few hundredths of a second."""
    folder = tmp_path_factory.mktemp("graph") / "small"
    lmc.synthetic(nodes=400, features=8, seed=1).save(folder)
    return folder


_loaded = {}


@pytest.fixture
def real():
    """A function that loads a real graph by name, or skips the test where it is missing."""

    def load(name):
        folder = os.environ.get("LMC_DATA")
        if folder is None or not (Path(folder) / f"{name}.npz").is_file():
            pytest.skip(f"{name}.npz is not in $LMC_DATA")
        if name not in _loaded:
            _loaded[name] = lmc.load(name)
        return _loaded[name]

    return load


@pytest.fixture(scope="session")
def narrow():
    """A function that gives Cora with features of 32 columns, for layers that work on edges."""
    made = []

    def load(cora):
        if not made:
            torch.manual_seed(0)
            x = cora.x @ torch.pca_lowrank(cora.x, q=32, center=False)[2]
            ends, masks = cora.to_pyg().edge_index, (cora.train_mask, cora.val_mask, cora.test_mask)
            made.append(lmc.Graph(ends, x / x.std(), cora.y, *masks))
        return made[0]

    return load
