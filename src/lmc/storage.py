"""A graph on disk: a folder of plain `.npy` arrays and a `graph.json` that is written last."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmc.errors import GraphError

HEADER = "graph.json"
FORMAT = "lmc-graph"
VERSION = 1
REQUIRED = ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask")
OPTIONAL = ("edge_weight",)


def save(path: Path, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write the folder under another name, move it into place, and only then add its header.

    A folder without a header does not open, so whatever moment a save is killed at, what opens is whole.
    """
    if path.exists() and not (path / HEADER).is_file():
        raise GraphError(f"{path}: exists and is not a graph folder; nothing was written")
    header = {"format": FORMAT, "version": VERSION, "arrays": sorted(arrays), **about}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    except OSError as error:
        raise GraphError(f"{path}: cannot be written ({error.strerror})") from None
    try:
        for name, array in arrays.items():
            with open(partial / f"{name}.npy", "wb") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
                _sync(file)
        with open(partial / f".{HEADER}", "w", encoding="utf-8") as text:
            json.dump(header, text, indent=2)
            _sync(text)
        _replace(path, partial)
        (path / f".{HEADER}").rename(path / HEADER)
    except OSError as error:
        raise GraphError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(path: Path, new: Path) -> None:
    """Move the folder `new` to `path`; what was there comes back if that fails."""
    if not path.exists():
        new.rename(path)
        return
    old = new.with_suffix(".replaced")
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def open_folder(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the memory-mapped arrays (copy on write: the files never change)."""
    try:
        header = json.loads((path / HEADER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GraphError(f"{path}: not a graph folder, {HEADER} is missing") from None
    except (OSError, ValueError) as error:
        raise GraphError(f"{path / HEADER}: cannot be read ({error})") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise GraphError(f"{path / HEADER}: does not describe a graph folder")
    if header.get("version") != VERSION:
        rule = f"this version of lmc reads {VERSION}"
        raise GraphError(f"{path / HEADER}: version {header.get('version')}; {rule}")
    listed = header.get("arrays")
    names = [name for name in (*REQUIRED, *OPTIONAL) if isinstance(listed, list) and name in listed]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise GraphError(f"{path / HEADER}: array {missing[0]!r} is missing")
    return header, {name: _mapped(path / f"{name}.npy") for name in names}


def _mapped(file: Path) -> NDArray[Any]:
    try:
        return np.lib.format.open_memmap(file, mode="c")
    except (OSError, ValueError, EOFError) as error:
        raise GraphError(f"{file}: cannot be read ({error})") from None


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
