"""Pickles of arrays and plain containers, read without running anything that they name.

A pickle is a list of operations for a stack machine. This machine knows those that plain data need. A name in
the file, such as `numpy.dtype`, stands for a function of this module or for nothing: no name is looked up, no
class of the file's choice is made, and no array is larger than the bytes that the file has for it.

A subclass of `pickle.Unpickler` would be shorter, but its `find_class` guards names alone: nine bytes that
put a value far into the memo take gigabytes, and a tuple as a key can end the process or keep it for ever.
"""

from __future__ import annotations

import codecs
import io
import os
import pickletools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lmc.errors import DatasetError
from lmc.files import one_line, regular

MOST_OPERATIONS = 4_000_000
"""The largest graph of Planetoid takes some 300,000, and each can hold some 100 bytes of memory."""
LARGEST = 64 << 20
"""Bytes of a file; Planetoid's largest has some ten million."""

_DAMAGED = (
    *(OSError, ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(AssertionError, OverflowError, MemoryError, RecursionError, Warning),
)
_NUMBERS = re.compile(r"[<>|]?(b1|[iu][1248]|f[248])")
_WITH_THEIR_VALUE = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_OPERATIONS = {operation.code.encode("latin1"): operation for operation in pickletools.opcodes}


def read_pickle(file: Path) -> Any:
    """The value in a file: an array, a matrix, or plain containers of them.

    It may hold numpy's arrays of numbers, scipy's CSR matrices (as `csr_array`), lists, tuples, dicts with
    integers or text as keys, numbers, text, bytes and None, in any protocol and as Python 2 wrote them.

    Raises:
        DatasetError: one line that names the file, for all else.

    >>> import pickle, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_bytes(pickle.dumps({0: [1, 2]}, protocol=2))
    ...     read_pickle(Path(folder) / "a")
    {0: [1, 2]}
    """
    try:
        return _Machine().run(_content(file))
    except _DAMAGED as error:
        raise DatasetError(f"{file}: not a pickle of plain arrays ({one_line(error)})") from None


def _content(file: Path) -> bytes:
    with open(regular(file), "rb") as opened:
        if os.fstat(opened.fileno()).st_size > LARGEST:
            raise OSError(f"larger than {LARGEST >> 20} MB")
        return opened.read()


class _Name(str):
    """A name in the file, `module.name`; never looked up."""


@dataclass(eq=False)
class _Unbuilt:
    """What the file makes first and gives its content later."""

    build: Callable[[Any], Any]
    remembered_as: list[int] = field(default_factory=list)


def _operations(content: bytes) -> Iterator[tuple[str, Any]]:
    stream = io.BytesIO(content)
    for _ in range(MOST_OPERATIONS):
        operation = _OPERATIONS.get(stream.read(1))
        if operation is None:
            raise ValueError("it is cut off, or damaged")
        if operation.name == "STRING":  # pickletools takes it for ASCII, which the bytes of an array are not
            quoted = stream.readline().rstrip(b"\n")
            yield operation.name, codecs.escape_decode(quoted[1:-1])[0].decode("latin1")
        else:
            yield operation.name, operation.arg and operation.arg.reader(stream)
    raise ValueError(f"it has more than {MOST_OPERATIONS:,} operations")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        for name, argument in _operations(content):
            if name == "STOP":
                break
            self.step(name, argument)
        result = self.top()
        if isinstance(result, (_Name, _Unbuilt)):
            raise ValueError("it has no value")
        return result

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case _ if name in _WITH_THEIR_VALUE:
                stack.append(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "PROTO" | "FRAME":
                pass
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.remember(argument)
            case "MEMOIZE":
                self.remember(len(self.memo))
            case "GET" | "BINGET" | "LONG_BINGET":
                if argument not in self.memo:
                    raise ValueError("it recalls what it never had")
                stack.append(self.memo[argument])
            case "MARK":
                self.marks.append(len(stack))
            case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_TUPLE":
                stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}[name]())
            case "LIST":
                stack.append(self.since_mark())
            case "TUPLE":
                stack.append(tuple(self.since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self.last(int(name[-1]))))
            case "DICT":
                items = self.since_mark()
                stack.append({})
                self.set_items(items)
            case "APPEND":
                self.extend(self.last(1))
            case "APPENDS":
                self.extend(self.since_mark())
            case "SETITEM":
                self.set_items(self.last(2))
            case "SETITEMS":
                self.set_items(self.since_mark())
            case "GLOBAL":
                stack.append(_known(argument.replace(" ", ".")))
            case "STACK_GLOBAL":
                stack.append(_known(".".join(self.last(2))))
            case "REDUCE":
                function, arguments = self.last(2)
                if not (isinstance(function, _Name) and function in _CALLS):
                    raise ValueError("it calls what is no function")
                stack.append(_CALLS[function](*arguments))
            case "NEWOBJ":
                kind, arguments = self.last(2)
                stack.append(_new_matrix(kind, *arguments))
            case "BUILD":
                unbuilt, state = self.last(2)
                if not isinstance(unbuilt, _Unbuilt):
                    raise ValueError(f"it changes a {type(unbuilt).__name__}")
                built = unbuilt.build(state)
                self.memo |= dict.fromkeys(unbuilt.remembered_as, built)
                stack.append(built)
            case _:
                raise ValueError(f"{name} is no operation of plain data")

    def remember(self, key: int) -> None:
        self.memo[key] = self.top()
        if isinstance(self.top(), _Unbuilt):
            self.top().remembered_as.append(key)

    def top(self) -> Any:
        if not self.stack:
            raise ValueError("it takes more than there is")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def last(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("it takes more than there is")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def extend(self, items: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, list):
            raise ValueError(f"it appends to a {type(target).__name__}")
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, dict):
            raise ValueError(f"it sets an item of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Of a deep tuple, the hash alone would end the process; of one that doubles, it would never end.
            if not isinstance(key, (int, str)):
                raise ValueError(f"it has a {type(key).__name__} as a key")
            target[key] = value


# -- what the names in a file stand for ----------------------------------------------------------


def _known(name: str) -> _Name:
    if name not in _CALLS and name not in _MENTIONED and name not in _MATRICES:
        raise ValueError(f"it names {name}")
    return _Name(name)


def _new_array(kind: Any, shape: Any, code: Any) -> _Unbuilt:
    return _Unbuilt(_array)


def _array(state: Any) -> NDArray[Any]:
    shape, dtype, in_columns, content = state[-4:]  # a version before it, since 2006
    return _array_of(content, dtype, shape, "F" if in_columns else "C")


def _array_of(content: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    content = content.encode("latin1") if isinstance(content, str) else content
    if not (isinstance(content, (bytes, bytearray)) and isinstance(dtype, np.dtype)):
        raise ValueError("an array that is not of numbers")
    return np.ndarray(shape, dtype, content, order=order)


def _new_dtype(code: Any, align: Any = False, copy: Any = False) -> _Unbuilt:
    if not (isinstance(code, str) and _NUMBERS.fullmatch(code)):
        objects = isinstance(code, str) and code.startswith("O")
        raise ValueError(f"an array of {'objects' if objects else 'what is no number'}")
    dtype = np.dtype(code)

    def in_order(state: Any) -> np.dtype[Any]:
        if any(part is not None for part in state[2:5]):
            raise ValueError("an array of records")
        return dtype.newbyteorder(state[1])

    return _Unbuilt(in_order)


def _number(dtype: Any, content: Any) -> Any:
    return _array_of(content, dtype, (), "C").item()


def _new_matrix(kind: Any, *rest: Any) -> _Unbuilt:
    if not (isinstance(kind, _Name) and kind in _MATRICES):
        raise ValueError("an object that is no matrix")
    return _Unbuilt(_matrix)


def _matrix(state: Any) -> sparse.csr_array:
    data, indices, indptr = (state.get(name) for name in ("data", "indices", "indptr"))
    if not all(isinstance(part, np.ndarray) for part in (data, indices, indptr)):
        raise ValueError("a matrix that is not of arrays")
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        raise ValueError("a matrix whose indices are no integers")
    matrix = sparse.csr_array((data, indices, indptr), shape=state.get("_shape", state.get("shape")))
    matrix.check_format(full_check=True)
    return matrix


def _encoded(text: Any, encoding: Any) -> bytes:
    if not (isinstance(text, str) and encoding in ("latin1", "latin-1")):
        raise ValueError("bytes in another encoding than latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _new_dict(of: Any = None) -> dict[Any, Any]:
    return {}


_CALLS: dict[str, Callable[..., Any]] = {
    "_codecs.encode": _encoded,  # how Python 3 writes bytes for Python 2
    "__builtin__.bytes": _no_bytes,
    "collections.defaultdict": _new_dict,
    "copy_reg._reconstructor": _new_matrix,
    "copyreg._reconstructor": _new_matrix,
    "numpy.dtype": _new_dtype,
    **{f"numpy.{core}.multiarray._reconstruct": _new_array for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _number for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _array_of for core in ("core", "_core")},
}
_MATRICES = {
    f"scipy.sparse.{file}.{kind}" for file in ("csr", "_csr") for kind in ("csr_matrix", "csr_array")
}
_MENTIONED = {
    "numpy.ndarray",
    *(f"{module}.{name}" for module in ("__builtin__", "builtins") for name in ("list", "object")),
}
