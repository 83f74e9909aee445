"""Named graphs and graph files."""

from __future__ import annotations

import difflib
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lmc import hashed_random, memory_use
from lmc.array_files import DAMAGED_ARRAY
from lmc.data import published, storage
from lmc.data.graph import Graph
from lmc.data.pyg import MASKS
from lmc.data.synthetic import synthetic
from lmc.errors import DatasetError, GraphError
from lmc.files import expanded, one_line, regular

# What a damaged archive makes numpy and zipfile raise.
_UNREADABLE = (
    *DAMAGED_ARRAY,
    KeyError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
MOST_UNPACKED, MOST_RATIO = 1 << 28, 200
"""An archive that unpacks to more than this many bytes, and this many times its size, is refused."""
KNOWN_FILES = ("amazon_photo", "arxiv", "citeseer", "cora", "flickr-graph", "pubmed")


def load(name_or_path: str | Path, root: str | Path | None = None) -> Graph:
    """A graph by name or by path.

    - `"synthetic"`: `lmc.synthetic()`, which needs no file.
    - `"ogbn-arxiv"`, `"ogbn-products"`, `"flickr"`, `"reddit"`, `"ppi"`: through the loaders of OGB
      and PyG, downloaded where they are missing.
    - any other name, such as `"cora"`: the file `cora.npz` or the folder `cora` (from `Graph.save`).
    - the path of such a file or folder.

    Files are looked for in `root`, in `$LMC_DATA`, and in `data/` of the working folder.

    A `.npz` file holds `indptr` and `indices` (CSR of in-neighbours), `y`, features as dense `x` or as
    CSR (`x_indptr`, `x_indices`, `x_data`, `x_shape`) or none, perhaps `edge_weight` and
    `edge_attr`, and perhaps `train_mask`, `val_mask` and `test_mask`. Without masks 60 % of the nodes
    train, 20 % validate and 20 % test, at random and always the same ones.

    >>> load("synthetic").num_classes
    10
    """
    name = str(name_or_path)
    if name == "synthetic":
        return synthetic()
    if name in published.LOADERS:
        return published.load(name, search_folders(root))
    for candidate in _candidates(name, root):
        if (candidate / storage.HEADER).is_file():
            return Graph.open(candidate)
        if candidate.suffix == ".npz" and candidate.is_file():
            return read_npz(candidate)
    raise DatasetError(_not_found(name, root))


def search_folders(root: str | Path | None) -> list[Path]:
    """Where files are looked for, in this order."""
    given = [root, os.environ.get("LMC_DATA"), "data"]
    return [expanded(Path(folder)) for folder in given if folder]


def _candidates(name: str, root: str | Path | None) -> list[Path]:
    by_name = [path for folder in search_folders(root) for path in (folder / f"{name}.npz", folder / name)]
    own = expanded(Path(name))
    return [own] if _is_path(name) else [*by_name, own]


def _is_path(name: str) -> bool:
    return Path(name).name != name


def _not_found(name: str, root: str | Path | None) -> str:
    if _is_path(name):
        return f"{name}: no such file, or not a graph (.npz or a folder with {storage.HEADER})"
    names = ["synthetic", *published.LOADERS, *KNOWN_FILES]
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near and name not in names else ""
    looked = ", ".join(str(folder / f"{name}.npz") for folder in search_folders(root))
    return f"data set {name!r} is missing: {hint}Looked for {looked}; root= or LMC_DATA name other folders"


def read_npz(file: Path) -> Graph:
    """A graph from a plain `.npz` file; see `load` for what it holds."""
    try:
        with open(regular(file), "rb") as opened, np.lib.npyio.NpzFile(opened, allow_pickle=False) as archive:
            _check_promise(archive, file)
            arrays = {name: archive[name] for name in archive.files}
    except _UNREADABLE as error:
        raise DatasetError(f"{file}: not a readable .npz of plain arrays ({one_line(error)})") from None
    missing = [name for name in ("indptr", "indices", "y") if name not in arrays]
    if missing:
        raise DatasetError(f"{file}: array {missing[0]!r} is missing")
    train, val, test = (arrays.get(name) for name in MASKS)
    try:
        if train is None and val is None and test is None:
            train, val, test = _random_split(len(arrays["y"]))
        return Graph.from_csr(
            arrays["indptr"],
            arrays["indices"],
            _features(arrays),
            arrays["y"],
            train,
            val,
            test,
            arrays.get("edge_weight"),
            arrays.get("edge_attr"),
        )
    except GraphError as error:
        raise GraphError(f"{file}: {error}") from None
    except (KeyError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise DatasetError(f"{file}: not a graph ({one_line(error)})") from None


def _check_promise(archive: np.lib.npyio.NpzFile, file: Path) -> None:
    """Raise DatasetError where unpacking would fill the memory: a few bytes can promise any number."""
    assert archive.zip is not None
    promised = sum([entry.file_size for entry in archive.zip.infolist()])
    free = memory_use.free()
    if free is not None and promised > free:
        sizes = f"{promised / 1e9:.2g} GB unpacked, {free / 1e9:.2g} GB are free"
        raise DatasetError(f"{file}: {sizes}; a folder from Graph.save is opened without unpacking")
    if promised > MOST_UNPACKED and promised > MOST_RATIO * file.stat().st_size:
        raise DatasetError(f"{file}: {promised / 1e9:.2g} GB unpacked, {MOST_RATIO} times its size or more")


def _features(arrays: dict[str, NDArray[Any]]) -> NDArray[Any] | None:
    """Dense features, from dense or sparse ones."""
    if "x_indptr" not in arrays:
        return arrays.get("x")
    data = np.asarray(arrays["x_data"])
    data = data if data.dtype == np.float64 else data.astype(np.float32)  # scipy has no half precision
    dense, free = data.itemsize * math.prod(map(int, arrays["x_shape"])), memory_use.free()
    if free is not None and dense > free:
        raise GraphError(
            f"x_shape = {arrays['x_shape'].tolist()}: {dense / 1e9:.2g} GB, {free / 1e9:.2g} GB are free"
        )
    entries = (data, arrays["x_indices"], arrays["x_indptr"])
    matrix = sparse.csr_array(entries, shape=tuple(arrays["x_shape"]))
    matrix.check_format(full_check=True)
    return np.asarray(matrix.toarray())


def _random_split(num_nodes: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    turn = hashed_random.permutation(num_nodes, 0)
    train, val = -(-num_nodes * 6 // 10), -(-num_nodes * 8 // 10)
    return turn < train, (turn >= train) & (turn < val), turn >= val
