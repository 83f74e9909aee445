"""What a person sees of a run: the line that moves, plain lines, notebooks, results."""

import contextlib
import io
import os
import signal
import sys
import types
import warnings

import pytest
from rich.console import Console
from rich.text import Text

import lmc
from lmc.runs import notebook
from lmc.runs.display import Display, LiveLine, LiveOutput, PlainLines, display_in_python
from lmc.runs.progress_line import ProgressLine, epoch_texts


@pytest.fixture(scope="module")
def graph():
    return lmc.synthetic(nodes=200, features=8, seed=1)


def fit(graph, *callbacks, epochs=3, **options):
    model = lmc.GCN(graph.num_features, 8, graph.num_classes)
    given = {"parts": 6, "parts_per_batch": 2, "epochs": epochs, "callbacks": list(callbacks)} | options
    return lmc.fit(graph, model, lmc.LMC(), **given)


class Watched(LiveLine):
    """A live line that is drawn at every width after each step."""

    def __init__(self, title=""):
        super().__init__(Console(file=io.StringIO(), width=80, force_terminal=True), title)
        self.drawn = []

    def on_step(self, training, loss):
        super().on_step(training, loss)
        if self.line.done == 8:
            for width in (60, 80, 120, 200):
                console = Console(
                    file=io.StringIO(), width=width, color_system="standard", force_terminal=True
                )
                console.print(self)
                self.drawn.append(Text.from_ansi(console.file.getvalue()).plain)


@pytest.mark.parametrize("title", ["", "cluster"])
def test_the_line_has_the_important_things_at_every_width(graph, title):
    watched = Watched(title)
    fit(graph, watched, epochs=100 if not title else 3, patience=3)
    lines = [text.rstrip("\n") for text in watched.drawn]
    for line, width in zip(lines, (60, 80, 120, 200), strict=True):
        assert "\n" not in line
        assert len(line.rstrip()) <= width - 2
        assert line.count("━") >= 6
        assert "epoch" in line
        assert "left" in line
        assert "val accuracy" in line or (title and width == 60)
        assert line.startswith(title)
    assert "best" in lines[1] or title
    for word in ("step 2/3", "loss", "best", " s ", "GB"):
        assert word in lines[3]


def test_the_time_left_follows_from_the_pace_since_the_first_step(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("lmc.runs.progress_line.time.monotonic", lambda: now[0])
    training = types.SimpleNamespace(
        epoch=0,
        step=0,
        records=[1],
        options=types.SimpleNamespace(epochs=10),
        sampler=types.SimpleNamespace(steps=10),
    )
    line = ProgressLine()
    line.begin_phase("first batch")
    line.begin(training)
    now[0] = 25.0
    assert line.fitting(60)[0] == ["first batch", "0:25"]
    line.step(training, 1.0)  # the first one compiles: it says nothing of the others
    assert line.remaining() is None
    now[0] = 27.0
    line.step(training, 1.0)
    assert line.remaining() == pytest.approx(98 * 2.0)
    assert "3:16 left" in " ".join(line.fitting(60)[0])


def test_plain_lines(graph, capsys):
    fit(graph, progress="plain")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ... ")[0] for line in lines[:3]] == [
        "cutting the graph into batches",
        "preparing the model",
        "first batch",
    ]
    assert all(line.endswith(" s") for line in lines[:3])
    assert [line.split()[:2] for line in lines[3:]] == [["epoch", f"{n}/3"] for n in (1, 2, 3)]
    assert all("val accuracy" in line for line in lines[3:])


def test_auto_is_silent_where_the_output_is_piped(graph, capsys):
    assert type(display_in_python("auto")) is Display
    fit(graph)
    assert capsys.readouterr() == ("", "")
    assert type(display_in_python(True)) is PlainLines
    with pytest.raises(lmc.ArgumentError, match=r"progress='atuo': must be one of auto, plain .*'auto'"):
        fit(graph, progress="atuo")


