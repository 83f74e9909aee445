import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from matplotlib.text import Text

import lmc
from html_page import Page
from lmc.cli.commands import lmc as program
from lmc.report import charts, drawing, write_report
from run_folders import confused, lines, summary, write_run

pytestmark = pytest.mark.slow

LOADING = ("src", "href", "srcset", "data", "action", "poster", "background")


@pytest.fixture
def report(tmp_path):
    """A function that writes a report of some folders and reads it back."""

    def write(*folders):
        out = tmp_path / "out" / "report.html"
        assert write_report(list(folders), out) == out
        assert [file.name for file in out.parent.iterdir()] == ["report.html"]
        return Page(out.read_text())

    return write


@pytest.fixture
def run(tmp_path):
    """A function that writes a run folder of a name."""

    def write(name, records=None, **options):
        return write_run(tmp_path / "runs" / name, lines(10) if records is None else records, **options)

    return write


def ended(run, name, epochs=10, level=0.7, confusion=None, changed=None, **options):
    records = lines(epochs, level)
    return run(name, records, ended=summary(records, confusion, **(changed or {})), **options)


def curves(page):
    """The paths of all lines."""
    return [attrs["d"] for attrs in page.with_class("line") if "transform" not in attrs]


def test_every_run_is_in_the_table_and_the_best_values_are_marked(run, report):
    page = report(ended(run, "good", level=0.72), ended(run, "fair", level=0.5, method="gas"))
    titles, good, fair = page.rows()
    assert titles[:4] == ["run", "method", "best val", "test at best"]
    assert good[:2] == ["good arxiv", "LMC GCN"]
    assert fair[:2] == ["fair arxiv", "GAS GCN"]
    best = max(lines(10, 0.72), key=lambda record: record["val"])
    assert good[2:5] == [f"{best['val']:.4f}", f"{best['test']:.4f}", str(best["epoch"])]
    passed = sum(record["seconds"] for record in lines(10, 0.72)[: best["epoch"]])
    assert good[5] == f"{passed:.1f} s"
    assert re.fullmatch(r"1\.\d\d s", good[6])
    assert titles[7:9] == ["memory of a step", "process peak"]
    assert good[7:] == ["56 MB", "1.23 GB", "finished, 10 epochs"]
    strong = sum(1 for tag, _ in page.elements if tag == "strong")
    assert strong >= 2, "val and test at least"
    assert "2 training runs" in page.text
    assert "arxiv, 169,343 nodes, 2,315,598 edges" in page.text


def test_lower_is_better_where_the_summary_says_so(run, tmp_path):
    error = {"metric": "RMSE", "higher_is_better": False}
    low, high = lines(3, 0.2), lines(3, 0.8)
    folders = [
        run(name, records, ended=summary(records, best=records[0], **error))
        for name, records in (("low", low), ("high", high))
    ]
    text = write_report(folders, tmp_path / "r.html").read_text()
    assert f'<strong title="best of its column">{low[0]["val"]:.4f}</strong>' in text
    assert f'<strong title="best of its column">{high[0]["val"]:.4f}</strong>' not in text
    assert "Validation RMSE" in text


def test_charts_show_loss_metric_and_gradient_error(run, report):
    with_error = run("a", lines(10, gradient_error=True))
    page = report(with_error, ended(run, "b"))
    charts = [attrs["aria-label"] for tag, attrs in page.elements if attrs.get("role") == "img"]
    assert [label.split(".")[0] for label in charts] == [
        "Training loss over epoch",
        "Training loss over seconds of training",
        "Validation accuracy over epoch",
        "Validation accuracy over seconds of training",
        "Gradient error over epoch",
    ]
    assert " b: " not in charts[-1], "only the run that measured it"
    assert len(page.with_class("best")) == 9, "a dashed line for each run in each chart"
    assert not [attrs for _, attrs in page.elements if "id" in attrs], "that two drawings could share"
    first = lines(10)[0]
    assert f"b: {first['loss']:.4f} at epoch 1, {first['seconds']:.2f} s" in page.titles
    assert any(title.endswith("(best)") for title in page.titles)


