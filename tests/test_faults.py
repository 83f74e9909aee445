"""Kills, full disks, too little memory, and many at once: no work is lost, and what is left is whole."""

import os
import re
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import lmc
from commands import arguments, best_weights, called, last_weights, metrics
from lmc.training.memory_check import RunNeeds

HERE = str(Path(__file__).parent)


def python(script, *arguments, timeout=300, **environment):
    """The output of a script that imports the library once and then forks."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=HERE,
        env=os.environ | {"LMC_KERNELS": "plain", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- kills ---------------------------------------------------------------------------------------

KILLS = """
import os, random, signal, sys, time
from contextlib import nullcontext
from pathlib import Path
import lmc
from lmc.batching import partition
from commands import called

chance, place, kills = random.Random(0), Path(sys.argv[1]), {"train": 30, "save": 20, "cache": 20}
small, large = lmc.synthetic(nodes=200), lmc.synthetic(nodes=300)
small.save(place / "graph")


def train():
    called("train", "--resume", place / "killed", "--quiet")


def save():
    while True:
        small.save(place / "graph")
        large.save(place / "graph")


def cache():
    for seed in range(10**9):
        lmc.partition(large, 8, "random", seed)


def whole(kind):
    if kind == "save":
        assert lmc.load(place / "graph").num_nodes in (200, 300)
    if kind == "cache":
        for file in Path(os.environ["LMC_CACHE"], "partitions").glob("*.npy"):
            assert partition._read(file, 300) is not None


killed = 0
for kind, times in kills.items():
    for _ in range(times):
        child = os.fork()
        if child == 0:
            {"train": train, "save": save, "cache": cache}[kind]()
            os._exit(0)
        time.sleep(chance.uniform(0, 0.5))
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        whole(kind)
print(killed)
"""


@pytest.mark.posix
@pytest.mark.process
@pytest.mark.long
def test_seventy_kills_at_random_moments(small, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    os.environ["LMC_KERNELS"] = "plain"
    try:
        for folder, epochs in ((straight, 400), (killed, 1)):
            options = [*arguments(small, epochs=epochs), "--out", folder, "--quiet"]
            assert called("train", *options).returncode == 0
        config = killed / "config.toml"
        config.write_text(config.read_text().replace("epochs = 1\n", "epochs = 400\n"))
        printed = python(KILLS, tmp_path, LMC_CACHE=str(tmp_path / "cache"))
        assert int(printed) >= 50
        done = called("train", "--resume", killed, "--quiet")
    finally:
        del os.environ["LMC_KERNELS"]
    assert done.returncode == 0, done.stderr
    assert metrics(killed) == metrics(straight)
    assert best_weights(killed) == best_weights(straight)
    assert last_weights(killed) == last_weights(straight)


# -- a full disk ---------------------------------------------------------------------------------

FULL = """
import resource, signal, sys
from contextlib import nullcontext
from pathlib import Path
import lmc
from commands import called

place, found = Path(sys.argv[1]), {}
before, other = lmc.synthetic(nodes=60, features=4), lmc.synthetic(nodes=80, features=4)
before.save(place / "graph")
before.save(place / "kept")
train = ("train", "--data", place / "kept", "--parts", 4, "--hidden", 4, "--epochs", 3, "--quiet")
assert called(*train, "--out", place / "run").returncode == 0
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def outcome(*command):
    done = called(*command)
    lines = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2) and len(lines) == (1 if done.returncode else 0), (command, done)
    return done.returncode


