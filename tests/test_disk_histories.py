"""Histories on disk: the bytes of those in memory, whatever is in memory, is stopped, is killed or fails."""

import errno
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors import safe_open

import lmc
from commands import arguments, best_weights, called, fails, metrics
from lmc.estimators import disk_history, extent_file
from lmc.estimators.disk_history import DiskHistories
from lmc.estimators.history import MemoryHistory, Remembered
from test_resumed import StopAt

GRAPH = lmc.synthetic(nodes=300, features=8, classes=4)
ESTIMATORS = {
    "lmc": lmc.LMC,
    "lmc values": lambda: lmc.LMC(alpha=0.4, score="2x-x^2"),
    "gas": lmc.GAS,
    "fm": lmc.GraphFM,
    "top": lambda: lmc.TOP(rank=8, basis="history"),
    "vrgcn": lambda: lmc.VRGCN(fanouts=[2], batch_size=64),
    "mvs": lambda: lmc.MVSGNN(batch_size=64, every=3),
    "spider": lambda: lmc.Spider(lmc.LMC(), every=3),
}
SOME = {"parts": 12, "parts_per_batch": 3}


# -- the store -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("memory", [0, 20_000, 1 << 30])
@pytest.mark.parametrize("of_a_read", [2, 4096])  # rows are read by themselves, and by whole extents
def test_what_is_pulled_is_what_was_pushed(tmp_path, monkeypatch, memory, dtype, of_a_read):
    """Against the store in memory: any places at any time, expected or not, in frames of any number."""
    monkeypatch.setattr(disk_history, "BYTES_OF_A_READ", of_a_read)
    random = np.random.default_rng(memory)
    made = DiskHistories(tmp_path, memory, checkpoints=2)
    places = made.arrange(torch.arange(900), torch.from_numpy(random.integers(0, 30, 900)))
    assert not torch.equal(places, torch.arange(900))
    pairs = [(width, made(900, width, dtype), MemoryHistory(900, width, dtype)) for width in (0, 7, 32)]

    def some():
        return torch.from_numpy(random.permutation(900)[: random.integers(0, 600)])

    for turn in range(25):
        written, read = some(), some()
        written[::7] = -1
        values = torch.from_numpy(random.normal(size=(len(written), 32)).astype(np.float32))
        ahead = threading.Thread(target=lambda read=read: [disk.expect(read) for _, disk, _ in pairs])
        ahead.start()
        for width, disk, memory_history in pairs:
            disk.push(written, values[:, :width])
            memory_history.push(written, values[:, :width])
            assert torch.equal(disk.pull(read), memory_history.pull(read))
        ahead.join()
        if turn % 8 == 7:
            tables = [disk.snapshot().clone() for _, disk, _ in pairs]
            kept = [history.values.clone() for _, _, history in pairs]
            made.keep()
    assert (made.read_bytes == 0) == (memory == 1 << 30)
    made.settle()
    again = DiskHistories(tmp_path, memory, checkpoints=2)
    again.arrange(torch.arange(900), torch.from_numpy(np.random.default_rng(memory).integers(0, 30, 900)))
    for (width, _, _), table, values in zip(pairs, tables, kept, strict=True):
        restored, expected = again(900, width, dtype), MemoryHistory(900, width, dtype)
        restored.restore(table)
        expected.restore(values)
        assert torch.equal(restored.pull(torch.arange(900)), expected.pull(torch.arange(900)))


def test_a_checkpoint_outlives_what_is_written_after_it(tmp_path):
    """As many as are kept, each with the values of its time, whether or not an extent has changed since."""
    made = DiskHistories(tmp_path, 0, checkpoints=3)
    history, everyone = made(3000, 2, torch.float32), torch.arange(3000)
    made.settle()
    kept = []
    for turn in range(9):
        for _ in range(3):  # the last of these counts
            history.push(torch.arange(1024 * (turn % 3), 1024 * (turn % 3) + 900), torch.rand(900, 2))
        kept.append((history.snapshot().clone(), history.pull(everyone).clone()))
        made.keep()
        history.push(everyone[:50], torch.rand(50, 2))  # after it
        history.snapshot()  # of which there is no checkpoint
        for table, values in kept[-3:]:
            other = DiskHistories(tmp_path, 0, checkpoints=3)(3000, 2, torch.float32)
            other.restore(table)
            assert torch.equal(other.pull(everyone), values)


