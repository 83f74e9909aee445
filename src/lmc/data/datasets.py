"""Named graphs and graph files."""

from __future__ import annotations

import difflib
import os
import shlex
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lmc import checks, memory_use
from lmc.array_files import DAMAGED_ARRAY, handed_over
from lmc.data import published, rules, storage
from lmc.data.graph import Graph
from lmc.data.made_features import Made
from lmc.data.prepared import MANIFEST
from lmc.data.prepared_graph import PreparedGraph
from lmc.data.splits import MASKS, Role, masks_of_indices, random_split
from lmc.data.synthetic import synthetic
from lmc.errors import ArgumentError, DatasetError, GraphError
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


def load(
    name_or_path: str | Path,
    root: str | Path | None = None,
    *,
    features: Made | None = None,
    split: int | None = None,
) -> Graph:
    """A graph by name or by path.

    - `"synthetic"`: `lmc.synthetic()`, which needs no file.
    - `"cora"`, `"citeseer"`, `"pubmed"`: Planetoid's, with their public splits.
    - `"amazon-photo"`, `"amazon-computers"`, `"coauthor-cs"`, `"coauthor-physics"`, `"cora-full"`,
      `"cora-ml"`, `"citeseer-full"`, `"pubmed-full"`, `"dblp"`: for these no split is published.
    - `"flickr"` (`"flickr-graph"` without its features), `"reddit"`, `"ppi"`.
    - `"ogbn-arxiv"` or `"arxiv"`, `"ogbn-products"` or `"products"`: OGB's, which need its package
      (`pip install 'lmc[ogb]'`).
    - any other name, such as `"mine"`: the file `mine.npz` or the folder `mine` (from `Graph.save`).
    - the path of such a file or folder, or of a folder that `lmc.prepare` wrote.

    A path that there is comes first. Names are looked for in `root`, in `$LMC_DATA`, and in `data/` of the
    working folder: in each, first a file or folder of that name, then the files that were published. What is
    in none of them is downloaded into the first. Case, `-` and `_` in the names of published sets do not
    matter.

    A `.npz` file holds `indptr` and `indices` (CSR of in-neighbours), and perhaps `y`; features as dense
    `x` or as CSR (`x_indptr`, `x_indices`, `x_data`, `x_shape`); `edge_weight`, `edge_attr` and
    `edge_type`; `id`, what nodes are called; and `train_mask`, `val_mask` and `test_mask`, or the node
    numbers `train_idx`, `val_idx` and `test_idx`. Without a split 60 % of the nodes train, 20 % validate and
    20 % test, at random and always the same ones.

    Args:
        name_or_path: which graph.
        root: where to look for files first.
        features: made of the edges, `"degree"` or `"structure"`, which replace its own; see
            `Graph.with_features`. None keeps its own.
        split: which of several splits, if the masks of a `.npz` are (nodes, k); None takes the first, with
            a warning.

    >>> load("synthetic").num_classes
    10
    """
    checks.path("name_or_path", name_or_path)
    graph = _load(str(name_or_path), root, split)
    if features is not None:
        if graph.num_features:
            warnings.warn(
                f"{name_or_path}: its {graph.num_features:,} features are left aside for those made of its"
                f" edges (features={features!r})",
                stacklevel=2,
            )
        graph = graph.with_features(features)
    given = {
        "name": from_anywhere(str(name_or_path)),
        "root": root and str(root),
        "features": features,
        "split": split,
    }
    graph.remember_source({key: value for key, value in given.items() if value is not None})
    return graph


def from_anywhere(name: str) -> str:
    """The name of a graph as it can be given in any working folder: a path becomes absolute.

    >>> from_anywhere("synthetic")
    'synthetic'
    """
    path = expanded(Path(name))
    return name if name == "synthetic" or _reader(path, None) is None else str(path.absolute())


def _load(name: str, root: str | Path | None, split: int | None) -> Graph:
    found, published_name = _find(name, root, split), published.published_name(name)
    if found is not None:
        is_file = name != "synthetic" and not _is_path(name) and published_name is None
        if root is not None and is_file and not expanded(Path(root)).is_dir():
            raise DatasetError(f"root={str(root)!r}: is no folder; without it, {name} is found elsewhere")
        return found()
    if published_name is None:
        raise DatasetError(_not_found(name, root))
    return _of_one_split(split, published.load, published_name, search_folders(root)[0])


def _of_one_split(split: int | None, load: Callable[..., Graph], *where: Any) -> Graph:
    if split:
        raise ArgumentError(f"split={split}: the graph has one split, 0")
    return load(*where)


def is_at_hand(name: str, root: str | Path | None = None) -> bool:
    """Whether `load` would find a graph without downloading it.

    >>> is_at_hand("synthetic")
    True
    """
    return _find(name, root) is not None


