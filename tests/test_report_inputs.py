"""What no run wrote, and values no axis was made for."""

import json

import pytest

import lmc
from lmc.report import charts, drawing, write_report
from run_folders import lines, summary, write_run

LINE, ENDED = lines(1)[0], summary(lines(10))


def line(**changed):
    """A line of the metrics, without what is `...`."""
    return (json.dumps({k: v for k, v in (LINE | changed).items() if v is not ...}) + "\n").encode()


def ended(**changed):
    return json.dumps({k: v for k, v in (ENDED | changed).items() if v is not ...}).encode()


def counts(*rows):
    return ended(confusion={"split": "test", "counts": rows})


WRONG = [
    ("metrics.jsonl", None, r"metrics\.jsonl: cannot be read \(No such file"),
    ("config.toml", None, r"not the folder of a run \(there is no config\.toml in it"),
    ("config.toml", b"[data\n", r"config\.toml: not a TOML file"),
    ("config.toml", b"a = '\xff'", r"config\.toml: not a TOML file"),
    ("environment.json", b"{", r"environment\.json: not JSON"),
    ("environment.json", b"[" * 100_000, r"environment\.json: not JSON"),
    ("environment.json", b"[]", r"environment\.json: \[\]: must be a table"),
    ("summary.json", b"[]", r"summary\.json: \[\]: must be a table"),
    ("summary.json", ended(best=LINE | {"epoch": 99}), r"best\.epoch=99: metrics\.jsonl has no such epoch"),
    ("summary.json", ended(best={"epoch": 1}), r"summary\.json: best\.loss: is missing; must be a number"),
    ("summary.json", ended(best=3), r"summary\.json: best=3: must be a table"),
    ("summary.json", ended(metric=3), r"summary\.json: metric=3: must be a string"),
    ("summary.json", ended(stopped=...), r"summary\.json: stopped: is missing; must be a string"),
    ("summary.json", ended(higher_is_better="no"), r"higher_is_better='no': must be true or false"),
    ("summary.json", ended(graph={"nodes": "x"}), r"graph\.nodes='x': must be an integer"),
    ("summary.json", counts([1, 2]), r"counts\[0\]=\[1, 2\]: must hold 1 counts"),
    ("summary.json", counts([-1]), r"counts\[0\]\[0\]=-1: must be 0 or more"),
    ("summary.json", counts(3), r"counts\[0\]=3: must be a list"),
    ("summary.json", ended(confusion={"split": "test"}), r"counts: is missing; must be a list"),
    ("metrics.jsonl", b'nonsense\n{"epoch": 1}', r"metrics\.jsonl, line 1: not JSON"),
    ("metrics.jsonl", b"3\n", r"metrics\.jsonl, line 1: 3: must be a table"),
    ("metrics.jsonl", line(epoch=0), r"line 1: epoch=0: must be 1 or more"),
    ("metrics.jsonl", line(epoch=True), r"line 1: epoch=True: must be an integer"),
    ("metrics.jsonl", line(seconds=...), r"line 1: seconds: is missing; must be a number"),
    ("metrics.jsonl", line(seconds=-1), r"line 1: seconds=-1: must be 0 or more"),
    ("metrics.jsonl", line(seconds=float("nan")), r"line 1: seconds=nan: must be a number"),
    ("metrics.jsonl", line(seconds=10**400), r"seconds=10+\.\.\.0+: must be a number"),
    ("metrics.jsonl", line(memory=10**400), r"memory=10+\.\.\.0+: must be at most 9223372036854775807"),
    ("metrics.jsonl", line(loss="x"), r"line 1: loss='x': must be a number"),
    ("metrics.jsonl", line() * 2, r"line 2: epoch=1: must be 2 or more"),
    ("metrics.jsonl", line(gradient_error=3), r"gradient_error=3: must be a table"),
    ("metrics.jsonl", line(gradient_error={"total": "x"}), r"gradient_error\.total='x': must be a number"),
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
    assert str(folder) in str(caught.value)
    assert name in str(caught.value)
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "values",
    [[3.0], [0.0], [-2.0, 7.0], [0.9, 0.9000001], [1e-320, 1e99], [-1e99, 1e99], [1e-29, 1e99], [1e-320]],
)
@pytest.mark.parametrize("decades", [False, True])
def test_axes_hold_their_values(values, decades):
    line = charts.Line("a", charts.Style.of(0), list(range(1, len(values) + 1)), values)
    (axes,) = drawing.figure_of([charts.Chart("epochs", "loss", [line], True, decades)]).axes
    low, high = axes.get_ylim()
    assert all(low <= value <= high for value in values)
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert 2 <= len(ticks) <= 9
    assert all(tick == round(tick) for tick in axes.get_xticks())
