"""Precision: how many bits numbers have, where they are computed and where they are remembered."""

from __future__ import annotations

import warnings
from typing import Literal

import torch

from lmc import checks
from lmc.errors import ArgumentError

Precision = Literal["full", "half", "int8", "bf16"]
"""`"full"` computes and remembers in the features' type. `"half"` remembers in float16, `"int8"` in int8 with
a scale for each row. `"bf16"` has messages, dense products and histories in bfloat16, with sums, statistics,
losses and parameters in float32: values that were computed in bfloat16 are remembered as they are."""


def computed_type(precision: Precision, full: torch.dtype) -> torch.dtype:
    """Of messages and dense products, where features are of the type `full`.

    >>> computed_type("bf16", torch.float32), computed_type("half", torch.float32)
    (torch.bfloat16, torch.float32)
    """
    return torch.bfloat16 if precision == "bf16" else full


def remembered_type(precision: Precision, full: torch.dtype) -> torch.dtype:
    """Of histories, where features are of the type `full`.

    >>> remembered_type("bf16", torch.float32), remembered_type("half", torch.float32)
    (torch.bfloat16, torch.float16)
    """
    of_few_bits = {"half": torch.float16, "int8": torch.int8, "bf16": torch.bfloat16}
    return of_few_bits.get(precision, full)


def check_precision(precision: Precision, full: torch.dtype) -> None:
    """Raise ArgumentError unless it is one for features of the type `full`."""
    checks.one_of("precision", precision, Precision)
    if precision == "bf16" and full != torch.float32:
        rule = "must be float32 for that, which graph.to(torch.float32) makes them"
        raise ArgumentError(f"precision='bf16': features are of {full}; they {rule}")


def warn_if_slow(precision: Precision) -> None:
    """Say so where the processor gains nothing by it but memory."""
    if precision == "bf16" and not multiplies_bf16_faster():
        warnings.warn(
            "precision='bf16': this processor multiplies it no faster than float32; it saves memory alone",
            stacklevel=4,
        )


def multiplies_bf16_faster() -> bool:
    """Whether this processor has more products of bfloat16 in a second than of float32.

    Intel's have that by AMX alone: their `avx512_bf16`, unlike AMD's, is as fast as float32.
    """
    able = torch.cpu.get_capabilities()
    return any(
        (
            able.get("amx_bf16"),
            able.get("bf16"),
            able.get("avx512_bf16") and "Intel" not in able.get("cpu_name", ""),
        )
    )
