"""Files that appear whole or not at all, and where the cache is."""

import sys
from pathlib import Path

import pytest

from lmc.files import cache_folder, partial_file, put_in_place, write_atomically


def test_what_is_put_in_place_replaces_the_file(tmp_path):
    (tmp_path / "a").write_text("before")
    with partial_file(tmp_path / "a") as partial:
        assert partial.parent == tmp_path
        assert partial.name.startswith(".a.")
        assert partial.suffix == ".partial"
        partial.write_text("after")
        assert (tmp_path / "a").read_text() == "before"
        put_in_place(partial, tmp_path / "a")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "after")]


def test_what_fails_leaves_nothing(tmp_path):
    def write(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", write)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other places")
@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"LMC_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"LMC_CACHE": "~/own"}, "/home/somebody/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/lmc"),
        ({"XDG_CACHE_HOME": ""}, "/home/somebody/.cache/lmc"),
        ({}, "/home/somebody/.cache/lmc"),
    ],
)
def test_the_cache_is_where_the_environment_says(monkeypatch, environment, folder):
    for name in ("LMC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/somebody", **environment}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)
