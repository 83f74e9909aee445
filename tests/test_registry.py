"""Methods and models are named in one place, and everything that lists them looks there."""

import pytest
import torch
from torch_geometric.nn import models

import lmc
from commands import called
from lmc.bench import run as bench
from lmc.estimators.gas import GAS
from lmc.nn.pyg_options import KINDS
from lmc.paper.setup import METHOD_SETTINGS
from lmc.paper.setup import MODELS as PAPER_MODELS
from lmc.runs.config import Config
from lmc.runs.registry import METHODS, MODELS, TRAINING_METHODS, Method, PygKind


def test_every_estimator_and_model_has_a_name():
    classes = {method.load() for method in METHODS.values()}
    public = {getattr(lmc, name) for name in lmc.__all__}
    estimators = {kind for kind in public if isinstance(kind, type) and issubclass(kind, lmc.Estimator)}
    assert classes == estimators - {lmc.Estimator, lmc.Spider}  # which is put on top of any
    ours = {kind.load() for kind in MODELS.values()} & public
    assert ours == {lmc.GCN, lmc.GCNII, lmc.SIGN}


def test_every_model_of_pyg_has_a_name_and_knows_it():
    assert {name: kind.load() for name, kind in MODELS.items() if isinstance(kind, PygKind)} == {
        kind.name: kind for kind in KINDS
    }
    assert {kind.of for kind in KINDS} == set(models.basic_gnn.__all__)


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_is_not_given_is_that_of_pyg(kind):
    """Of PNA, which has no default there: degrees of one."""
    graph, needed = lmc.synthetic(nodes=50, features=5).to_pyg(), {}
    if kind.name == "pna":
        needed = {"aggregators": ["mean", "min", "max", "std"], "deg": torch.tensor([0, 1])}
        needed["scalers"] = ["identity", "amplification", "attenuation"]
    if kind.name == "gatv2":
        needed = {"v2": True}
    found = []
    for make in (kind(5, 6, hidden=8).build, lambda: getattr(models, kind.of)(5, 8, 2, 6, **needed)):
        torch.manual_seed(0)
        found.append(make()(graph.x, graph.edge_index))
    assert torch.equal(*found)


def test_names_and_titles_are_distinct():
    assert len({method.title for method in METHODS.values()}) == len(METHODS)
    assert len({method.in_paper for method in METHODS.values() if method.in_paper}) == len(METHOD_SETTINGS)
    assert len({kind.title for kind in MODELS.values()}) == len(MODELS)
    assert list(PAPER_MODELS.values()) == ["gcn", "gcnii"]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_setting(name):
    config = Config.of({"method": {"name": name}, "training": {"parts": 4}})
    assert type(config.build_estimator()) is METHODS[name].load()


def test_a_new_line_in_the_registry_is_enough(monkeypatch, small, tmp_path):
    """For training, comparing and reporting by the command line."""
    monkeypatch.setitem(METHODS, "mine", Method("test_registry:Mine", "my method"))
    sizes = ["--data", small, "--hidden", "4", "--parts", "4", "--epochs", "1"]
    done = called("compare", *sizes, "--methods", "gas,mine", "--out", tmp_path / "c")
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    assert "my method" in (tmp_path / "c" / "report.html").read_text()


class Mine(GAS):
    """An estimator of somebody's own."""


def test_the_bench_times_every_way_to_train():
    for name in TRAINING_METHODS:
        title = METHODS[name].title
        assert any(row.startswith(title) for group in bench.GROUPS.values() for row in group), title
        assert any(row.startswith(title) for group in bench.ACCURACY for row in group), title


def test_help_lists_the_names():
    shown = called("train", "--help").stdout.replace("\n", " ")
    for name in (*METHODS, *MODELS):
        assert name in shown