def search_folders(root: str | Path | None) -> list[Path]:
    """Where files are looked for, in this order."""
    given = [root and checks.path("root", root), os.environ.get("LMC_DATA"), "data"]
    return [expanded(Path(folder)) for folder in given if folder]


def _find(name: str, root: str | Path | None, split: int | None = None) -> Callable[[], Graph] | None:
    """What loads the graph from where it is; None where it is nowhere."""
    if name == "synthetic":
        return partial(_of_one_split, split, synthetic)
    own = _reader(expanded(Path(name)), split)
    if own is not None or _is_path(name):
        return own
    published_name = published.published_name(name)
    for folder in search_folders(root):
        for spelling in _spellings(name, published_name):
            found = _reader(folder / f"{spelling}.npz", split) or _reader(folder / spelling, split)
            if found is not None:
                return found
        if published_name is not None and published.is_in(published_name, folder):
            return partial(_of_one_split, split, published.load, published_name, folder)
    return None


def _reader(path: Path, split: int | None) -> Callable[[], Graph] | None:
    if (path / MANIFEST).is_file():
        return partial(_of_one_split, split, PreparedGraph, path)
    if (path / storage.HEADER).is_file():
        return partial(_of_one_split, split, Graph.open, path)
    if path.suffix == ".npz" and path.is_file():
        return partial(read_npz, path, split)
    return None


def _spellings(name: str, published_name: str | None) -> list[str]:
    """As it was typed, and as files of a published set may be called."""
    if published_name is None:
        return [name]
    return list(dict.fromkeys([name, name.lower(), published_name, published_name.replace("-", "_")]))


def _is_path(name: str) -> bool:
    return Path(name).name != name or name.endswith(".npz")


def _not_found(name: str, root: str | Path | None) -> str:
    path = expanded(Path(name))
    if path.is_file() and {".csv", ".tsv", ".parquet"} & {*path.suffixes}:
        rule = f"`lmc import {shlex.quote(name)} --out FOLDER`, or lmc.read_tables, makes a graph of tables"
        return f"{name}: a table, not a graph; {rule}"
    if _is_path(name) or path.exists():
        return f"{name}: no such file, or not a graph (.npz or a folder with {storage.HEADER})"
    names = ["synthetic", *published.ALIASES, *published.PUBLISHED]
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]}? Looked" if near else "looked"
    looked = ", ".join(str(folder / f"{name}.npz") for folder in search_folders(root))
    rule = "root= or LMC_DATA name other folders"
    known = f"known are synthetic (needs no file), {', '.join(names[1:])}"
    return f"data set {name!r} is missing: {hint} for {looked}; {rule}; {known}"


def read_npz(file: Path, split: int | None = None) -> Graph:
    """A graph from a plain `.npz` file; see `load` for what it holds."""
    try:
        with open(regular(file), "rb") as opened, np.lib.npyio.NpzFile(opened, allow_pickle=False) as archive:
            _check_promise(archive, file)
            arrays = {name: archive[name] for name in archive.files}
    except _UNREADABLE as error:
        raise DatasetError(f"{file}: not a readable .npz of plain arrays ({one_line(error)})") from None
    missing = [name for name in ("indptr", "indices") if name not in arrays]
    if missing:
        raise DatasetError(f"{file}: array {missing[0]!r} is missing")
    try:
        return Graph.from_csr(
            handed_over(arrays["indptr"]),
            handed_over(arrays["indices"]),
            handed_over(_features(arrays)),
            arrays.get("y"),
            edge_weight=arrays.get("edge_weight"),
            edge_attr=arrays.get("edge_attr"),
            edge_type=arrays.get("edge_type"),
            id=arrays.get("id"),
            split=split,
            **_masks(arrays),
        )
    except (GraphError, ArgumentError) as error:
        raise type(error)(f"{file}: {error}") from None
    except (KeyError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise DatasetError(f"{file}: not a graph ({one_line(error)})") from None


def _masks(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The split of the file, as masks or as node numbers; a random one where labels have none."""
    masks: dict[str, Any] = {name: arrays[name] for name in MASKS if name in arrays}
    indices = {role: arrays[f"{role}_idx"] for role in get_args(Role) if f"{role}_idx" in arrays}
    if indices and not masks:
        return dict(masks_of_indices(indices, len(arrays["indptr"]) - 1))
    if "y" in arrays and not masks:
        return dict(random_split(len(arrays["y"])))
    return masks


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
    rules.fits_dense(f"x_shape = {arrays['x_shape'].tolist()}", arrays["x_shape"], data.itemsize)
    entries = (data, arrays["x_indices"], arrays["x_indptr"])
    matrix = sparse.csr_array(entries, shape=tuple(arrays["x_shape"]))
    matrix.check_format(full_check=True)
    return np.asarray(matrix.toarray())
