"""Tables of a terminal at every width."""

import pytest
from rich.console import Console

from lmc.runs import comparison, seeds
from lmc.runs.comparison import ComparedMethod
from lmc.runs.mean_of_runs import MeanOfRuns
from lmc.runs.seeds import SeedRun, Seeds

ROW = (0.1234, 0.5678, 12, 34.5, 6.78, 910_000_000, 1_120_000_000)
FIVE = Seeds("accuracy", *[MeanOfRuns([0.1234, 0.5678])] * 2, [SeedRun(0, 12, 0.1234, 0.5678, 1234.5)] * 2)


def lines_at(width, shown):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("deviations", [(), (0.0123, 0.0456)])
def test_no_cell_of_a_comparison_is_cut(width, deviations):
    rows = [ComparedMethod(method, *ROW, *deviations) for method in ("cluster", "lmc")]
    lines = lines_at(width, comparison.table(rows, 0.1))
    text = "\n".join(lines)
    assert "…" not in text
    assert max(map(len, lines)) <= width
    after = [f" ± {value:.4f}" for value in deviations] or ["", ""]
    cells = (f"0.1234{after[0]}", f"0.5678{after[1]}", "12", "34.5", "6.78", "0.91 GB", "1.12 GB")
    for cell in cells:
        assert text.count(f" {cell} ") == 2
    heads = sum("┏" in line for line in lines)
    assert text.count("│ lmc ") == text.count("│ cluster ") == heads
    assert heads == 1 if width >= 120 else heads <= 4
    assert (heads > 1) == (width <= 60 or (width == 80 and bool(deviations)))


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_cell_of_several_seeds_is_cut(width):
    lines = lines_at(width, seeds.table(FIVE))
    assert "…" not in "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert any("mean" in line for line in lines)
