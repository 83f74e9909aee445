"""Settings: what is written is read back, what is unknown is named."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lmc
from lmc.paper.setup import settings_of
from lmc.paper.small import SETTINGS
from lmc.runs.config import DEFAULTS, METHODS, Config, merged, parse_setting
from lmc.runs.models import module_of
from lmc.runs.presets import PRESETS

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)


@given(name=TEXT, lr=st.floats(0, 1e10), epochs=st.integers(0, 10**12), fixed=st.booleans())
def test_what_is_written_as_toml_is_read_back(tmp_path_factory, name, lr, epochs, fixed):
    training = {"parts": 3, "lr": lr, "epochs": epochs, "fixed": fixed}
    config = Config.of({"data": {"name": name}, "method": {"name": "gas"}, "training": training})
    file = tmp_path_factory.mktemp("toml") / "config.toml"
    file.write_text(config.to_toml(), encoding="utf-8")
    assert Config.of(Config.read(file)) == config


def test_lists_nones_and_numbers_of_numpy_are_written_and_read(tmp_path):
    training = {"parts": 2, "clip": None, "lr": np.float64(0.1)}
    config = Config.of({"model": {"hidden": [8, 9], "layers": 3}, "training": training})
    (tmp_path / "config.toml").write_text(config.to_toml())
    read = Config.read(tmp_path / "config.toml")
    assert read["model"]["hidden"] == [8, 9]
    assert "clip" not in read["training"]
    assert read["training"]["lr"] == 0.1
    assert config.build_model(5, 3).layers[0].out_features == 8


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds(name):
    config = Config.of(PRESETS[name])
    assert config.method["name"] == "lmc"
    with torch.device("meta"):
        module = module_of(config.model, 8, 3)
    convolutions = module.layers if isinstance(module, lmc.GCN | lmc.GCNII) else module.convs
    assert len(convolutions) == config.model["layers"]
    assert isinstance(config.build_estimator(), lmc.LMC)
    assert config.training["parts_per_batch"] <= config.training["parts"]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_builds(name):
    assert isinstance(Config.of({"method": {"name": name}}).build_estimator(), lmc.Estimator)


def test_an_empty_tree_becomes_the_defaults():
    tree = Config.of({}).to_tree()
    for name, section in DEFAULTS.items():
        assert section.items() <= tree[name].items()


def test_defaults_are_written_out():
    text = Config.of({"model": {"name": "gcn"}, "method": {"name": "lmc"}}).to_toml()
    for line in (
        "hidden = 64",
        'alpha = "auto"',
        'score = "2x-x^2"',
        "lr = 0.01",
        'optimizer = "adam"',
        "seed = 0",
    ):
        assert line in text.splitlines()


def test_the_presets_of_the_paper_have_its_random_groups():
    of_the_paper = {name for name in PRESETS if name.startswith("gcn")}
    assert {name for name in PRESETS if PRESETS[name]["training"]["balance"] == "none"} == of_the_paper
    assert settings_of("GCN", "pubmed")["training"]["balance"] == "none"  # which the paper has none for
    assert SETTINGS["training"]["balance"] == "none"


def test_batches_are_left_to_be_chosen():
    training = Config.of({}).training
    assert training["balance"] == "labels"
    assert training.keys().isdisjoint({"parts", "parts_per_batch", "batch_share"})


def test_later_settings_win_and_another_method_starts_anew():
    preset, flags = PRESETS["gcn-arxiv"], {"model": {"layers": 2}, "method": {"name": "gas"}}
    tree = merged(preset, flags)
    assert tree["model"]["hidden"] == 256
    assert tree["model"]["layers"] == 2
    assert tree["method"] == {"name": "gas"}
    assert merged(preset, {"model": {"name": "gcnii"}})["model"]["norm"] == "batch"
    other = merged({"model": {"name": "gcnii", "theta": 1.0, "layers": 9}}, {"model": {"name": "sage"}})
    assert other == {"model": {"name": "sage", "layers": 9}}
    assert PRESETS["gcn-arxiv"]["model"]["layers"] == 3
    shares = merged(preset, {"training": {"batch_share": 0.25}})["training"]
    assert (shares["parts"], shares["batch_share"], "parts_per_batch" in shares) == (80, 0.25, False)
    assert merged({"training": shares}, preset)["training"] == preset["training"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("model.theta=0.5", 0.5), ("model.norm=batch", "batch"), ('a.b="x=y"', "x=y"), ("a.b=[1, 2]", [1, 2])],
)
def test_settings_of_the_command_line_are_parsed(text, value):
    section, rest = next(iter(parse_setting(text).items()))
    assert next(iter(rest.values())) == value
    assert text.startswith(section)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"model": {"name": "gcm"}}, "did you mean 'gcn'"),
        ({"training": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"training": {"graph": 3}}, "setting='graph'"),
        ({"model": {"dropout": "half"}}, "model.dropout='half': must be a number"),
        ({"model": {"layers": True}}, "must be an integer"),
        ({"method": {"name": "lmc", "score": "y"}}, r"must be one of x\^2"),
        ({"model": 3}, "must be a section"),
        ({"modle": {}}, "did you mean 'model'"),
        ({"training": {"optimizer": 3}}, "must be a string"),
        ({"data": {"name": 3}}, "data.name=3: must be a string"),
        ({"model": {"name": "gat", "head": 3}}, "did you mean 'heads'"),
        ({"model": {"name": "pna", "degrees": [1]}}, "setting='degrees'"),
        ({"model": {"name": "os:system", "x": 1}}, r"'os:system': is code, and no file has it imported"),
        ({"model": {"name": "in memory: GNN"}}, "was an object of a script, which settings cannot say"),
        ({"training": {"optimizer": "in memory: SGD"}}, "training.optimizer='in memory: SGD': was an object"),
        (
            {"training": {"checkpoint": "all"}},
            "training.checkpoint='all': must be one of none, last or",
        ),
    ],
)
def test_what_is_wrong_is_named(tree, message):
    with pytest.raises(lmc.ArgumentError, match=message):
        Config.of(tree)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "gat", "hidden": 10, "heads": 4}, r"model 'gat': cannot be built \(Ensure that the number"),
        ({"name": "pna", "hidden": 10, "towers": 4}, "towers=4: must divide hidden=10 and the 3 columns"),
        ({"name": "sage", "aggr": "men"}, "model 'sage': cannot be built"),
        ({"name": "gin", "norm": "bach"}, "model 'gin': cannot be built"),
        ({"name": "gin", "norm": "graph"}, "mixes nodes"),
        ({"name": "sage", "layers": 0}, "layers=0: must be 1 or more"),
        ({"name": "pna", "pre_layers": 10**9}, "pre_layers=1000000000: must be at most"),
    ],
)
def test_what_pyg_does_not_take_is_one_line(options, message):
    with pytest.raises(lmc.ArgumentError, match=message):
        Config.of({"model": options}).build_model(5, 3)


@pytest.mark.parametrize("given", [0, -1, 1.5, "all", None])
def test_how_many_checkpoints_may_be_kept(given):
    with pytest.raises(lmc.ArgumentError, match=r"checkpoint=.*must be .*, or one of none, last"):
        lmc.TrainingOptions(checkpoint=given)


def test_a_file_that_is_not_toml_is_named(tmp_path):
    (tmp_path / "a.toml").write_text("[model\nname=")
    with pytest.raises(lmc.ArgumentError, match=r"a\.toml: not a TOML file"):
        Config.read(tmp_path / "a.toml")


def test_every_option_of_training_is_documented():
    documented = lmc.Training.__doc__
    for name in inspect.signature(lmc.Training).parameters:
        assert f"        {name}: " in documented


def test_a_beta_that_is_found_ends_what_a_preset_says_of_it():
    tree = merged(PRESETS["gcn-arxiv"], {"method": {"alpha": "auto"}})
    assert Config.of(tree).build_estimator() == lmc.LMC()
    with pytest.raises(lmc.ArgumentError, match="score='x': is of a number alpha"):
        Config.of(merged(tree, {"method": {"score": "x"}})).build_estimator()