def test_auto_is_live_in_a_terminal(graph, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    fit(graph)
    assert "epoch 3/3" in terminal.getvalue()
    shown, hidden = terminal.getvalue().count("\x1b[?25h"), terminal.getvalue().count("\x1b[?25l")
    assert shown == hidden == 1


def test_in_a_notebook(graph, monkeypatch):
    pictures = []

    class Handle:
        def update(self, picture):
            pictures.append(picture)

    class ZMQInteractiveShell:
        pass

    def display(picture, display_id):
        pictures.append(picture)
        return Handle()

    shell = types.ModuleType("IPython")
    shell.get_ipython = ZMQInteractiveShell
    shell.display = types.ModuleType("IPython.display")
    shell.display.HTML, shell.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shell.display)
    monkeypatch.setattr(notebook, "LEAST_SECONDS", 0.0)
    assert type(display_in_python("auto")) is LiveOutput
    fit(graph)
    assert "cutting the graph" in pictures[0]
    assert '<progress value="9" max="9">' in pictures[-1]
    assert "epoch 3/3" in pictures[-1]
    assert len(pictures) >= 9


class Interrupts(lmc.Callback):
    """Presses Ctrl-C at a step, once or twice."""

    def __init__(self, step, times=1):
        self.step, self.times, self.steps = step, times, 0

    def on_step(self, training, loss):
        self.steps += 1
        if self.steps == self.step:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_in_fit_gives_the_result_so_far(graph):
    before = signal.getsignal(signal.SIGINT)
    result = fit(graph, Interrupts(step=8), epochs=50)
    assert result.stopped == "interrupted"
    assert len(result.history) == 2
    predicted = lmc.predict(graph, result.model).argmax(1)[graph.val_mask]
    assert float((predicted == graph.y[graph.val_mask]).float().mean()) == pytest.approx(result.best.val)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_in_fit_is_raised(graph):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(graph, Interrupts(step=2, times=2), epochs=50)
    assert signal.getsignal(signal.SIGINT) is before


def test_results_are_a_few_words_and_a_small_table(graph):
    result = fit(graph)
    first, second = repr(result).splitlines()
    assert first.startswith("Result: finished after 3 epochs, ")
    assert f"{result.wall_seconds:.1f} s in all" in first
    assert f"best epoch {result.best.epoch}: accuracy train" in second
    assert result.wall_seconds > result.seconds > 0
    html = result._repr_html_()
    assert html.count("<polyline") == 2
    assert f"<td>{result.best.val:.4f}</td>" in html
    none = fit(graph, Interrupts(step=1))
    assert repr(none).startswith("Result: interrupted after 0 epochs")
    assert "<polyline" not in none._repr_html_()


def test_a_run_that_fails_gives_the_terminal_back():
    console = Console(file=io.StringIO(), force_terminal=True)
    with contextlib.suppress(ZeroDivisionError), LiveLine(console) as line:
        line.on_phase("loading torch")
        raise ZeroDivisionError
    written = console.file.getvalue()
    assert "loading torch" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1
    assert written.endswith("\x1b[2K")  # the line is gone


def test_texts_of_an_epoch_without_validation():
    record = lmc.Record(1, 0.5, 0.75, None, None, 0.1, 10**9, 0.1)
    training = types.SimpleNamespace(
        metric=types.SimpleNamespace(name="accuracy"), best=types.SimpleNamespace(record=record)
    )
    assert epoch_texts(training, record)["value"] == "train accuracy 0.7500"
    assert "best" not in epoch_texts(training, record)


def test_a_warning_begins_a_line_of_its_own(capsys, monkeypatch):
    def shown(message, *_, **__):
        print(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = shown
        with PlainLines() as lines:
            lines.on_phase("loading cora")
            warnings.warn("no features", stacklevel=1)
            lines.on_phase("cutting")
        assert warnings.showwarning is shown
    loading, warning, cutting = capsys.readouterr().out.splitlines()
    assert loading.startswith("loading cora ... ")
    assert (warning, cutting) == ("warning: no features", "cutting ... 0.0 s")
