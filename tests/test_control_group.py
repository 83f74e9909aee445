"""Limits of control groups, as the two versions of Linux's write them."""

import pytest

from lmc import control_group, memory_use
from lmc.control_group import Group, groups

SECOND = {
    "proc": "0::/user/job\n",
    "memory.stat": "file 7\n",
    "user/memory.max": "900\n",
    "user/memory.current": "500\n",
    "user/memory.stat": "anon 3\nfile 100\n",
    "user/job/memory.max": "max\n",
    "user/job/memory.current": "400\n",
}
FIRST = {
    "proc": "12:cpu,cpuacct:/other\n5:memory:/docker/abc\n0::/\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
    "memory/memory.usage_in_bytes": "800\n",
    "memory/docker/abc/memory.limit_in_bytes": "600\n",
    "memory/docker/abc/memory.usage_in_bytes": "450\n",
    "memory/docker/abc/memory.stat": "cache 1\ntotal_cache 50\n",
}
CONTAINER = {"proc": "0::/\n", "memory.max": "1000", "memory.current": "300", "memory.stat": "file 20\n"}


@pytest.mark.parametrize(
    ("files", "found"),
    [(SECOND, [Group(900, 400)]), (FIRST, [Group(600, 400)]), (CONTAINER, [Group(1000, 280)]), ({}, [])],
)
def test_limits_of_all_groups_around(tmp_path, monkeypatch, files, found):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(control_group, "ROOT", tmp_path)
    monkeypatch.setattr(control_group, "MEMBERSHIP", tmp_path / "proc")
    assert groups() == found
    if found:
        assert memory_use.most() == found[0].most
        assert memory_use.free() == found[0].most - found[0].held