for limit in (0, 1, 100, 500, 1000, 2000, 4000, 6000, 9000, 20_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        other.save(place / "graph")
    except lmc.GraphError as error:
        assert "cannot be written" in str(error)
        found["save"] = 1
    lmc.partition(before, 3, seed=limit)
    out = place / f"run{limit}"
    codes = {
        "train": outcome(*train, "--out", out),
        "report": outcome("report", place / "run", "--out", place / f"{limit}.html"),
        **{
            form: outcome("predict", place / "run", "--out", place / f"{limit}.{form}")
            for form in ("csv", "npz", "parquet")
        },
    }
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    left = [str(file) for file in place.rglob("*.partial")]
    assert not left, left
    graph = lmc.load(place / "graph")
    assert graph.num_nodes in (60, 80)
    before.save(place / "graph")
    if (out / "config.toml").exists():
        done = called("train", "--resume", out, "--quiet")  # it goes on where there is room
        assert done.returncode == 0, done.stderr
    assert called("train", "--resume", place / "run", "--quiet").returncode == 0
    found |= {name: 1 for name, code in codes.items() if code}
print(sorted(found))
"""


@pytest.mark.posix
@pytest.mark.process
@pytest.mark.long
def test_a_full_disk_in_each_kind_of_write(tmp_path):
    printed = python(FULL, tmp_path, LMC_CACHE=str(tmp_path / "cache"))
    assert printed.strip() == "['csv', 'npz', 'parquet', 'report', 'save', 'train']"


# -- too little memory ---------------------------------------------------------------------------


def fit(graph, estimator, **options):
    model = lmc.GCN(graph.num_features, 64, graph.num_classes, layers=3)
    return lmc.fit(graph, model, estimator, epochs=1, **options)


@pytest.mark.parametrize(
    ("estimator", "given", "advice"),
    [
        (lmc.LMC(), "parts_per_batch=8", "parts_per_batch="),
        (lmc.FullBatch(), "FullBatch", "LMC with parts="),
    ],
)
def test_too_little_memory_is_said_before_with_a_setting_that_fits(monkeypatch, estimator, given, advice):
    graph = lmc.synthetic(nodes=2000)
    free = 4_700_000 if isinstance(estimator, lmc.LMC) else 3_500_000
    monkeypatch.setattr("lmc.memory_use.free", lambda: free)
    with pytest.raises(
        lmc.ArgumentError, match=rf"{given}: training needs 0\.\d+ GB, .* are free; "
    ) as raised:
        fit(graph, estimator, parts=8, parts_per_batch=8)
    text = str(raised.value)
    assert advice in text
    settings = dict(pair.split("=") for pair in text.split(";")[1].replace(",", " ").split() if "=" in pair)
    fit(graph, lmc.LMC(), **{"parts": 8} | {name: int(value) for name, value in settings.items()})


@pytest.mark.parametrize(
    ("free", "tried", "said"),
    [
        (4_700_000, 4_600_000, None),
        (4_700_000, 4_800_000, "parts_per_batch=8: training needs 0.0048 GB, 0.0047 GB are free"),
        (3_000_000, 1, "parts_per_batch=8: training needs 0.0054 GB, 0.003 GB are free"),  # nobody tries
    ],
)
def test_what_a_formula_nearly_allows_is_tried(monkeypatch, free, tried, said):
    monkeypatch.setattr("lmc.memory_use.free", lambda: free)
    monkeypatch.setattr(RunNeeds, "tried", lambda *_: tried)
    expected = nullcontext() if said is None else pytest.raises(lmc.ArgumentError, match=re.escape(said))
    with expected:
        fit(lmc.synthetic(nodes=2000), lmc.LMC(), parts=8, parts_per_batch=8)


def test_what_never_fits_says_so(monkeypatch):
    monkeypatch.setattr("lmc.memory_use.free", lambda: 1000)
    with pytest.raises(lmc.ArgumentError, match="fewer hidden units need less"):
        fit(lmc.synthetic(nodes=200), lmc.LMC(), parts=4)


LIMITED = """
import resource, sys
from commands import called

size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30),) * 2)
command = ("train", "--hidden", 50_000, "--parts", 4, "--epochs", 1, "--out", sys.argv[1], "--quiet")
done = called(*command)
print(done.returncode, done.stderr)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads the size of the process from /proc")
def test_a_limit_of_the_system_is_seen(tmp_path):
    code, line = python(LIMITED, tmp_path / "a").split(maxsplit=1)
    assert code == "2"
    assert "training needs" in line
    assert "are free" in line


# -- many at once --------------------------------------------------------------------------------