def test_nothing_is_loaded_from_elsewhere(run, report, tmp_path):
    page = report(ended(run, "a", confusion=confused(5)), run("b"))
    assert not [
        tag for tag, _ in page.elements if tag in ("script", "link", "iframe", "img", "base", "object")
    ]
    assert not [attrs for _, attrs in page.elements if any(name in attrs for name in LOADING)]
    text = (tmp_path / "out" / "report.html").read_text()
    assert text.count("<style>") == 1
    assert not re.search(r"https?:|@import|url\(|//\w", text)


def test_what_the_files_say_is_escaped(run, report):
    evil = '<script>alert("x")</script>'
    records = lines(3)
    changed = summary(records, [[1]], metric=evil, stopped=evil, task=evil)
    changed["confusion"]["split"] = evil
    name = evil.replace("/", "%")
    folder = run(name, records, ended=changed, method=evil, data=evil, environment={evil: evil})
    page = report(folder, run('"onload="x'))
    assert not [tag for tag, _ in page.elements if tag == "script"]
    assert not [attrs for _, attrs in page.elements for key in attrs if key.startswith("on")]
    assert page.rows()[1][0] == f"{name} {evil}"
    assert page.text.count(evil) > 6


def test_characters_that_utf8_cannot_hold_do_no_harm(run, report):
    assert "unfinished" in report(run("a", environment={"commit": "\ud800"})).text


def test_an_unfinished_run_is_shown_as_far_as_it_got(run, report):
    page = report(run("going", lines(7)))
    best = max(lines(7), key=lambda record: record["val"])
    assert page.rows()[1][2] == f"{best['val']:.4f}"
    assert page.rows()[1][-1] == "unfinished, 7 epochs"
    assert "going is unfinished" in page.text
    assert "Training run going" in page.text


@pytest.mark.parametrize("rest", ['{"epoch": 8, "lo', '{"epoch": 8, "name": "é'.encode()[:-1], b"\xff"])
def test_a_torn_last_line_is_ignored(run, report, rest):
    folder = run("a", lines(7))
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(rest if isinstance(rest, bytes) else rest.encode())
    assert report(folder).rows()[1][-1] == "unfinished, 7 epochs"


def test_a_whole_last_line_counts_without_its_newline(run, report):
    folder = run("a", lines(7))
    file = folder / "metrics.jsonl"
    file.write_text(file.read_text().rstrip("\n"))
    assert report(folder).rows()[1][-1] == "unfinished, 7 epochs"


def test_a_run_without_an_epoch_is_shown(run, report):
    page = report(run("a", []))
    assert page.rows()[1][2:] == ["–"] * 7 + ["unfinished, 0 epochs"]  # noqa: RUF001
    assert "No epoch has been recorded yet." in page.text


def test_a_run_of_one_epoch_is_drawn_as_a_mark(run, report):
    page = report(ended(run, "a", epochs=1))
    assert page.rows()[1][-1] == "finished, 1 epoch"
    marks = [attrs["transform"] for attrs in page.with_class("line") if "transform" in attrs]
    assert len(marks) == 4
    assert all(mark.startswith("translate(472 ") for mark in marks), "a mark each, at the right edge"


def test_notes_are_where_the_values_are(run, report):
    page = report(ended(run, "a", epochs=3))
    marks = [attrs["transform"] for attrs in page.with_class("line") if "transform" in attrs]
    circles = [attrs for tag, attrs in page.elements if tag == "circle"]
    assert len(marks) == len(circles) == 4 * 3
    for mark, circle in zip(marks, circles, strict=True):
        place = re.fullmatch(r"translate\((\S+) (\S+)\)", mark)
        assert float(circle["cx"]) == pytest.approx(float(place[1]), abs=0.06)
        assert float(circle["cy"]) == pytest.approx(float(place[2]), abs=0.06)


