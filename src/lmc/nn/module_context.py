"""Contexts in which modules of users and of PyG behave as ours do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from lmc import hashed_random
from lmc.device import HOST, device_of, move
from lmc.nn.fixed_order import FixedOrder
from lmc.nn.rows import Rows


@contextmanager
def _in_mode(modules: list[nn.Module], training: bool) -> Iterator[None]:
    """In this context these modules, which are in the other mode, are in this one, without their children."""
    for module in modules:
        module.training = training
    try:
        yield
    finally:
        for module in modules:
            module.training = not training


def evaluation_mode(model: nn.Module, which: Callable[[nn.Module], bool]) -> AbstractContextManager[None]:
    """In this context the modules for which `which` holds are in evaluation mode, without their children."""
    return _in_mode([module for module in model.modules() if module.training and which(module)], False)


def training_mode(model: nn.Module) -> AbstractContextManager[None]:
    """In this context every module is in training mode."""
    return _in_mode([module for module in model.modules() if not module.training], True)


@contextmanager
def untouched_statistics(model: nn.Module) -> Iterator[None]:
    """A pass in this context leaves the buffers (a batch norm's running statistics) as they were."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


def takes_statistics(module: nn.Module) -> bool:
    """Whether it is a batch norm, or an instance norm, for which the nodes are one instance."""
    return isinstance(module, _NormBase)


def drops(module: nn.Module) -> bool:
    """Whether it drops at random: a dropout, or a convolution with a `dropout` of its own, as PyG's have."""
    own = getattr(module, "dropout", None)  # of PyG's MLP, one for each of its layers
    return isinstance(module, _DropoutNd) or isinstance(own, (float, list))


def computing_in(dtype: torch.dtype, device: torch.device = HOST) -> AbstractContextManager[None]:
    """In this context dense products are of bfloat16, if that is the type, with weights copied to it once.

    Otherwise numbers keep their type, also within a `torch.autocast` of the caller's. It holds on one device.
    """
    is_16_bit = dtype == torch.bfloat16
    context: AbstractContextManager[None] = torch.autocast(device.type, torch.bfloat16, enabled=is_16_bit)
    return context


def without_autocast(device: torch.device = HOST) -> AbstractContextManager[None]:
    """In this context numbers keep their type."""
    return computing_in(torch.float32, device)


@contextmanager
def on_device(module: nn.Module, device: torch.device) -> Iterator[None]:
    """In this context a module is on a device; after it, where it was."""
    before = device_of(module)
    if before == device:
        yield
        return
    move(module, device)
    try:
        yield
    finally:
        move(module, before)


@contextmanager
def running_on(module: nn.Module, rows: Rows) -> Iterator[None]:
    """In this context a module of a user or of PyG treats rows as ours do.

    - Batch norms take their statistics from batch rows; halo rows, or a single row, get the running ones.
    - Random numbers depend on the address of the rows, not on what was drawn before.
    - Sums do not depend on the number of threads.
    """
    with _statistics_of_several(module, rows.inside), _seeded(module, rows), FixedOrder():
        yield


@contextmanager
def _statistics_of_several(module: nn.Module, inside: bool) -> Iterator[None]:
    """Each norm looks at what it is given itself: within a convolution that may be nodes or edges."""
    norms = [part for part in module.modules() if part.training and takes_statistics(part)]

    def decide(norm: nn.Module, given: tuple[Tensor, ...]) -> None:
        norm.training = inside and len(given[0]) > 1

    hooks = [norm.register_forward_pre_hook(decide) for norm in norms]
    try:
        yield
    finally:
        for norm, hook in zip(norms, hooks, strict=True):
            hook.remove()
            norm.training = True


@contextmanager
def _seeded(module: nn.Module, rows: Rows) -> Iterator[None]:
    if not any(part.training for part in module.modules()):
        yield
        return
    here = device_of(module)
    with torch.random.fork_rng([here] if here.type == "cuda" else []):
        torch.manual_seed(int(hashed_random.bits(*rows.address, rows.inside)[0] >> 1))
        yield