def test_extents_that_a_batch_writes_whole_are_not_read(tmp_path):
    clusters = torch.arange(400) % 8
    made = DiskHistories(tmp_path, 0)
    nodes = Remembered(400, made.arrange(torch.arange(0, 400, 2), clusters))
    history = made(len(nodes), 4, torch.float32)
    for _ in range(3):
        for cluster in range(0, 8, 2):
            history.push(nodes.places((clusters == cluster).nonzero()[:, 0]), torch.rand(50, 4))
    history.snapshot()
    assert made.read_bytes == 0
    assert made.written_bytes == 3 * 200 * 16
    assert nodes.places(torch.tensor([0, 8, 2, 1])).tolist() == [0, 1, 50, -1]


def test_of_few_rows_no_more_is_read(tmp_path):
    made = DiskHistories(tmp_path, 0)
    history = made(100_000, 128, torch.float32)
    values = torch.rand(100_000, 128)
    history.push(torch.arange(100_000), values)
    history.snapshot()
    some = torch.arange(0, 90_000, 7777)
    history.expect(some)
    assert torch.equal(history.pull(some), values[some])
    assert made.read_bytes == len(some) * 512
    made.settle()
    os.truncate(tmp_path / "1.extents", 1 << 20)
    with pytest.raises(lmc.RunError, match=r"1\.extents: ends before its last extent"):
        history.pull(some)


# -- whole trainings -----------------------------------------------------------------------------


def trained(out, estimator, resume=False, **options):
    torch.manual_seed(0)
    model = lmc.GCN(8, 6, 4, layers=3, dropout=0.3, norm="batch")
    options = {"epochs": 3, **SOME, "out": out, "resume": resume, "history_cache": "1KB", **options}
    result = lmc.fit(GRAPH, model, ESTIMATORS[estimator](), **options)
    return [torch.tensor([r.loss for r in result.history]), *(p.detach().clone() for p in model.parameters())]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_training_has_the_bytes_of_one_in_memory(tmp_path, monkeypatch, estimator):
    monkeypatch.setattr(disk_history, "BYTES_OF_A_READ", 16)  # of some extents all, of some a few rows
    init = "exact" if estimator in ("gas", "lmc values") else "zero"
    in_memory = trained(tmp_path / "memory", estimator, init=init)
    on_disk = trained(tmp_path / "disk", estimator, init=init, histories="disk")
    assert same(in_memory, on_disk)
    assert not list((tmp_path / "disk").rglob(".*"))
    size = sum(file.stat().st_size for file in (tmp_path / "disk" / "histories").iterdir())
    assert size > 0
    # Gone on with from the middle of an epoch.
    trained(tmp_path / "stopped", estimator, init=init, histories="disk", callbacks=[StopAt(5)])
    assert same(in_memory, trained(tmp_path / "stopped", estimator, True, init=init, histories="disk"))


@pytest.mark.parametrize("precision", ["half", "int8"])
def test_so_does_one_with_few_bits_and_any_memory(tmp_path, precision):
    options = {"precision": precision, "gradient_error_every": 2}
    in_memory = trained(None, "lmc", **options)
    for number, cache in enumerate(["0", "20KB", "1GB"]):
        out = tmp_path / str(number)
        options |= {"background": number != 1, "history_cache": cache}
        assert same(in_memory, trained(out, "lmc", histories="disk", **options))


def test_its_memory_is_what_is_reckoned(tmp_path, monkeypatch):
    monkeypatch.setattr("lmc.memory_use.free", lambda: 600_000)
    with pytest.raises(lmc.ArgumentError, match="training needs"):
        lmc.fit(GRAPH, lmc.GCN(8, 200, 4, layers=3), lmc.GAS(), 30, 1, 1)
    out = {"out": tmp_path / "run", "histories": "disk", "history_cache": "1KB"}
    lmc.fit(GRAPH, lmc.GCN(8, 200, 4, layers=3), lmc.GAS(), 30, 1, 1, **out)


