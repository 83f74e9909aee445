"""A device that does not exist: its tensors hold data of the host, and compute for real.

An operation on tensors of both kinds raises, as on a GPU, and more strictly: also where torch would copy an
index to the device by itself. So does Python, where it reads a number of this device by another way than
`lmc.device.on_host`. What torch itself, or PyG, reads within a call is theirs.
"""

import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import lmc.device
from lmc.batching import prefetch as prefetching

_setup_privateuseone_for_python_backend("pretend")
torch.pretend.get_amp_supported_dtype = lambda: [torch.bfloat16]  # torch.autocast asks for it
PRETEND = torch.device("pretend:0")
READERS = {lmc.device.on_host.__code__, lmc.device.move.__code__}
aten = torch.ops.aten


class MixedDevicesError(RuntimeError):
    """An operation on tensors of two devices."""


class ReadOnHostError(RuntimeError):
    """Python has read a tensor of the device outside of the one place for it."""


class PretendTensor(Tensor):
    """A tensor that says that it is on the device."""

    @staticmethod
    def __new__(cls, data, requires_grad=False):
        return Tensor._make_wrapper_subclass(
            cls,
            data.shape,
            strides=data.stride(),
            storage_offset=data.storage_offset(),
            dtype=data.dtype,
            device=PRETEND,
            requires_grad=requires_grad,
        )

    def __init__(self, data, requires_grad=False):
        self.data_on_host = data

    def __tensor_flatten__(self):
        return ["data_on_host"], None

    @staticmethod
    def __tensor_unflatten__(inner, _, size, stride):
        return PretendTensor(inner["data_on_host"])

    @property
    def data(self):
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, other):
        Tensor.data.__set__(self, other)
        self.data_on_host = other.data_on_host

    def __repr__(self):
        return f"pretend({self.data_on_host!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


class _Pretending(TorchDispatchMode):
    """Sees what is made on the device, or copied to it, of tensors of the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if PretendTensor not in types and kwargs.get("device") is None:
            return func(*args, **kwargs)
        return _computed(func, args, kwargs)


@contextmanager
def pretending():
    """In this context torch has the device `"pretend"`; parameters stay the same objects when they move."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    step_aside = prefetching._step_aside
    prefetching._step_aside = lambda: _Pretending().__enter__()  # a mode is that of one thread
    try:
        with _Pretending():
            yield PRETEND
    finally:
        prefetching._step_aside = step_aside
        torch.__future__.set_swap_module_params_on_conversion(before)


def revealed(tensor):
    """What a tensor of the device holds; for tests alone."""
    return tensor.data_on_host if isinstance(tensor, PretendTensor) else tensor


def _computed(func, args, kwargs):
    tensors = list[Tensor]()
    _each_tensor((*args, *kwargs.values()), tensors.append)
    pretended = [each for each in tensors if isinstance(each, PretendTensor)]
    wanted, kwargs = kwargs.get("device"), dict(kwargs)
    if wanted is None:
        there = bool(pretended)
    else:
        there, kwargs["device"] = torch.device(wanted).type == "pretend", "cpu"
    if func in (aten._to_copy.default, aten.copy_.default):
        if pretended and not (there if func is aten._to_copy.default else isinstance(args[0], PretendTensor)):
            _check_reader()
    elif func is aten._local_scalar_dense.default and pretended:
        _check_reader()
    elif pretended and any(each.ndim > 0 for each in tensors if not isinstance(each, PretendTensor)):
        raise MixedDevicesError(f"{func}: reads tensors of the device and of the host")
    kwargs = {name: _each_tensor(value, revealed) for name, value in kwargs.items()}
    found = func(*_each_tensor(args, revealed), **kwargs)
    if func is aten.copy_.default:
        return args[0]
    if not there:
        return found
    known = {id(each.data_on_host): each for each in pretended}
    # Where an operation has given back what it was given, that.
    return _each_tensor(found, lambda each: known[id(each)] if id(each) in known else PretendTensor(each))


def _each_tensor(value, change):
    """The same with another tensor in the place of each."""
    if isinstance(value, Tensor):
        return change(value)
    return (
        type(value)(_each_tensor(each, change) for each in value) if type(value) in (list, tuple) else value
    )


def _check_reader():
    """Raise unless the one function that may do it is on its way, or what is not ours has asked."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in READERS:
            return
        folders = Path(frame.f_code.co_filename).parts
        if "torch_geometric" in folders or "optim" in folders:
            return
        if "lmc" in folders and folders[-1] != "fixed_order.py":  # which stands in for torch
            break
        frame = frame.f_back
    where = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    raise ReadOnHostError(f"{where}: reads a tensor of the device; lmc.device.on_host is for that")
