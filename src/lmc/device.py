"""Device: where steps compute, and how what they read gets there.

Graphs and batches are on the host. What a step reads of them is copied to the device of the step, and the few
numbers that Python reads of it come back: `copied` and `on_host` are the two ways. Models `move`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from lmc import checks
from lmc.errors import ArgumentError
from lmc.files import one_line

HOST = torch.device("cpu")
Value = TypeVar("Value")


def chosen_device(given: str | torch.device, dtype: torch.dtype = torch.float32) -> torch.device:
    """The device of this name; `"auto"` is a GPU that runs CUDA, where there is one, else the host.

    Args:
        given: its name.
        dtype: of what is computed there.

    Raises:
        ArgumentError: torch knows no such device, there is none in this machine, or it has no such type.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if given == "auto":
        given = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(given)
        if device.type == "meta":
            raise RuntimeError("it computes nothing")
        found = torch.empty(0, device=device).device  # with its number, where there are several
    except (RuntimeError, AssertionError, TypeError) as error:
        rule = "must be auto, cpu, cuda, cuda:1, mps, or what else torch finds in this machine"
        raise ArgumentError(f"device={checks.shown(given)}: {rule} ({one_line(error)})") from None
    if dtype == torch.float64 and widest_type(found) != dtype:
        rule = "has no float64; graph.to(torch.float32) and model.float() fit it"
        raise ArgumentError(f"device={checks.shown(given)}: {rule}")
    return found


def widest_type(device: torch.device) -> torch.dtype:
    """In which sums over all rows are taken: float64, where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def device_of(module: nn.Module) -> torch.device:
    """Where a module's first parameter is; without any, the host.

    >>> device_of(nn.Linear(2, 2))
    device(type='cpu')
    """
    return next((parameter.device for parameter in module.parameters()), HOST)


def free_memory(device: torch.device) -> int | None:
    """Bytes that are left on a device, with those that torch keeps for later; None where nobody says."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return None


def peak_memory(device: torch.device) -> int | None:
    """The most bytes that tensors have had on a device so far; None where torch does not count them."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None


def move(module: nn.Module, device: torch.device) -> None:
    """Move a module; its parameters stay the same objects."""
    module.to(device)


def on_host(values: Tensor) -> Tensor:
    """The same values for Python to read. Whoever asks for them waits for the device."""
    return values.detach().cpu()


def copied(value: Value, device: torch.device) -> Value:
    """A tensor of the host, or an object that holds some, on a device; itself where that is the host.

    >>> copied((torch.ones(2), None), HOST)[0].tolist()
    [1.0, 1.0]
    """
    return value if device == HOST else _copied(value, device)


def _copied(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        pinned = value.pin_memory() if device.type == "cuda" and value.device == HOST else value
        return pinned.to(device, non_blocking=True)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: _copied(getattr(value, each.name), device) for each in fields(value)}
        return replace(value, **parts)
    if isinstance(value, tuple):
        parts_of = [_copied(each, device) for each in value]
        return type(value)(*parts_of) if hasattr(value, "_fields") else tuple(parts_of)
    return value


class _Copy(NamedTuple):
    """What is copied, and when it has arrived; None where it is waited for anyway."""

    value: Any
    arrived: torch.cuda.Event | None


class Copies:
    """Copies on a device of what is on the host, each made when it is first asked for.

    On a GPU that runs CUDA they travel on a stream of their own, beside what is computed meanwhile.

    Args:
        device: where to.

    >>> copies = Copies(HOST)
    >>> first = copies.get("labels", lambda: torch.ones(2))
    >>> copies.get("labels", lambda: torch.zeros(2)) is first
    True
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._of: dict[Hashable, _Copy] = {}

    def get(self, key: Hashable, make: Callable[[], Value], *, ahead: bool = False) -> Value:
        """What `make` gives, on the device.

        Args:
            key: under which it is kept.
            make: makes it, on the host.
            ahead: whether it is not used yet, so that nothing has to wait for it.
        """
        copy = self._of.get(key)
        if copy is None:
            copy = self._of[key] = self._sent(make())
        if copy.arrived is not None and not ahead:
            user = torch.cuda.current_stream(self._device)
            user.wait_event(copy.arrived)
            for tensor in _tensors(copy.value):
                tensor.record_stream(user)  # whose memory is not used again before that is done with it
        found: Value = copy.value
        return found

    def _sent(self, value: Any) -> _Copy:
        if self._device.type != "cuda":
            return _Copy(copied(value, self._device), None)
        side = _side_stream(self._device)
        with torch.cuda.stream(side):
            return _Copy(copied(value, self._device), side.record_event())


_side_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _side_streams:
        _side_streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _side_streams[device]


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value if isinstance(value, tuple) else []
    if is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, each.name) for each in fields(value)]
    return [tensor for part in parts for tensor in _tensors(part)]
