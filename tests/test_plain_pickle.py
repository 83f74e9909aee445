"""The reader of plain pickles, against Python's own, and against files that want something else."""

import contextlib
import os
import pickle
import struct
import tracemalloc
import warnings
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import lmc
from damage import Payload
from lmc.data.plain_pickle import read_pickle
from planetoid_files import python2_pickle

RNG = np.random.default_rng(0)
VALUES = {
    "matrix": sparse.csr_matrix(RNG.integers(0, 2, (5, 4)).astype(np.float32)),
    "no rows": sparse.csr_matrix((0, 4)),
    "array": RNG.integers(-9, 9, (3, 2)),
    "array in columns": np.asfortranarray(RNG.normal(size=(3, 2))),
    "array of no entries": np.zeros((0, 3), np.float32),
    "big-endian array": np.arange(5, dtype=">i4"),
    "arrays of a type that is written once": [np.arange(3), np.arange(4), np.arange(2)],
    "all bytes": np.arange(256, dtype=np.uint8),
    "truths": np.array([True, False]),
    "graph": defaultdict(list, {0: [1, 2], 1: [0], 2: [0, 0], 300: [70000, 2**40]}),
    "plain": {"a": (1, 2.5, None), "b": [True, (), (1,), (1, 2), (1, 2, 3, 4)], 3: {}, "long": "x" * 300},
    "numbers of numpy": [np.float32(0.5), np.int64(7)],
}
NEWER = {"matrix of another kind": sparse.csr_array(RNG.normal(size=(3, 7)))}


