"""Dropout whose masks depend on what is dropped, not on what was drawn before."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch import Tensor, nn

from lmc import checks, kernels
from lmc.errors import ArgumentError
from lmc.nn.module_context import drops, evaluation_mode
from lmc.nn.node_wise import NodeWise
from lmc.nn.rows import Rows


class Dropout(NodeWise):
    """Dropout with masks that are a hash of (seed, step, place, node, column).

    Args:
        of: the probability to be dropped; or a module whose probability and mode this one shares.
    """

    def __init__(self, of: float | nn.Dropout) -> None:
        super().__init__()
        p = of.p if isinstance(of, nn.Dropout) else checks.real("dropout", of)
        if not 0 <= p < 1:
            raise ArgumentError(f"dropout={p}: must be in [0, 1)")
        self.of = of if isinstance(of, nn.Dropout) else nn.Dropout(p)

    @property
    def p(self) -> float:
        """The probability to be dropped."""
        return self.of.p

    @property
    def active(self) -> bool:
        """Whether anything is dropped at all."""
        return self.of.training and self.p > 0

    @property
    def is_identity(self) -> bool:
        """Whether nothing is dropped."""
        return not self.active

    def forward(self, z: Tensor, rows: Rows) -> Tensor:
        """(rows, width) to (rows, width)."""
        if not self.active:
            return z
        return z * kernels.plain.kept(rows.keys(), z.shape[1], self.p, z.device) * kernels.plain.gain(self.p)


def without_dropout(model: nn.Module) -> AbstractContextManager[None]:
    """A pass in this context drops nothing."""
    return evaluation_mode(model, drops)
