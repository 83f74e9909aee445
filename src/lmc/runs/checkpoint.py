"""Checkpoints: safetensors for tensors, JSON for the rest, a checksum over both; never a pickle.

A checkpoint is one file, `<epoch>-<step>.<checksum>.safetensors`. The checksum in its name is that of all its
bytes, so that a file that has changed is recognised before anything in it is used.

A run of several shards has a file for each of them besides,
`<epoch>-<step>.shard-<number>.<checksum>.safetensors`. They are written first; it has their names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes
from safetensors.torch import save_file
from torch import Tensor

from lmc.device import on_host
from lmc.errors import RunError
from lmc.estimators.extent_file import DamagedHistoryError
from lmc.files import one_line, partial_file, put_in_place

_NAME = re.compile(r"(\d+)-(\d+)\.([0-9a-f]{32})\.safetensors")
_SHARD_NAME = re.compile(r"\d+-\d+\.shard-\d+\.([0-9a-f]{32})\.safetensors")
SHARDS = "shards"
"""What a state has the names of its shards' files under."""


def save(
    folder: Path,
    epoch: int,
    step: int,
    state: dict[str, Any],
    keep: int = 2,
    shards: Iterable[dict[str, Tensor]] = (),
) -> Path:
    """Write a checkpoint, have the disk confirm it, and remove all but the last ones, this one included."""
    place = f"{epoch:06}-{step:06}"
    parts = [_put(folder, f"{place}.shard-{number}", each, {}) for number, each in enumerate(shards)]
    if parts:
        state = {**state, SHARDS: [part.name for part in parts]}
    kept = _NamedTensors()
    rest = json.dumps(_without_tensors(state, "", kept))
    file = _put(folder, place, kept.tensors, {"state": rest})
    for old in _found(folder)[keep:]:
        old.unlink(missing_ok=True)
    places = {file.name.partition(".")[0] for file in _found(folder)}
    for part in folder.glob("*.shard-*"):
        if part.name.partition(".")[0] not in places:
            part.unlink(missing_ok=True)
    return file


def _put(folder: Path, name: str, tensors: dict[str, Tensor], metadata: dict[str, str]) -> Path:
    """Write a file whose name ends with its checksum."""
    with partial_file(folder / "checkpoint") as partial:
        _write(partial, tensors, metadata)
        file = folder / f"{name}.{_checksum(partial)}.safetensors"
        put_in_place(partial, file)
    return file


