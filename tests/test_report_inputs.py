"""What no run wrote, and values no axis was made for."""

import pytest

import lmc
from lmc.report import axes, write_report
from run_folders import lines, summary, write_run

WRONG = [
    ("metrics.jsonl", None, r"metrics\.jsonl: cannot be read \(No such file"),
    ("config.toml", None, r"config\.toml: cannot be read \(No such file"),
    ("config.toml", b"[data\n", r"config\.toml: not TOML"),
    ("config.toml", b"a = '\xff'", r"config\.toml: not TOML"),
    ("environment.json", b"{", r"environment\.json: not JSON"),
    ("environment.json", b"[" * 100_000, r"environment\.json: not JSON"),
    ("summary.json", b"[]", r"summary\.json: \[\]: must be a JSON object"),
    (
        "summary.json",
        b'{"best": {"epoch": 99}}',
        r"summary\.json: best\.epoch=99: metrics\.jsonl has no such",
    ),
    ("summary.json", b'{"best": 3}', r"summary\.json: best=3: must be a table"),
    ("summary.json", b'{"metric": 3}', r"summary\.json: metric=3: must be a string"),
    ("summary.json", b'{"higher_is_better": "no"}', r"higher_is_better='no': must be true or false"),
    ("summary.json", b'{"confusion": {"counts": [[1, 2]]}}', r"counts\[0\]=\[1, 2\]: must hold 1 counts"),
    ("summary.json", b'{"confusion": {"counts": [[-1]]}}', r"counts\[0\] holds -1: counts must be"),
    ("summary.json", b'{"confusion": {"split": "test"}}', r"counts=None: must be a list of rows"),
    ("metrics.jsonl", b'nonsense\n{"epoch": 1}', r"metrics\.jsonl, line 1: not JSON"),
    ("metrics.jsonl", b'{"epoch": 0, "seconds": 1}\n', r"line 1: epoch=0: must be an integer, 1 or more"),
    ("metrics.jsonl", b'{"epoch": true, "seconds": 1}\n', r"line 1: epoch=True: must be an integer"),
    ("metrics.jsonl", b'{"epoch": 1}\n', r"line 1: seconds=None: must be a finite number"),
    ("metrics.jsonl", b'{"epoch": 1, "seconds": -1}\n', r"line 1: seconds=-1\.0: must be a finite number"),
    ("metrics.jsonl", b'{"epoch": 1, "seconds": 1, "loss": "x"}\n', r"line 1: loss='x': must be a number"),
    (
        "metrics.jsonl",
        b'{"epoch": 1, "seconds": 1' + b"0" * 400 + b"}\n",
        r"seconds=10+\.\.\.0+: must be a num",
    ),
    ("metrics.jsonl", b'{"epoch": 1, "seconds": 1}\n' * 2, r"line 2: epoch=1: must be above 1"),
    (
        "metrics.jsonl",
        b'{"epoch": 1, "seconds": 1, "gradient_error": 3}\n',
        r"gradient_error=3: must be a table",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), WRONG)
def test_a_wrong_file_is_one_line_that_names_it(tmp_path, name, content, message):
    folder = write_run(tmp_path / "a", lines(10), summary(lines(10)))
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(lmc.LMCError, match=message) as caught:
        write_report([folder], tmp_path / "r.html")
    assert "\n" not in str(caught.value)
    assert str(folder / name) in str(caught.value)
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([3.0], (2.6, 2.8, 3.0, 3.2, 3.4)),
        ([0.0], (-0.1, -0.05, 0.0, 0.05, 0.1)),
        ([-2.0, 7.0], (-2.0, 0.0, 2.0, 4.0, 6.0, 8.0)),
        ([0.9, 0.9000001], None),
        ([1e-320, 1e99], None),
        ([-1e99, 1e99], None),
    ],
)
def test_axes_hold_their_values(values, ticks):
    for axis in (axes.around(values), axes.around(values, decades=True)):
        assert ticks is None or axis.ticks == ticks
        assert 2 <= len(axis.ticks) <= 8
        assert all(-1e-9 <= axis.share(value) <= 1 + 1e-9 for value in values)
        assert len(set(axis.labels())) == len(axis.ticks)