def same(ours, theirs):
    if sparse.issparse(theirs):
        return sparse.issparse(ours) and ours.dtype == theirs.dtype and same(ours.toarray(), theirs.toarray())
    if isinstance(theirs, np.ndarray):
        return ours.dtype.str[1:] == theirs.dtype.str[1:] and np.array_equal(ours, theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


@pytest.mark.parametrize("kind", [*VALUES, *NEWER])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_values_that_this_python_wrote_come_back(tmp_path, kind, protocol):
    file, value = tmp_path / "a", (VALUES | NEWER)[kind]
    file.write_bytes(pickle.dumps(value, protocol))
    assert same(read_pickle(file), value)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_values_that_python_2_wrote_come_back(tmp_path, kind, protocol):
    file = tmp_path / "a"
    content = python2_pickle(VALUES[kind], protocol)
    file.write_bytes(content)
    assert same(read_pickle(file), VALUES[kind])
    with warnings.catch_warnings():  # the old names of modules
        warnings.simplefilter("ignore")
        assert same(pickle.loads(content, encoding="latin1"), VALUES[kind])


class Chain:
    """getattr(os, "system")(...), as a pickle that names harmless things only."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return getattr, (Path(self.mark), "mkdir")


class Evaluated:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return eval, (f"__import__('os').mkdir({str(self.mark)!r})",)


def array_state(shape, dtype, content):
    """An array whose state is what we like."""

    class Stated:
        def __reduce__(self):
            return (*np.zeros(0).__reduce__()[:2], (1, shape, dtype, False, content))

    return pickle.dumps(Stated(), 2)


def matrix_state(**changed):
    matrix = sparse.csr_matrix(np.eye(3, dtype=np.float32))
    matrix.__dict__.update(changed)
    return pickle.dumps(matrix, 2)


def state_of_a_name(named, state):
    """Give a name of the file, rather than a value, new attributes."""
    return b"\x80\x02c" + named.replace(".", "\n").encode() + b"\n" + pickle.dumps(state, 2)[2:-1] + b"b."


DEEP = 100_000
HOSTILE = {
    "a call": lambda mark: (pickle.dumps(Payload(mark), 2), "names posix.mkdir"),
    "a call in protocol 0": lambda mark: (pickle.dumps(Payload(mark), 0), "names posix.mkdir"),
    "a call in protocol 4": lambda mark: (pickle.dumps(Payload(mark), 4), "names posix.mkdir"),
    "a command": lambda mark: (f"cos\nsystem\n(S'mkdir {mark}'\ntR.".encode(), "names os.system"),
    "an instance": lambda mark: (f"(S'mkdir {mark}'\nios\nsystem\n.".encode(), "INST is no operation"),
    "an object": lambda mark: (f"(cos\nsystem\nS'mkdir {mark}'\no.".encode(), "names os.system"),
    "eval": lambda mark: (pickle.dumps(Evaluated(mark), 2), "names __builtin__.eval"),
    "a chain": lambda mark: (pickle.dumps(Chain(mark), 2), "names __builtin__.getattr"),
    "a chain by dots": lambda mark: (b"\x80\x04\x8c\x05numpy\x8c\x0ddtype.__new__\x93.", "dtype.__new__"),
    "a call behind an array": lambda mark: (pickle.dumps([np.eye(2), Payload(mark)], 2), "names posix.mkdir"),
    "a call within a matrix": lambda mark: (matrix_state(extra=Payload(mark)), "names posix.mkdir"),
    "an array of objects": lambda mark: (pickle.dumps(np.array([Payload(mark)]), 2), "an array of objects"),
    "an array of none": lambda mark: (pickle.dumps(np.array([None, None]), 2), "an array of objects"),
    "an array of records": lambda mark: (pickle.dumps(np.zeros(2, "i4,f4"), 2), "no number"),
    "an array of text": lambda mark: (pickle.dumps(np.array(["a"]), 2), "no number"),
    "an array that promises": lambda mark: (array_state((2**38,), np.dtype("f4"), b"1234"), "too small"),
    "an array of a negative shape": lambda mark: (array_state((-5,), np.dtype("f4"), b"1234"), ""),
    "an array of nothing": lambda mark: (array_state((2**33,), np.dtype("f4"), None), "not of numbers"),
    "a matrix that points outside": lambda mark: (matrix_state(indices=np.array([0, 1, 9], np.int32)), ""),
    "a matrix of a negative row": lambda mark: (matrix_state(indptr=np.array([0, 2, 1, 3], np.int32)), ""),
    "a matrix of fractions": lambda mark: (matrix_state(indices=np.eye(3)[0]), "no integers"),
    "a matrix without data": lambda mark: (matrix_state(data=None), "not of arrays"),
    "a class": lambda mark: (pickle.dumps(np.ndarray, 2), "no value"),
    "a method of a class": lambda mark: (state_of_a_name("numpy.ndarray", {"sum": 1}), "changes a"),
    "defaults of a function": lambda mark: (
        state_of_a_name("numpy.dtype", (None, {"__defaults__": (1, 2)})),
        "changes a",
    ),
    "a class that is called": lambda mark: (b"\x80\x02c__builtin__\nlist\n)R.", "calls what is no function"),
    "a value that is called": lambda mark: (b"\x80\x02K\x01)R.", "calls what is no function"),
    "an object of no matrix": lambda mark: (b"\x80\x02c__builtin__\nobject\n)\x81.", "no matrix"),
    "a persistent name": lambda mark: (b"\x80\x02K\x01Q.", "BINPERSID is no operation"),
    "an extension": lambda mark: (b"\x80\x02\x82\x01.", "EXT1 is no operation"),
    "another container": lambda mark: (pickle.dumps(OrderedDict(a=1), 4), "names collections.OrderedDict"),
    "a set": lambda mark: (pickle.dumps({1, 2}, 4), "EMPTY_SET is no operation"),
    "a key that is an array": lambda mark: (b"\x80\x02}]K\x01s.", "a list as a key"),
    "a deep key": lambda mark: (b"\x80\x02})" + b"\x85" * DEEP + b"K\x01s.", "a tuple as a key"),
    "a key that doubles": lambda mark: (b"\x80\x02})" + b"q\0h\0\x86" * 24 + b"K\x01s.", "a tuple as a key"),
    "more than there is": lambda mark: (b"\x80\x02]]aa.", "takes more than there is"),
    "marks without end": lambda mark: (b"(" * DEEP, "cut off"),
    "a memo that was never": lambda mark: (b"\x80\x02h\x07.", "never had"),
    "a far place of the memo": lambda mark: (b"\x80\x02Nr\xff\xff\xff\xff0.", "POP is no operation"),
    "a place of the memo that could be had": lambda mark: (b"\x80\x02Nr\0\0\0\x020.", "POP is no operation"),
    "bytes that are not there": lambda mark: (b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"1.", "remain"),
    "text that is not there": lambda mark: (b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"1.", "remain"),
    "nothing": lambda mark: (b"", "cut off"),
    "text": lambda mark: (b"<html>", ""),
}


def refused(file, *words):
    with pytest.raises(lmc.DatasetError) as raised:
        read_pickle(file)
    text = str(raised.value)
    assert text.startswith(f"{file}: not a pickle of plain arrays (")
    assert len(text.splitlines()) == 1
    assert len(text) < 500
    assert all(word in text for word in words), text


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused_and_do_nothing(tmp_path, kind):
    mark = tmp_path / "mark"
    content, word = HOSTILE[kind](mark)
    file = tmp_path / "ind.cora.x"
    file.write_bytes(content)
    refused(file, word)
    assert not mark.exists()


def test_the_payloads_would_do_something(tmp_path):
    """Or the test above would pass for any reader."""
    for kind in ("a call", "a call in protocol 0", "eval", "a call within a matrix", "a command"):
        mark = tmp_path / kind.replace(" ", "_")
        pickle.loads(HOSTILE[kind](mark)[0])
        assert mark.exists(), kind


def test_a_small_file_takes_little_memory(tmp_path):
    file = tmp_path / "a"
    memo = ("a far place of the memo", "a place of the memo that could be had")
    for kind in (*memo, "bytes that are not there", "an array of nothing"):
        file.write_bytes(HOSTILE[kind](tmp_path)[0])
        tracemalloc.start()
        refused(file)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1 << 20, kind


def test_a_file_of_too_many_operations_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lmc.data.plain_pickle.MOST_OPERATIONS", 1000)
    file = tmp_path / "a"
    file.write_bytes(b"\x80\x02" + b"]" * 1001 + b".")
    refused(file, "more than 1,000 operations")


def test_a_truncated_file_is_refused(tmp_path):
    file = tmp_path / "a"
    whole = python2_pickle(VALUES["matrix"])
    for length in [*range(0, len(whole), 5), len(whole) - 1]:
        file.write_bytes(whole[:length])
        refused(file)


def test_a_turned_bit_raises_nothing_but_our_error(tmp_path):
    file = tmp_path / "a"
    whole = python2_pickle([VALUES["matrix"], VALUES["graph"], VALUES["array"]])
    for place in RNG.integers(0, len(whole), 300):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << RNG.integers(0, 8)
        file.write_bytes(damaged)
        with contextlib.suppress(lmc.DatasetError):
            read_pickle(file)


def test_missing_files_pipes_and_folders_are_refused(tmp_path):
    refused(tmp_path / "nowhere", "No such file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    refused(tmp_path)


def test_a_deep_list_is_a_list(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"\x80\x02" + b"]" * DEEP + b"a" * (DEEP - 1) + b".")
    inner, depth = read_pickle(file), 1
    while inner:
        (inner,) = inner
        depth += 1
    assert depth == DEEP


def test_a_value_that_is_recalled_is_the_same_value(tmp_path):
    array = np.arange(3.0)
    file = tmp_path / "a"
    for written in (pickle.dumps([array, array], 2), python2_pickle([array, array])):
        file.write_bytes(written)
        first, second = read_pickle(file)
        assert first is second
        assert first.tolist() == [0, 1, 2]
