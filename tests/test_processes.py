"""Runs that several real processes share: the same bytes, whatever happens to one of them."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lmc
import slow_link
from lmc.runs import checkpoint
from shared_run import CASES

pytestmark = [pytest.mark.process, pytest.mark.posix]
HERE = Path(__file__).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(count, *arguments, port=None, environment=None, also=lambda rank: ()):
    """As torch's launcher would start them."""
    port = port or free_port()
    told = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    found = []
    for rank in range(count):
        own = {name: str(value) for name, value in (told | {"RANK": rank}).items()}
        found.append(
            subprocess.Popen(
                [sys.executable, *map(str, arguments), *also(rank)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=HERE,
                env=os.environ | {"LMC_THREADS": "1"} | (environment or {}) | own,
            )
        )
    return found


def ends(processes, timeout=150):
    """Exit codes, and lines that were said, but for those about kernels."""
    said = [process.communicate(timeout=timeout)[1] for process in processes]
    lines = [
        [line for line in text.splitlines() if line.startswith("lmc:") and "compiling" not in line]
        for text in said
    ]
    return [process.returncode for process in processes], lines, said


def shared(count, folder, *cases):
    folder.mkdir(exist_ok=True)
    codes, _, said = ends(start(count, "shared_run.py", folder, *cases))
    assert codes == [0] * count, said
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(count)]