def read_shard(file: Path) -> dict[str, Tensor]:
    """What was saved of a shard."""
    with safe_open(file, "pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


def _write(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """As any other file is made: safetensors has its files closed to all but their owner."""
    file.touch()
    mode = file.stat().st_mode
    save_file(tensors, file, metadata)
    file.chmod(mode)


def epochs_done(folder: Path) -> int | None:
    """How many epochs the last checkpoint has, by its name; None where there is none."""
    files = _found(folder) if folder.is_dir() else []
    return int(files[0].name.partition("-")[0]) if files else None


def load_latest(
    folder: Path, use: Callable[[dict[str, Any]], object] = lambda state: None
) -> dict[str, Any] | None:
    """The state of the last checkpoint that is whole, with a warning for each that is not.

    None where there is no checkpoint at all.

    Args:
        folder: of checkpoints.
        use: is called with a state; DamagedHistoryError where something that it refers to is not whole.
    """
    files = _found(folder)
    damaged: list[Path] = []
    reason: str | None
    for file in files:
        try:
            state = _load(file)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            reason = f"damaged ({one_line(error)})"
        else:
            reason = _reason_against(state, use)
        if reason is not None:
            warnings.warn(f"{file}: {reason}; the one before is used", stacklevel=2)
            damaged.append(file)
            continue
        for old in damaged:  # out of the way of later checkpoints
            with contextlib.suppress(OSError):
                old.rename(old.with_suffix(".damaged"))
        return state
    if files:
        raise RunError(f"{folder}: none of its {len(files)} checkpoints is whole")
    return None


def _reason_against(state: dict[str, Any], use: Callable[[dict[str, Any]], object]) -> str | None:
    try:
        use(state)
    except DamagedHistoryError as error:
        return str(error)
    return None


def _load(file: Path) -> dict[str, Any]:
    named = _NAME.fullmatch(file.name)
    if named is None or _checksum(file) != named[3]:
        raise ValueError("its checksum is not the one in its name")
    with safe_open(file, "pt") as opened:
        rest = json.loads(opened.metadata()["state"])
        state: dict[str, Any] = _with_tensors(rest, opened.get_tensor)
    for name in state.get(SHARDS, []):
        named = _SHARD_NAME.fullmatch(name)
        if named is None or _checksum(file.parent / name) != named[1]:
            raise ValueError(f"the checksum of {name} is not the one in its name")
    return state


def _found(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the last one first."""
    named = [(match, file) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return [file for match, file in sorted(named, key=lambda n: (int(n[0][1]), int(n[0][2])), reverse=True)]


def _checksum(file: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(file, "rb") as opened:
        while part := opened.read(1 << 24):
            digest.update(part)
    return digest.hexdigest()


# -- what JSON cannot say ------------------------------------------------------------------------


class _NamedTensors:
    """Tensors by the names under which they are kept; one that modules share is kept under its first name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[int, torch.Size, torch.dtype], str] = {}
        self._memory: set[int] = set()

    def name_of(self, value: Tensor, name: str) -> str:
        value = on_host(value).contiguous()
        if value.numel():
            name = self._names.setdefault((value.data_ptr(), value.shape, value.dtype), name)
        if name not in self.tensors:
            memory = value.untyped_storage().data_ptr()
            # Another view of a tensor that is kept already: safetensors refuses two that overlap.
            self.tensors[name] = value.clone() if memory in self._memory else value
            self._memory.add(memory)
        return name


def _without_tensors(value: Any, name: str, tensors: _NamedTensors) -> Any:
    """The same tree in what JSON knows; tensors are moved to `tensors`, each under its place in the tree."""
    if isinstance(value, Tensor):
        return {"$tensor": tensors.name_of(value, name)}
    if isinstance(value, dict):
        items = [[key, _without_tensors(each, f"{name}.{key}", tensors)] for key, each in value.items()]
        if isinstance(value, Counter):  # of torch's MultiStepLR
            return {"$counter": items}
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(items)
        return {"$items": items}
    if isinstance(value, (list, tuple)):
        each = [_without_tensors(one, f"{name}.{place}", tensors) for place, one in enumerate(value)]
        return each if isinstance(value, list) else {"$tuple": each}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise RunError(f"checkpoint: {name[1:]} is a {type(value).__name__}, which JSON cannot hold")


def _with_tensors(value: Any, tensor: Any) -> Any:
    """The tree that `_without_tensors` was given."""
    if isinstance(value, list):
        return [_with_tensors(one, tensor) for one in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensor(value["$tensor"])
    if "$tuple" in value:
        return tuple(_with_tensors(one, tensor) for one in value["$tuple"])
    if "$items" in value or "$counter" in value:
        items = value.get("$items") or value.get("$counter") or []
        pairs = {key: _with_tensors(each, tensor) for key, each in items}
        return Counter(pairs) if "$counter" in value else pairs
    return {key: _with_tensors(each, tensor) for key, each in value.items()}


# -- between processes ---------------------------------------------------------------------------


def to_bytes(state: dict[str, Any]) -> bytes:
    """A state for other processes, as files have it.

    >>> from_bytes(to_bytes({"epoch": 3, "model": {"w": torch.ones(2)}}))
    {'epoch': 3, 'model': {'w': tensor([1., 1.])}}
    """
    kept = _NamedTensors()
    rest = json.dumps(_without_tensors(state, "", kept))
    written: bytes = save_bytes(kept.tensors, {"state": rest})
    return written


def from_bytes(data: bytes) -> dict[str, Any]:
    """What `to_bytes` was given."""
    size = int.from_bytes(data[:8], "little")
    rest = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["state"])
    state: dict[str, Any] = _with_tensors(rest, load_bytes(data).__getitem__)
    return state


# -- weights alone -------------------------------------------------------------------------------


_SHARED, _CHECKSUM = "$shared", "$checksum"


def save_weights(file: Path, weights: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write the weights of a model, with what is needed to build it, under a name that appears at once."""
    kept = _NamedTensors()
    names = {name: kept.name_of(value, name) for name, value in weights.items()}
    shared = {name: first for name, first in names.items() if name != first}
    content = {**about, _SHARED: shared}
    content[_CHECKSUM] = _checksum_of(kept.tensors, content)
    with partial_file(file) as partial:
        _write(partial, kept.tensors, {"about": json.dumps(content)})
        put_in_place(partial, file)


def _checksum_of(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(on_host(tensor).detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_weights(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_weights` wrote."""
    try:
        with safe_open(file, "pt") as opened:
            about = json.loads(opened.metadata()["about"])
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        checksum = about.pop(_CHECKSUM, None)  # older files have none
        if checksum not in (None, _checksum_of(weights, about)):
            raise ValueError("its checksum is not that of its content")
        shared = about.pop(_SHARED, {})
        return weights | {name: weights[first] for name, first in shared.items()}, about
    except FileNotFoundError:
        raise RunError(f"{file}: there are no weights yet") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise RunError(f"{file}: not the weights of a run ({one_line(error)})") from None
