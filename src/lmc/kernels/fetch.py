"""A hint to the processor: entries that a loop will read soon."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64  # bytes that come together


@intrinsic
def fetch(typing: Any, array: Any, row: Any, column: Any) -> Any:
    """In a loop: have the entry of a matrix, and what lies in its line, come into the cache."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind, *places = signature.args
        found = context.make_array(kind)(context, builder, given[0])
        where = [
            context.cast(builder, place, of, types.intp) for place, of in zip(given[1:], places, strict=True)
        ]
        entry = cgutils.get_item_pointer(context, builder, kind, found, where)  # type: ignore[no-untyped-call]
        address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [address, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [address], shape)
        to_be_read, into_all_caches, data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.bitcast(entry, address), to_be_read, into_all_caches, data])
        return context.get_dummy_value()

    return types.void(array, row, column), generate
