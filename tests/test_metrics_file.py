"""The epochs of a run, from records to a file and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmc
from lmc.runs.metrics_file import append_metrics, read_metrics, write_metrics
from lmc.training.records import Record
from run_folders import lines

RECORDS = [Record(**line) for line in lines(4, gradient_error=True, every=2)]


def test_what_is_written_is_read(tmp_path):
    file = tmp_path / "metrics.jsonl"
    write_metrics(file, [])
    assert read_metrics(file) == []
    for count, record in enumerate(RECORDS, start=1):
        append_metrics(file, record)
        assert read_metrics(file) == RECORDS[:count]
    write_metrics(file, RECORDS[:2])
    assert read_metrics(file) == RECORDS[:2]


@given(st.data())
def test_a_file_that_was_cut_has_the_epochs_before(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    write_metrics(file, RECORDS)
    whole = file.read_bytes()
    length = data.draw(st.integers(0, len(whole)))
    file.write_bytes(whole[:length])
    ends = [place for place, letter in enumerate(whole) if letter == ord("\n")]
    assert read_metrics(file) == RECORDS[: sum(end <= length for end in ends)]


def test_keys_of_another_version_are_ignored(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps(lines(1)[0] | {"evaluation_seconds": 0.3, "later": []}) + "\n")
    assert read_metrics(file) == [Record(**lines(1)[0])]


def test_a_line_in_the_middle_is_named(tmp_path):
    file = tmp_path / "metrics.jsonl"
    write_metrics(file, RECORDS)
    file.write_text(file.read_text().replace('"epoch": 2', '"epoch": "2"'))
    with pytest.raises(lmc.RunError, match=r"metrics\.jsonl, line 2: epoch='2': must be an integer$"):
        read_metrics(file)