def kept(folder):
    """What checkpoints hold, but for times and memory: states by place, names of shards."""
    states = {}
    for file in sorted(folder.glob("*-*.*.safetensors")):
        if ".shard-" not in file.name:
            state = checkpoint._load(file)
            for name in ("wall_seconds", "seconds"):
                state.pop(name)
            for record in state["records"]:
                for name in ("seconds", "memory", "step_memory"):
                    record.pop(name)
            states[file.name.partition(".")[0]] = checkpoint.to_bytes(state)
    return states, sorted(file.name for file in folder.glob("*.shard-*"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process gives, for every case."""
    folder = tmp_path_factory.mktemp("one")
    (found,) = shared(1, folder, *CASES)
    return folder, found


def check_same(alone, folder, found, cases):
    for name in cases:
        for of_rank in found:
            assert of_rank[name] == alone[1][name], name
        one, other = (kept(each / name / "checkpoints") for each in (alone[0], folder))
        assert one == other, name
        assert (folder / name / "best.safetensors").read_bytes() == (
            alone[0] / name / "best.safetensors"
        ).read_bytes()


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.long)])
def test_weights_metrics_predictions_and_checkpoints_are_those_of_one_process(tmp_path, alone, count):
    check_same(alone, tmp_path / "n", shared(count, tmp_path / "n", *CASES), CASES)


@pytest.mark.long
def test_four_processes_too(tmp_path, alone):
    cases = ["lmc", "ahead", "fm"]
    check_same(alone, tmp_path / "n", shared(4, tmp_path / "n", *cases), cases)


@pytest.mark.long
def test_eight_processes_too(tmp_path, alone):
    check_same(alone, tmp_path / "n", shared(8, tmp_path / "n", "ahead"), ["ahead"])


@pytest.mark.parametrize(
    ("first", "then"), [(2, 1), *(pytest.param(*pair, marks=pytest.mark.long) for pair in [(1, 4), (4, 2)])]
)
def test_a_run_goes_on_with_another_number_of_processes(tmp_path, alone, first, then):
    cases = ["lmc", "ahead", "gradients", "gat"]
    stopped = shared(first, tmp_path / "n", *(f"{case}:stop3" for case in cases))
    assert {found[case]["stopped"] for found in stopped for case in cases} == {"interrupted"}
    check_same(alone, tmp_path / "n", shared(then, tmp_path / "n", *(f"{c}:resume" for c in cases)), cases)


# -- the command --------------------------------------------------------------------------------------

SETTINGS = [
    *("--hidden", "8", "--layers", "2", "--parts", "8", "--parts-per-batch", "2", "--shards", "4"),
    *("--checkpoint-seconds", "0", "--device", "cpu", "--set", "training.evaluate_every=1000"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph") / "g"
    lmc.synthetic(nodes=400, features=8, classes=4).save(folder)
    return str(folder)


def train(count, small, out, *more, **options):
    return start(count, "-m", "lmc", "train", "--data", small, *SETTINGS, "--out", out, *more, **options)


def weights(folder):
    return (folder / "best.safetensors").read_bytes()


@pytest.fixture(scope="module")
def straight(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "a"
    assert ends(train(1, small, folder, "--epochs", 60))[0] == [0]
    return folder


def wait_for_epoch(folder, number, timeout=100):
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        file = folder / "metrics.jsonl"
        if file.exists() and len(file.read_text().splitlines()) >= number:
            return
        time.sleep(0.02)
    raise AssertionError("no such epoch")


@pytest.mark.parametrize(
    ("rank", "then"),
    [(1, 2), pytest.param(0, 1, marks=pytest.mark.long), pytest.param(0, 4, marks=pytest.mark.long)],
)
def test_a_rank_that_is_killed_is_named_and_the_run_goes_on_to_the_same_bytes(
    tmp_path, small, straight, rank, then
):
    folder = tmp_path / "a"
    processes = train(2, small, folder, "--epochs", 60)
    wait_for_epoch(folder, 5)
    processes[rank].kill()
    codes, lines, said = ends(processes)
    assert codes[rank] == -signal.SIGKILL
    assert codes[1 - rank] == 1, said
    (line,) = lines[1 - rank]  # on a busy machine its end may be seen by its silence first
    silent = "no answer for 120 seconds; stopped, or out of reach"
    assert line in [f"lmc: rank {rank}: {why}" for why in ("has ended without a word", silent)]
    resumed = start(then, "-m", "lmc", "train", "--resume", folder)
    assert ends(resumed)[0] == [0] * then
    assert weights(folder) == weights(straight)


@pytest.mark.long
def test_twenty_kills_of_any_rank_leave_the_same_bytes(tmp_path, small, straight):
    folder, epochs, chance = tmp_path / "a", [*range(1, 60, 3)], random.Random(25)
    processes, count = train(2, small, folder, "--epochs", 60), 2
    for number, epoch in enumerate(epochs):
        wait_for_epoch(folder, epoch)
        time.sleep(chance.random() / 10)  # within an epoch, or while it is saved
        processes[chance.randrange(count)].kill()
        ends(processes)
        count = (1, 2, 4)[number % 3]
        processes = start(count, "-m", "lmc", "train", "--resume", folder)
    assert len(epochs) == 20
    assert ends(processes)[0] == [0] * count
    assert weights(folder) == weights(straight)


@pytest.mark.long
def test_a_rank_that_stalls_is_named(tmp_path, small):
    folder = tmp_path / "a"
    processes = train(2, small, folder, "--epochs", 100_000, environment={"LMC_TIMEOUT": "4"})
    wait_for_epoch(folder, 3)
    processes[1].send_signal(signal.SIGSTOP)
    _, err = processes[0].communicate(timeout=60)
    processes[1].kill()
    processes[1].communicate()
    assert processes[0].returncode == 1
    (line,) = [line for line in err.splitlines() if line.startswith("lmc: rank")]
    assert re.fullmatch(r"lmc: rank 1: no answer for 4 seconds; stopped, or out of reach", line)


def test_settings_that_differ_and_shards_that_do_not_divide_are_one_line(tmp_path, small):
    more = {"LMC_TIMEOUT": "60"}
    codes, lines, _ = ends(train(2, small, tmp_path / "a", "--epochs", 2, environment=more, also=_other_seed))
    assert codes == [2, 2]
    assert lines == [["lmc: rank 1: seed is 7; must be 0, as in rank 0"]] * 2
    codes, lines, _ = ends(train(3, small, tmp_path / "b", "--epochs", 2))
    rule = "shards=4: 3 processes cannot share them; shards must be a multiple of 3"
    assert codes == [2] * 3
    assert lines == [[f"lmc: rank {rank}: {rule}"] for rank in range(3)]


def _other_seed(rank):
    return ["--seed", "7"] if rank == 1 else []


def test_a_port_that_is_taken_is_one_line(tmp_path, small):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        more = {"LMC_TIMEOUT": "3"}
        codes, lines, _ = ends(train(2, small, tmp_path / "a", port=port, environment=more))
    assert codes == [1, 1]
    for rank, (line,) in enumerate(lines):
        assert line.startswith(f"lmc: rank {rank}: cannot meet the others at 127.0.0.1:{port} (")


def test_the_command_starts_them_and_starts_them_again(tmp_path, small, straight):
    """One of them is killed; all are started again, and go on."""
    command = [sys.executable, "-m", "lmc", "train", "--data", small, *SETTINGS, "--epochs", "60"]
    folder = tmp_path / "a"
    more = ["--processes", "2", "--max-restarts", "1", "--out", str(folder)]
    parent = subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE
    )
    wait_for_epoch(folder, 5)
    children = subprocess.run(
        ["ps", "--ppid", str(parent.pid), "-o", "pid="], capture_output=True, text=True, check=True
    )
    os.kill(int(children.stdout.split()[1]), signal.SIGKILL)
    out, err = parent.communicate(timeout=150)
    assert parent.returncode == 0, err
    assert [line for line in err.splitlines() if line.startswith("lmc: rank")] == [
        "lmc: rank 1: has ended without a word"
    ]
    assert "lmc: starting again, 1 of 1" in err
    assert out.count("finished: ") == 1
    assert weights(folder) == weights(straight)


def test_a_prepared_folder_knows_its_shards_and_gives_the_same_bytes(tmp_path, small):
    """Each process makes, and reads, what its own shards need; with rows of others on their way."""
    lmc.prepare(lmc.load(small), tmp_path / "graph", parts=8, shards=4)
    own = ["--hidden", "8", "--parts-per-batch", "1", "--shards", "4", "--overlap", "--epochs", "3"]
    command = ["-m", "lmc", "train", "--data", tmp_path / "graph", *own, "--checkpoint-seconds", "0"]
    for count in (1, 2):
        codes, _, said = ends(start(count, *command, "--out", tmp_path / f"of-{count}"))
        assert codes == [0] * count, said
    assert "overlap = true" in (tmp_path / "of-2" / "config.toml").read_text()
    assert weights(tmp_path / "of-1") == weights(tmp_path / "of-2")
    one, other = (kept(tmp_path / f"of-{count}" / "checkpoints") for count in (1, 2))
    assert one == other
    records = [
        [json.loads(line)["test"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (tmp_path / "of-1", tmp_path / "of-2")
    ]
    assert records[0] == records[1]
    assert len(records[0]) == 3


# -- two machines -------------------------------------------------------------------------------------


@pytest.fixture
def two_machines():
    """Two network namespaces, with a slow link between them: how to run in each, and where one is."""
    name = f"lmc{os.getpid()}"
    spaces, addresses = (f"{name}a", f"{name}b"), ("10.217.43.1", "10.217.43.2")
    link = None
    try:
        for space in spaces:
            run_or_skip(f"ip netns add {space}")
            run_or_skip(f"ip -n {space} link set lo up")
        delay, rate = "0.005", "25e6"  # 10 ms there and back, 200 Mbit a second each way
        command = [sys.executable, "slow_link.py", *spaces, delay, rate]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        link = subprocess.Popen(command, cwd=HERE, **pipes)
        if link.stdout.readline() != "ready\n":
            pytest.skip(f"no TUN devices here: {link.communicate()[1].strip().splitlines()[-1]}")
        for space, here, there in zip(spaces, addresses, reversed(addresses), strict=True):
            run_or_skip(f"ip -n {space} addr add {here} peer {there} dev t0")
            run_or_skip(f"ip -n {space} link set t0 mtu {slow_link.MTU} up")
        yield [["ip", "netns", "exec", space] for space in spaces], addresses[0]
        link.terminate()
        carried, said = link.communicate()
        assert int(carried) > 100_000, said
    finally:
        if link is not None:
            link.kill()
            link.communicate()
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def run_or_skip(command):
    try:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    if done.returncode:
        pytest.skip(f"no network namespaces here: {command}: {done.stderr.strip()}")


@pytest.mark.long
def test_two_machines_with_a_slow_link_between_them(tmp_path, small, straight, two_machines):
    prefixes, address = two_machines
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "t0"}
    command = [sys.executable, "-m", "lmc", "train", "--data", small, *SETTINGS, "--epochs", "60"]
    processes = [
        subprocess.Popen(
            [*prefix, *command, "--out", str(tmp_path / f"machine-{rank}")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"LMC_THREADS": "1", "RANK": str(rank)} | told,
        )
        for rank, prefix in enumerate(prefixes)
    ]
    codes, _, said = ends(processes, timeout=300)
    assert codes == [0, 0], said
    assert weights(tmp_path / "machine-0") == weights(straight)
    assert not (tmp_path / "machine-1").exists()