def test_a_loss_that_is_not_finite_is_a_gap_and_a_note(run, report):
    records = lines(10)
    records[4]["loss"], records[5]["loss"] = float("nan"), float("inf")
    records[6]["val"] = float("nan")
    page = report(run("a", records))
    loss = curves(page)[0]
    assert loss.count("M") == 2, "two lines"
    assert "nan" not in loss
    assert "inf" not in loss
    assert "the loss is not a finite number in 2 of 10 epochs, first in epoch 5" in page.text


def test_epochs_without_evaluation_are_no_gap(run, report):
    page = report(run("a", lines(10, every=5)))
    assert [path.count("L") for path in curves(page)] == [9, 9, 1, 1]
    assert [path.count("M") for path in curves(page)] == [1, 1, 1, 1]


def test_a_run_that_never_evaluated_has_no_validation_chart(run, report):
    page = report(run("a", lines(3, every=4)))
    assert page.rows()[1][2:6] == ["–"] * 4  # noqa: RUF001
    assert "Validation" not in page.text


def test_extreme_values_are_drawn_or_left_out(run, report):
    records = lines(6)
    for record, loss in zip(records, (1e308, -1e308, 1e-320, 0.0, 1e30, 1e-5), strict=True):
        record["loss"] = loss
        record["seconds"] = 1e38
    numbers = [attrs.get("d", "") for _, attrs in report(run("a", records)).elements]
    assert not [number for number in numbers if "nan" in number or "inf" in number]


def test_a_value_between_gaps_has_a_mark(run, report):
    records = lines(40)
    for record in records:
        record["loss"] = 0.5 if record["epoch"] % 2 else float("nan")
    marks = [attrs for attrs in report(run("a", records)).with_class("line") if "transform" in attrs]
    assert len(marks) >= 2 * 20, "in both charts of the loss"


def test_the_same_runs_are_the_same_bytes(run, report, tmp_path):
    folders = [ended(run, "a"), run("b")]
    report(*folders)
    first = (tmp_path / "out" / "report.html").read_bytes()
    report(*folders)
    assert (tmp_path / "out" / "report.html").read_bytes() == first


def test_the_page_has_the_colours_of_the_charts():
    style = Path(write_report.__code__.co_filename).with_name("report.css").read_text()
    named = dict(re.findall(r"--(c\d|soft|grid): (#\w{6});", style.partition("@media")[0]))
    assert named == {f"c{i}": colour for i, colour in enumerate(charts.COLOURS)} | {
        "soft": drawing.TEXT,
        "grid": drawing.GRID,
    }


def test_many_epochs_keep_the_page_small(run, report, tmp_path):
    report(run("a", lines(2000)))
    assert (tmp_path / "out" / "report.html").stat().st_size < 400_000


def test_a_confusion_matrix_shows_counts_shaded_by_row(run, report):
    page = report(ended(run, "a", confusion=[[30, 10, 0], [0, 1234, 0], [0, 0, 0]]))
    heat = page.rows(-1)
    assert heat == [
        ["", "0", "1", "2"],
        ["0", "30", "10", "0"],
        ["1", "0", "1,234", "0"],
        ["2", "0", "0", "0"],
    ]
    shares = [attrs["style"] for tag, attrs in page.elements if tag == "td" and "style" in attrs]
    assert shares[:3] == ["--share:0.75", "--share:0.25", "--share:0.0"]
    assert not page.with_class("compact")


def test_forty_classes_are_a_compact_map_and_a_list(run, report):
    counts = confused(40)
    counts[7][31] = 9999
    page = report(ended(run, "a", confusion=counts))
    assert len(page.with_class("compact")) == 1
    cells = [attrs for tag, attrs in page.elements if tag == "td" and "style" in attrs]
    assert len(cells) == 1600
    share = f"{100 * 9999 / sum(counts[7]):.1f} %"
    assert f"class 7, predicted 31: 9,999, {share} of class 7" in [cell["title"] for cell in cells]
    assert page.rows(-1)[1] == ["7", "31", "9,999", share]
    assert len(page.rows(-1)) == 11


