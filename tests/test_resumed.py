"""A run that was stopped anywhere goes on as if it had not been, whatever it is made of."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import lmc
from commands import called
from lmc.training.loop import prepare_training

GRAPH = lmc.synthetic(nodes=200, features=8, classes=4)


class StopAt(lmc.Callback):
    def __init__(self, step):
        self.left = step

    def on_step(self, training, loss):
        self.left -= 1
        if self.left == 0:
            training.stop("interrupted")


def made(frozen=False, columns=4):
    torch.manual_seed(0)
    model = lmc.GCN(8, 8, columns, layers=3, norm="batch")
    if frozen:
        next(model.parameters()).requires_grad_(requires_grad=False)
    return model


def goes_on(tmp_path, stop=3, estimator=lmc.LMC, graph=GRAPH, frozen=False, **options):
    """Stopped after a step and resumed, against a run that was not."""
    options = {"parts": 8, "parts_per_batch": 2, "epochs": 3, **options}
    own = options.pop("own_parameters", False)

    def fit(model, **more):
        if own:
            more["optimizer"] = lambda groups, lr: torch.optim.Adam(model.parameters(), lr=lr)
        return lmc.fit(graph, model.to(graph.x.dtype), estimator(), **options | more)

    straight = fit(made(frozen, graph.num_classes))
    first = fit(made(frozen, graph.num_classes), out=tmp_path / "a", callbacks=[StopAt(stop)])
    assert first.stopped == "interrupted"
    second = fit(made(frozen, graph.num_classes), out=tmp_path / "a", resume=True)
    assert [r.loss for r in second.history] == [r.loss for r in straight.history]
    for one, other in zip(second.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("stop", [1, 3, 4, 5, 8, 12])
def test_after_any_step_the_last_of_an_epoch_included(tmp_path, stop):
    goes_on(tmp_path, stop)


def test_full_batch_goes_on_too(tmp_path):
    goes_on(tmp_path, 2, lmc.FullBatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"frozen": True},
        {"lr": 1, "optimizer": "sgd", "scheduler": "cosine", "clip": 0.01},
        {"own_parameters": True},
        {
            "optimizer": lambda groups, lr: torch.optim.Adam(groups, lr=torch.tensor(lr)),
            "scheduler": "cosine",
        },
        {"scheduler": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)},
        {"scheduler": lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2])},
        {"scheduler": "plateau", "optimizer": "rmsprop"},
        {"optimizer": torch.optim.Adafactor},
    ],
    ids=["frozen", "whole rate", "own groups", "tensor rate", "one cycle", "steps", "plateau", "adafactor"],
)
def test_of_whatever_it_is_made(tmp_path, options):
    goes_on(tmp_path, **options)


@pytest.mark.filterwarnings("ignore:y. targets have mean")
def test_a_run_with_losses_beyond_single_precision_goes_on(tmp_path):
    data = GRAPH.to_pyg()
    data.x = data.x.double()
    data.y = torch.randn(200, dtype=torch.float64) * 1e25
    goes_on(tmp_path, graph=lmc.Graph.from_pyg(data))


def test_another_graph_is_named(tmp_path):
    options = {"parts": 4, "epochs": 1, "out": tmp_path / "a"}
    lmc.fit(GRAPH, made(), lmc.LMC(), **options)
    other = GRAPH.to_pyg()
    other.edge_index = other.edge_index[:, :-40]
    with pytest.raises(
        lmc.RunError,
        match=r"a: its checkpoint is of a run on another graph than Graph\(.*; edges, features",
    ):
        lmc.fit(lmc.Graph.from_pyg(other), made(), lmc.LMC(), **options | {"epochs": 2}, resume=True)


def test_records_of_another_version_are_read_and_wrong_ones_are_named():
    options = lmc.TrainingOptions(parts=4, epochs=1)
    training = prepare_training(GRAPH, made(), lmc.LMC(), options)
    training.run()
    state = training.state()
    state["records"][0]["evaluation_seconds"] = 0.5
    other = prepare_training(GRAPH, made(), lmc.LMC(), options)
    other.load_state(state)
    assert other.records == training.records
    state["records"][0]["loss"] = "low"
    with pytest.raises(ValueError, match=r"^records\[0\]\.loss='low': must be a number$"):
        other.load_state(state)


def test_a_run_that_is_older_than_an_option_goes_on(tmp_path):
    """With what was the default before: random groups."""
    options = {"parts": 4, "out": tmp_path / "a"}
    lmc.fit(GRAPH, made(), lmc.LMC(), epochs=1, balance=None, **options)
    config = tmp_path / "a" / "config.toml"
    text = config.read_text()
    assert 'balance = "none"\n' in text
    config.write_text(text.replace('balance = "none"\n', ""))
    with pytest.raises(lmc.ArgumentError, match=r"training.balance is none, and cannot become labels"):
        lmc.fit(GRAPH, made(), lmc.LMC(), epochs=2, resume=True, **options)
    assert lmc.load_run(tmp_path / "a").settings["training"]["balance"] == "none"
    result = lmc.fit(GRAPH, made(), lmc.LMC(), epochs=2, resume=True, balance=None, **options)
    assert len(result.history) == 2


def test_numbers_of_numpy_are_numbers(tmp_path):
    rates = {"lr": np.float32(0.01), "weight_decay": np.float64(0.01), "epochs": np.int64(2)}
    lmc.fit(GRAPH, made(), lmc.LMC(), parts=4, out=tmp_path / "a", **rates)
    assert called("report", tmp_path / "a").returncode == 0


def test_very_many_classes_keep_the_summary_small(tmp_path):
    data = GRAPH.to_pyg()
    data.y = data.y.clone()  # it is the graph's own
    data.y[0] = 40_000
    graph = lmc.Graph.from_pyg(data)
    torch.manual_seed(0)
    lmc.fit(graph, lmc.GCN(8, 2, graph.num_classes), lmc.LMC(), parts=4, epochs=1, out=tmp_path / "a")
    assert (tmp_path / "a" / "summary.json").stat().st_size < 10_000
    assert called("report", tmp_path / "a").returncode == 0


WRONG = [
    ({"parts_per_batch": 0}, "parts_per_batch=0"),
    ({"lr": None}, "lr=None"),
    ({"weight_decay": "none"}, "weight_decay='none'"),
    ({"metrics": {"accuracy": lambda prediction, y: 1.0}}, "metrics['accuracy']: the metric that chooses"),
    ({"evaluate_every": None}, "evaluate_every=None"),
    ({"lr": 10**400}, "must be at most"),
    ({"lr": 1e39}, "must be at most"),
    ({"lr": float("nan")}, "lr=nan: must be a number"),
    ({"parts": np.zeros((2, 2))}, "parts=array"),
    ({"optimizer": None}, "optimizer=None"),
    ({"optimizer": torch.optim.SparseAdam, "lr": 0.0}, "optimizer="),
    ({"scheduler": torch.optim.lr_scheduler.StepLR}, "scheduler="),
    ({"callbacks": None}, "callbacks=None"),
    ({"callbacks": [lmc.Callback]}, "callbacks="),
    ({"loss": "mse"}, "loss='mse'"),
    ({"fixed": "no"}, "fixed='no': must be True or False"),
    ({"background": 0}, "background=0: must be True or False"),
    ({"resume": "no"}, "resume='no': must be True or False"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_one_line(options, message):
    with pytest.raises(lmc.ArgumentError) as raised:
        lmc.fit(GRAPH, made(), lmc.LMC(), **{"parts": 4, "epochs": 1} | options)
    assert message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((GRAPH.to_pyg(), made(), lmc.LMC()), "graph: Data is not an lmc.Graph"),
        ((GRAPH, torch.nn.Linear(2, 2), lmc.LMC()), "model: Linear"),
        ((GRAPH, made(), lmc.LMC), r"estimator: <class .* is not an lmc.Estimator; LMC\(\) makes one"),
    ],
)
def test_wrong_objects_are_one_line(given, message):
    with pytest.raises(lmc.ArgumentError, match=message):
        lmc.fit(*given, parts=4, epochs=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--model", "gcnii", "--hidden", 0),
        ("train", "--optimizer", "sgd", "--lr", "1e39"),
        ("train", "--set", "training.lr=" + "9" * 400),
        ("train", "--set", "training.lr=" + "[" * 2000),
        ("train", "--hidden", 10**30),
        ("train", "--layers", 10**9),
        ("inspect", "~nosuch/x"),
        ("inspect", "synthetic", "--layers", 10**9),
        ("bench", "--quick", "--rounds", 0),
    ],
    ids=lambda arguments: " ".join(map(str, arguments))[:40],
)
def test_wrong_commands_are_one_line(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    done = called(*arguments)
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("lmc: ")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lr": 0.5}, "training.lr is 0.01, and cannot become 0.5"),
        ({"parts": 5}, "training.parts is 4, and cannot become 5"),
        ({"patience": 3}, "training.patience is None, and cannot become 3"),
        ({"estimator": lmc.LMC(alpha=0)}, "method.alpha is auto, and cannot become 0"),
        ({"estimator": lmc.GAS()}, "method.name is lmc, and cannot become gas"),
    ],
)
def test_other_settings_are_refused_and_the_file_stays(tmp_path, changes, reason):
    options = {"estimator": lmc.LMC(), "parts": 4, "epochs": 1, "out": tmp_path / "a"}
    lmc.fit(GRAPH, made(), **options)
    before = (tmp_path / "a" / "config.toml").read_text()
    with pytest.raises(lmc.ArgumentError, match=re.escape(reason)):
        lmc.fit(GRAPH, made(), **options | {"epochs": 2} | changes, resume=True)
    assert (tmp_path / "a" / "config.toml").read_text() == before
    assert len(lmc.fit(GRAPH, made(), **options | {"epochs": 2}, resume=True).history) == 2


def test_a_cosine_schedule_ends_with_its_epochs(tmp_path):
    options = {"parts": 4, "out": tmp_path / "a", "scheduler": "cosine"}
    lmc.fit(GRAPH, made(), lmc.LMC(), epochs=1, **options)
    with pytest.raises(lmc.ArgumentError, match=r"a: epochs=3: the cosine schedule of this run ends"):
        lmc.fit(GRAPH, made(), lmc.LMC(), epochs=3, resume=True, **options)


CHANGES = {
    "nothing": lambda data: None,
    "x": lambda data: data.update({"x": 2 * data.x}),
    "val_mask": lambda data: data.update({"val_mask": data.val_mask & (torch.arange(len(data.y)) % 2 == 0)}),
    "edge_weight": lambda data: data.update({"edge_weight": torch.full((data.num_edges,), 2.0)}),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_graph_with_other_arrays_is_another(tmp_path, changed):
    options = {"parts": 4, "out": tmp_path / "a"}
    lmc.fit(GRAPH, made(), lmc.LMC(), epochs=1, **options)
    data = GRAPH.to_pyg()
    CHANGES[changed](data)
    expected = pytest.raises(lmc.RunError, match="of a run on another graph than Graph")
    with nullcontext() if changed == "nothing" else expected:
        lmc.fit(lmc.Graph.from_pyg(data), made(), lmc.LMC(), epochs=2, resume=True, **options)


def test_files_of_others_stay(tmp_path):
    (tmp_path / "a" / "sub").mkdir(parents=True)
    others = [tmp_path / "a" / ".film.partial", tmp_path / "a" / "sub" / f".x.{'0' * 32}.partial"]
    left = tmp_path / "a" / f".config.toml.{'0' * 32}.partial"
    for file in (*others, left):
        file.touch()
    lmc.fit(GRAPH, made(), lmc.LMC(), parts=4, epochs=1, out=tmp_path / "a")
    assert all(file.exists() for file in others)
    assert not left.exists()


def test_resume_without_a_folder_is_one_line():
    with pytest.raises(lmc.ArgumentError, match=r"^resume=True: there is no folder"):
        lmc.fit(GRAPH, made(), lmc.LMC(), parts=4, epochs=1, resume=True)
