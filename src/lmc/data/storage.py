"""A graph on disk: a folder of plain `.npy` arrays and a `graph.json` that names them.

Arrays are written first and the header last, by an atomic replacement: whenever a save is killed, the folder
opens as the graph that was there before, or not at all if there was none.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from lmc.array_files import DAMAGED_ARRAY, Pieces, write_array, write_pieces
from lmc.errors import GraphError
from lmc.files import (
    check_fillable,
    filling,
    one_line,
    read_text_bytes,
    regular,
    write_atomically,
    write_synced,
)

HEADER = "graph.json"
FORMAT = "lmc-graph"
VERSION = 1
REQUIRED = ("indptr", "indices", "x", "y", "train_mask", "val_mask", "test_mask")
STAYS_ON_DISK = 1 << 28
"""Bytes of a folder from which on a graph is worked on where it is, and little of it is copied."""
OPTIONAL = ("edge_weight", "edge_attr", "edge_type", "id")

# x.npy; a graph that replaces another has x.<token>.npy, so that both are whole until the header changes.
_ARRAY = re.compile(rf"({'|'.join((*REQUIRED, *OPTIONAL))})(\.[0-9a-f]{{8}})?\.npy")


def save(path: Path, about: dict[str, Any], arrays: Mapping[str, NDArray[Any] | Pieces]) -> None:
    """Write the folder, or replace the graph in it; arrays one after the other, in the order given."""
    before = replaced(path)
    token = f".{uuid.uuid4().hex[:8]}" if before else ""
    files = {name: f"{name}{token}.npy" for name in arrays}
    header = {"format": FORMAT, "version": VERSION, **about, "arrays": files}
    try:
        with filling(path, HEADER):
            for name, file in files.items():
                write_synced(path / file, partial(_write, array=arrays[name]))
            content = json.dumps(header, indent=2).encode()
            write_atomically(path / HEADER, lambda opened: opened.write(content))
        for file in before:
            (path / file).unlink(missing_ok=True)
    except OSError as error:
        raise GraphError(f"{path}: cannot be written ({one_line(error)})") from None


def _write(file: BinaryIO, array: NDArray[Any] | Pieces) -> None:
    if isinstance(array, Pieces):
        write_pieces(file, array)
    else:
        write_array(file, array)


def replaced(path: Path) -> list[str]:
    """The arrays in the folder that a save will replace; a folder of other things is left alone."""
    check_fillable(path, HEADER, "a graph folder")
    return sorted(file.name for file in path.glob("*.npy") if _ARRAY.fullmatch(file.name))


def open_folder(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the memory-mapped arrays.

    The files never change: those of a small graph are copied where something writes to them; those of one
    that is to stay on disk cannot be written to, since room for copies would count as memory.
    """
    header = _header(path)
    while True:
        try:
            return header, _arrays(path, header)
        except GraphError:
            # Perhaps the graph was replaced between the reading of its header and of its arrays.
            before, header = header, _header(path)
            if header == before:
                raise


def _header(path: Path) -> dict[str, Any]:
    file = path / HEADER
    try:
        header = json.loads(read_text_bytes(file))
    except FileNotFoundError:
        raise GraphError(f"{path}: not a graph folder, {HEADER} is missing") from None
    except NotADirectoryError:
        raise GraphError(f"{path}: not a graph folder, but a file; lmc.load reads some of them") from None
    except (OSError, ValueError, RecursionError) as error:
        raise GraphError(f"{file}: cannot be read ({one_line(error)})") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise GraphError(f"{file}: does not describe a graph folder")
    if header.get("version") != VERSION:
        raise GraphError(f"{file}: version {header.get('version')!r}; this version of lmc reads {VERSION}")
    return header


def _arrays(path: Path, header: dict[str, Any]) -> dict[str, NDArray[Any]]:
    listed = header.get("arrays")
    files = listed if isinstance(listed, dict) else {}
    missing = [name for name in REQUIRED if name not in files]
    if missing:
        raise GraphError(f"{path / HEADER}: array {missing[0]!r} is missing")
    for name, file in files.items():
        if not (isinstance(file, str) and (match := _ARRAY.fullmatch(file)) and match[1] == name):
            raise GraphError(f"{path / HEADER}: {file!r} is not the file of array {name!r}")
    arrays = {name: _mapped(path / file, "r") for name, file in files.items()}
    if sum(array.nbytes for array in arrays.values()) >= STAYS_ON_DISK:
        return arrays
    return {name: _mapped(path / file, "c") for name, file in files.items()}


def _mapped(file: Path, mode: Literal["c", "r"]) -> NDArray[Any]:
    try:
        return np.lib.format.open_memmap(regular(file), mode=mode)
    except DAMAGED_ARRAY as error:
        raise GraphError(f"{file}: cannot be read ({one_line(error)})") from None
