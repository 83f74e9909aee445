"""The bench without its measurements: which rows take turns, and what is said of their numbers."""

from io import StringIO

import torch
from rich.console import Console

import lmc
from lmc.bench import rows, run, shared, tables, time_model
from lmc.bench.tables import CLUSTER_COARSE, FULL_BATCH, GAS_COARSE, LMC_MIDDLE, PYG, SPIDER, TOP_COARSE

GROUPS = [*run.GROUPS.values(), *run.ACCURACY]


def test_rows_that_are_alive_together_are_few_and_begin_with_pyg():
    assert max(map(len, GROUPS)) <= 11  # of 1 to 3 GB each on arxiv, those of the quick bench 20 GB
    assert all(next(iter(group)).startswith(PYG) for group in GROUPS)


def test_rows_that_are_compared_take_turns():
    for pair in tables.BESIDE:
        assert any(set(pair) <= group.keys() for group in GROUPS), pair
    timed = {row for group in run.GROUPS.values() for row in group}
    assert {row for pair in tables.MEMORY_BESIDE for row in pair} <= set(run.MEMORY) <= timed
    assert tables.GOALS.keys() | tables.STEP_GOALS.keys() | tables.PROCESS_GOALS.keys() <= timed


def shown(result):
    """The lines of all tables, by their first cells."""
    console = Console(width=160, file=StringIO())
    for table in tables.of(result):
        console.print(table)
    lines = console.file.getvalue().splitlines()
    return {line.split("│")[1].strip(): line for line in lines if line.startswith("│")}


def test_a_row_is_beside_the_one_of_its_group_in_the_same_round():
    seconds = [
        {PYG: [4.0, 2.0], LMC_MIDDLE: [1.0, 1.0], SPIDER: [2.0, 2.5]},
        {PYG: [8.0, 8.0], CLUSTER_COARSE: [1.0, 2.0], TOP_COARSE: [1.2, 2.4]},
    ]
    lines = shown({"seconds": seconds})
    assert "0.38 (0.25 to 0.50)" in lines[LMC_MIDDLE]
    assert "0.22 (0.15 to 0.30)" in lines[TOP_COARSE]
    assert "2.25 (2.00 to 2.50)" in lines[f"{SPIDER} over {LMC_MIDDLE}"]
    assert "1.20 (1.20 to 1.20)" in lines[f"{TOP_COARSE} over {CLUSTER_COARSE}"]
    assert tables.compare({TOP_COARSE: 0.3, "a row that is gone": 1.0}, seconds).row_count == 1


def test_memory_and_time_to_an_accuracy_are_beside_those_of_others():
    held = {GAS_COARSE: 100, TOP_COARSE: 115, FULL_BATCH: 200}
    slow, fast = [(9.0, 0.5), (18.0, 0.7)], [(6.0, 0.5), (12.0, 0.7)]
    curves = [{PYG: slow, "GAS": [(9.0, 0.7)]}, {PYG: fast, "SIGN": [(6.0, 0.7)], "TOP": [(6.0, 0.6)]}]
    result = {"seconds": [], "peak_bytes": held, "process_bytes": held, "curves": curves}
    lines = shown(result)
    assert "1.15" in lines[f"{TOP_COARSE} over {GAS_COARSE}"]
    assert "0.500" in lines["GAS"]
    assert "0.500" in lines["SIGN"]
    assert "not within 1 epochs" in lines["TOP"]


def test_spider_is_timed_on_small_steps_and_an_epoch_may_begin_anew(monkeypatch):
    """Its large batches, of which only the round that warms up has one, are no larger than others."""
    monkeypatch.setattr(rows, "HIDDEN", 4)
    seen = []
    monkeypatch.setattr(lmc.LMC, "prepare", lambda self, batch: seen.append(batch))
    row = run.MORE_OF_LMC[SPIDER](lmc.synthetic(nodes=800, features=4))
    for _ in range(2):
        row.epoch()
        row.begin_anew()
    assert {batch.scale for batch in seen} == {8.0}
    ahead = 8 + 1
    assert len(seen) == 2 * ahead
    assert torch.equal(seen[ahead].nodes, seen[0].nodes)


def test_rows_that_go_to_other_processes_are_counted_and_make_the_time_of_many_machines(monkeypatch):
    graph = lmc.synthetic(nodes=600, classes=4)
    found = shared.rows_exchanged(graph, 4, lmc.partition(graph, 16), per_batch=2)
    # With every cluster of a shard in one batch, each row is read once.
    whole = shared.rows_exchanged(graph, 4, lmc.partition(graph, 16), per_batch=4)
    assert whole.batches == whole.once == found.once
    assert found.once < found.batches < found.of_one
    monkeypatch.setattr(time_model, "MACHINES", (2, 4))
    monkeypatch.setattr(time_model, "PARTS", 16)
    text = StringIO()
    Console(width=160, file=text).print(time_model.table(graph, 10.0))
    lines = [line for line in text.getvalue().splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert [row[0] for row in cells] == ["2", "4"]
    for row in cells:  # nothing is faster than what is computed, nor faster without overlap than with it
        times = [tuple(map(float, cell.split(" / "))) for cell in row[2:]]
        assert all(without >= ahead >= 10 / int(row[0]) - 0.01 for without, ahead in times)
        assert times == sorted(times, reverse=True)