EIGHT = """
import os, sys
import torch
import lmc

torch.set_num_threads(1)
graph = lmc.synthetic(nodes=2000)
children = []
for number in range(8):
    child = os.fork()
    if child == 0:
        torch.manual_seed(0)
        model = lmc.GCN(graph.num_features, 16, graph.num_classes)
        result = lmc.fit(graph, model, lmc.LMC(), parts=16, parts_per_batch=4, epochs=3)
        line = " ".join(f"{record.loss:.17g}" for record in result.history) + "\\n"
        os.write(1, line.encode())
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


@pytest.mark.process
@pytest.mark.long
def test_eight_trainings_share_one_cache(tmp_path):
    printed = python(EIGHT, LMC_CACHE=str(tmp_path)).splitlines()
    assert len(printed) == 8
    assert len(set(printed)) == 1
    assert len(list((tmp_path / "partitions").iterdir())) == 1


def test_a_graph_that_is_replaced_while_it_is_opened(tmp_path):
    small, large = lmc.synthetic(nodes=100), lmc.synthetic(nodes=150)
    small.save(tmp_path / "graph")
    done = threading.Event()

    def replace():
        for _ in range(30):
            large.save(tmp_path / "graph")
            small.save(tmp_path / "graph")
        done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    seen = []
    while not done.is_set():
        graph = lmc.Graph.open(tmp_path / "graph")
        expected = {100: small, 150: large}[graph.num_nodes]
        assert torch.equal(graph.x, expected.x)
        assert torch.equal(graph.adjacency.indices, expected.adjacency.indices)
        seen.append(graph.num_nodes)
    writer.join()
    assert {*seen} == {100, 150}


# -- numbers -------------------------------------------------------------------------------------


def trained(graph, estimator, **options):
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 16, graph.num_classes, layers=3)
    return lmc.fit(graph, model, estimator, **{"parts": 4, "epochs": 3} | options)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run(value):
    def loss(prediction, label):
        return prediction.sum(dim=1) * value

    with pytest.raises(
        lmc.RunError, match=r"epoch 1, step 1: the loss is (nan|inf|-inf): the function loss= may"
    ):
        trained(lmc.synthetic(nodes=200), lmc.LMC(), loss=loss)


class Spoil(lmc.Callback):
    """Puts a value into a history after the first epoch."""

    def __init__(self, which, value):
        self.which, self.value = which, value

    def on_epoch(self, training, record):
        getattr(training.estimator, self.which)[2].values.fill_(self.value)


@pytest.mark.parametrize("which", ["embeddings", "auxiliaries"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_history_that_is_no_number_ends_the_run(which, value):
    with pytest.raises(lmc.RunError, match=r"epoch 2, step \d: (the loss is|a weight is not finite)"):
        trained(lmc.synthetic(nodes=200), lmc.LMC(), callbacks=[Spoil(which, value)])


def test_half_precision_keeps_what_is_out_of_its_range():
    """Values beyond 65,504 become that, not infinity."""
    data = lmc.synthetic(nodes=200).to_pyg()
    data.x = data.x * 1e7
    graph = lmc.Graph.from_pyg(data)
    estimator = lmc.LMC(alpha=0.4, precision="half")
    result = trained(graph, estimator, lr=1e-6)
    assert all(torch.isfinite(history.values).all() for history in estimator.embeddings.values())
    assert float(estimator.embeddings[1].values.abs().max()) == 65504
    assert len(result.history) == 3


@pytest.mark.parametrize("column", [float("nan"), float("inf"), -float("inf")])
def test_a_feature_column_that_is_no_number_is_named(column):
    data = lmc.synthetic(nodes=200).to_pyg()
    data.x[:, 3] = column
    rule = r"x\[0, 3\] = .*: features must be finite; torch.as_tensor\(x\).nan_to_num\(0, 0, 0\) puts zeros"
    with pytest.raises(lmc.GraphError, match=rule):
        lmc.Graph.from_pyg(data)
    data.x = torch.as_tensor(data.x).nan_to_num(0, 0, 0)
    assert lmc.Graph.from_pyg(data).x[:, 3].abs().max() == 0


def test_a_learning_rate_of_zero_changes_no_weight():
    graph = lmc.synthetic(nodes=200)
    torch.manual_seed(0)
    before = lmc.GCN(graph.num_features, 16, graph.num_classes, layers=3).state_dict()
    after = trained(graph, lmc.LMC(), lr=0.0).model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_learning_rate_of_a_million_ends_in_one_line_or_in_numbers(optimizer):
    try:
        result = trained(lmc.synthetic(nodes=200), lmc.LMC(), lr=1e6, optimizer=optimizer)
    except lmc.RunError as error:
        ended = str(error)
    else:
        assert all(bool(weight.isfinite().all()) for weight in result.model.state_dict().values())
        return
    assert "lr=1e+06" in ended
    assert len(ended.splitlines()) == 1