def test_many_classes_are_only_a_list(run, report):
    page = report(ended(run, "a", confusion=confused(101)))
    assert not page.with_class("heat")
    assert len(page.rows(-1)) == 11


def test_settings_that_differ_between_runs_are_listed(run, report):
    page = report(run("a"), run("b", method="gas", parts_per_batch=40))
    assert page.rows(1) == [
        ["run", "method.name", "training.parts_per_batch"],
        ["a", "lmc", "10"],
        ["b", "gas", "40"],
    ]
    assert "What differs" not in report(run("c"), run("d")).text


def test_config_and_environment_are_in_the_details(run, report):
    page = report(ended(run, "a"))
    cells = {tuple(row) for table in range(len(page.tables)) for row in page.rows(table)}
    assert {("hidden", "256"), ("lr", "0.01"), ("torch", "2.9.1"), ("parameters", "110,120")} <= cells
    assert ("commit", "–") in cells  # noqa: RUF001
    assert sum(1 for tag, _ in page.elements if tag == "details") == 1


def test_runs_that_cannot_be_compared_are_not_marked(run, tmp_path, report):
    other = {"metric": "RMSE", "higher_is_better": False}
    page = report(ended(run, "a"), ended(run, "b", level=0.5, data="ppi", changed=other))
    assert "differ in data or metric" in page.text
    assert "Validation accuracy" in page.text
    assert "Validation RMSE" in page.text
    best = f"{max(record['val'] for record in lines(10)):.4f}"
    assert f"<td>{best}</td>" in (tmp_path / "out" / "report.html").read_text()


def test_another_machine_is_noted(run, report):
    assert "with care" in report(run("a"), run("b", environment={"threads": 8})).text
    assert "with care" not in report(run("c"), run("d")).text


def test_folders_of_one_name_go_by_their_paths(run, report):
    one, two, three = run("x/seed"), run("y/seed"), run("z")
    names = [row[0] for row in report(one, two, three).rows()[1:]]
    assert names == [f"{one} arxiv", f"{two} arxiv", "z arxiv"]


def test_wrong_arguments_are_named(run, tmp_path):
    with pytest.raises(lmc.LMCError, match="nowhere: no such run folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "r.html")
    with pytest.raises(lmc.LMCError, match="one run folder or more"):
        write_report([], tmp_path / "r.html")
    folder = run("a")
    with pytest.raises(lmc.LMCError, match="given twice"):
        write_report([folder, folder / ".." / "a"], tmp_path / "r.html")
    with pytest.raises(lmc.LMCError, match=r"out=.*: cannot be written"):
        write_report([folder], folder)


def test_the_command_writes_the_page(run, tmp_path):
    out = tmp_path / "r.html"
    done = CliRunner().invoke(program, ["report", str(run("a")), str(run("b")), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert str(out) in done.output
    assert "2 training runs" in out.read_text()
    done = CliRunner().invoke(program, ["report", str(tmp_path / "nowhere")])
    assert done.exit_code == 2
    assert "no such run folder" in done.output


def test_names_at_points_hide_nothing():
    """Twelve points in a heap, with long names: each is written, beside points and other names."""
    marks = [
        charts.Line(f"method {i}", charts.Style.of(i), [10 + i % 4], [70 + i / 20], [0.1], joined=False)
        for i in range(12)
    ]
    chart = charts.Chart("seconds", "accuracy", marks, x_decades=True, names_at_points=True)
    figure = drawing.figure_of([chart, chart])
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.get_legend() is None
        assert [text.get_text() for text in axes.texts] == [line.name for line in marks]
        boxes = [Text.get_window_extent(text) for text in axes.texts]
        points = axes.transData.transform([(line.x[0], line.y[0]) for line in marks])
        for box in boxes:
            assert box.count_overlaps(boxes) == 1, "itself"
            assert not any(box.contains(*point) for point in points)
            assert axes.bbox.count_contains(box.corners()) == 4