def test_wrong_options_are_one_line(tmp_path, small):
    with pytest.raises(lmc.ArgumentError, match="histories='disk': there is no folder"):
        trained(None, "lmc", histories="disk")
    with pytest.raises(lmc.ArgumentError, match="histories='tape': must be one of memory, disk"):
        trained(tmp_path, "lmc", histories="tape")
    with pytest.raises(lmc.ArgumentError, match="history_cache='much': must be bytes, such as"):
        trained(tmp_path, "lmc", histories="disk", history_cache="much")
    run = tmp_path / "run"
    assert called("train", *arguments(small, epochs=1), "--out", run, "--histories", "disk").returncode == 0
    line = fails(2, "train", "--resume", run, "--set", "training.histories=memory", through=called)
    assert "goes on with the settings of the run" in line
    more = ("--epochs", 2, "--set", "training.history_cache=1MB")
    assert called("train", "--resume", run, *more).returncode == 0


# -- kills ---------------------------------------------------------------------------------------

KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from commands import called

chance, folder, killed = random.Random(int(sys.argv[3])), Path(sys.argv[1]), 0
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        called("train", "--resume", folder, "--quiet")
        os._exit(0)
    time.sleep(chance.uniform(0, 0.6))
    os.kill(child, signal.SIGKILL)
    killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
print(killed)
"""


@pytest.mark.posix
@pytest.mark.process
@pytest.mark.parametrize(
    ("times", "epochs", "checkpoint"),
    [
        (5, 30, "last"),
        pytest.param(60, 400, "last", marks=pytest.mark.long),
        pytest.param(60, 400, 2, marks=pytest.mark.long),
    ],
)
def test_kills_at_random_moments(small, tmp_path, times, epochs, checkpoint):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    options = ["--histories", "disk", "--set", "training.history_cache=2KB", "--checkpoint", checkpoint]
    options += ["--checkpoint-seconds", 0, "--quiet"]  # after every step
    for folder, until in ((straight, epochs), (killed, 1)):
        assert called("train", *arguments(small, epochs=until), "--out", folder, *options).returncode == 0
    config = killed / "config.toml"
    config.write_text(config.read_text().replace("epochs = 1\n", f"epochs = {epochs}\n"))
    done = subprocess.run(
        [sys.executable, "-c", KILLS, killed, str(times), "0"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= min(times, 3)
    assert called("train", "--resume", killed, "--quiet").returncode == 0
    assert metrics(killed) == metrics(straight)
    assert best_weights(killed) == best_weights(straight)
    assert last_state(killed) == last_state(straight)


def last_state(folder):
    """All tensors of the last checkpoint, and the checksums of extents, which may be in other slots."""
    file = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    with safe_open(file, "np") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    tables = {name: value[:, 1] for name, value in tensors.items() if is_table(name)}
    assert tables
    return {name: value.tobytes() for name, value in (tensors | tables).items()}


def is_table(name):
    return name.startswith((".estimator.embeddings", ".estimator.auxiliaries"))


# -- faults --------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path):
    """The folder of a run that was stopped, with two checkpoints, and how it ends where nothing happens."""
    out, options = tmp_path / "run", {"histories": "disk", "checkpoint_seconds": 0, "epochs": 4}
    straight = trained(tmp_path / "straight", "lmc", **options)
    trained(out, "lmc", callbacks=[StopAt(10)], **options)
    return out, lambda: same(straight, trained(out, "lmc", True, **options))


def slots_of(out, number):
    """Of the checkpoint of this number, the last is -1: by file, where it says that extents are."""
    file = sorted((out / "checkpoints").glob("*.safetensors"))[number]
    with safe_open(file, "np") as opened:
        return {name: opened.get_tensor(name)[:, 0] for name in opened.keys() if is_table(name)}  # noqa: SIM118


def turn_a_bit(out, which=lambda before, after: before != after):
    """In the first file, of an extent of the last checkpoint."""
    before, after = (next(iter(slots_of(out, number).values())) for number in (-2, -1))
    extent = int(which(before, after).nonzero()[0][0])
    file = out / "histories" / "1.extents"
    # Extents of 12 clusters of 25 nodes of 6 numbers each are a page each.
    place = (int(after[extent]) * len(after) + extent) * extent_file.ALIGNMENT + 5
    content = bytearray(file.read_bytes())
    content[place] ^= 16
    file.write_bytes(content)
    return extent


def test_a_turned_bit_is_seen_and_the_checkpoint_before_is_used(stopped):
    out, ends_as_it_should = stopped
    extent = turn_a_bit(out)
    with pytest.warns(UserWarning, match=f"1.extents: extent {extent} has changed since .* the one before"):
        assert ends_as_it_should()


def test_a_bit_that_all_checkpoints_need_is_one_line(stopped):
    out, ends_as_it_should = stopped
    turn_a_bit(out, lambda before, after: (before == after) & (after >= 0))
    with (
        pytest.warns(UserWarning, match="has changed since it was written"),
        pytest.raises(lmc.RunError, match="none of its 2 checkpoints is whole"),
    ):
        ends_as_it_should()


def test_a_torn_file_is_seen(stopped):
    out, ends_as_it_should = stopped
    file = out / "histories" / "1.extents"
    os.truncate(file, file.stat().st_size // 2)
    with (
        pytest.warns(UserWarning, match="1.extents: (ends in the middle of extent|extent .* has changed)"),
        pytest.raises(lmc.RunError, match="none of its 2 checkpoints is whole"),
    ):
        ends_as_it_should()


@pytest.mark.parametrize("call", ["preadv", "pwritev", "fsync"])
def test_a_disk_that_fails_is_one_line_and_the_run_goes_on(tmp_path, monkeypatch, call):
    """In the middle of an epoch: a read that fails, a disk that is full, one that does not confirm."""
    options = {"histories": "disk", "epochs": 4}
    straight = trained(tmp_path / "straight", "lmc", **options)
    left, real = [60 if call != "fsync" else 6], getattr(os, call)

    def failing(*given):
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC if call == "pwritev" else errno.EIO, "the disk says no")
        return real(*given)

    monkeypatch.setattr(extent_file.os, call, failing)
    with pytest.raises(lmc.RunError, match=r"cannot be (read|written to) \(the disk says no\)"):
        trained(tmp_path / "run", "lmc", **options)
    monkeypatch.undo()
    assert same(straight, trained(tmp_path / "run", "lmc", True, **options))


@pytest.mark.posix
@pytest.mark.process
def test_a_full_disk(small, tmp_path, monkeypatch):
    """A limit of the system for the size of a file, in a process of its own."""
    monkeypatch.setenv("LMC_KERNELS", "plain")  # compiled ones are files, too
    script = """
