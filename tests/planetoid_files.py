"""Planetoid's files, as Python 2 wrote them: protocol 2, text and bytes alike, modules by their old names."""

import io
import pickle
import struct
from collections import defaultdict
from typing import ClassVar

import numpy as np
from scipy import sparse

OLD_MODULES = {
    "builtins": "__builtin__",
    "copyreg": "copy_reg",
    "numpy._core.multiarray": "numpy.core.multiarray",
    "scipy.sparse._csr": "scipy.sparse.csr",
}

# Node 7 is in no file but the graph's: it has neither features nor a label, as some of CiteSeer's.
TEST = [8, 6, 9, 5]
NEIGHBOURS = {0: [1, 2, 2], 1: [0, 1], 2: [0, 0, 8], 3: [], 4: [9], 5: [6], 6: [5], 7: [], 8: [2], 9: [4]}
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 0, 1, 2])


class Python2Pickler(pickle._Pickler):
    """The plain-Python pickler, with what Python 3 does in another way put back."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_text(self, text):
        content = text.encode("latin1") if isinstance(text, str) else text
        if self.bin:
            short = len(content) < 256
            self.write(
                (b"U" + bytes([len(content)]) if short else b"T" + struct.pack("<i", len(content))) + content
            )
        else:
            self.write(b"S" + repr(content)[1:].encode() + b"\n")
        self.memoize(text)

    def save_global(self, named, name=None):
        name = name or named.__qualname__
        module = pickle.whichmodule(named, name)
        self.write(f"c{OLD_MODULES.get(module, module)}\n{name}\n".encode())
        self.memoize(named)

    dispatch[str] = dispatch[bytes] = save_text


def python2_pickle(value, protocol=2):
    file = io.BytesIO()
    Python2Pickler(file, protocol).dump(value)
    return file.getvalue()


def write_planetoid(folder, name, neighbours, x, y, num_train, test):
    """The eight files of a graph.

    Args:
        neighbours: {node: [neighbour, ...]}.
        x: (nodes, features) sparse.
        y: (nodes, classes) one-hot.
        num_train: how many of the first nodes train.
        test: the test nodes in any order; those before the first of them have features and labels in `allx`.
    """
    folder.mkdir(parents=True)
    known = min(test)
    graph = defaultdict(list, neighbours)
    x = sparse.csr_matrix(x)
    y = np.asarray(y, dtype=np.int32)
    parts = {"x": x[:num_train], "tx": x[test], "allx": x[:known], "graph": graph}
    parts |= {"y": y[:num_train], "ty": y[test], "ally": y[:known]}
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(python2_pickle(value))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in test))


def small_planetoid(folder, name="citeseer"):
    """The files of ten nodes; returns the features that they have."""
    one_hot = np.eye(3, dtype=np.int32)[LABELS]
    x = np.random.default_rng(0).integers(0, 2, (10, 6)).astype(np.float32)
    x[7] = 0
    write_planetoid(folder, name, NEIGHBOURS, x, one_hot, 2, TEST)
    return x