import resource, signal, sys
from commands import called
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
done = called(*sys.argv[1:])
print(done.stderr)
sys.exit(done.returncode)
"""
    train = [*arguments(small, epochs=3), "--quiet", "--histories", "disk", "--checkpoint-seconds", "0"]
    assert called("train", *train, "--out", tmp_path / "straight").returncode == 0
    command = [sys.executable, "-c", script, "train", *map(str, train), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=200)
    assert done.returncode == 1, done
    (line,) = [line for line in done.stdout.splitlines() if line and "torch.jit" not in line]
    assert "extents: cannot be written to (File too large)" in line
    assert called("train", "--resume", tmp_path / "run", "--quiet").returncode == 0
    assert metrics(tmp_path / "run") == metrics(tmp_path / "straight")
    assert last_state(tmp_path / "run") == last_state(tmp_path / "straight")


def test_a_second_run_in_the_folder_changes_nothing(stopped):
    out, ends_as_it_should = stopped
    files = {file: file.read_bytes() for file in (out / "histories").iterdir()}
    lock = FileLock(out / "lock")
    with lock, pytest.raises(lmc.RunError, match="another process is training in it"):
        trained(out, "lmc", True, histories="disk", init="exact", checkpoint_seconds=0, epochs=4)
    gc.collect()
    patience = time.monotonic() + 60
    while list((out / "histories").glob(".*")) and time.monotonic() < patience:
        time.sleep(0.01)  # its own file goes with the last write to it, in the background
    assert {file: file.read_bytes() for file in (out / "histories").iterdir()} == files
    assert ends_as_it_should()


def test_what_is_still_to_be_written_when_histories_go_is_written_nowhere(tmp_path):
    (tmp_path / "1.extents").write_bytes(b"of another run")
    histories, go_on = DiskHistories(tmp_path, memory=1 << 20), threading.Event()
    workers = histories.workers
    for _ in range(disk_history.THREADS):
        workers.submit(go_on.wait)
    histories(3, 2, torch.float32).push(torch.arange(3), torch.ones(3, 2))
    gc.collect()
    go_on.set()
    workers.shutdown()
    gc.collect()
    assert [file.name for file in tmp_path.iterdir()] == ["1.extents"]
    assert (tmp_path / "1.extents").read_bytes() == b"of another run"


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "histories").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(lmc.RunError, match="histories: a symbolic link"):
        trained(tmp_path / "run", "lmc", histories="disk")
    assert not list((tmp_path / "elsewhere").iterdir())
