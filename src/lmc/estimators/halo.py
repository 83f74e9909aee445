"""Halo policies: what replaces the values and derivatives of nodes outside of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from lmc.estimators.low_rank import LowRank

OfRows = Callable[[Tensor | None], Tensor]
"""From the numbers of some rows, or None for all, to (rows, width) values."""


def some_of(values: Tensor, rows: Tensor | None) -> Tensor:
    """(rows, width) of those rows, None for all."""
    return values if rows is None else values[rows]


class HaloPolicy:
    """What replaces the halo's values at one step, and where the batch's values go.

    An estimator makes a new one for each step. This one drops all that is outside: it is also the policy of a
    batch without a halo. Layers count from 1 to L.

    Args:
        rows: of the halo.

    Attributes:
        incomplete_from: the neighbours from which `embeddings` wants incomplete up-to-date values: those in
            `"reach"` (batch and halo), those in the `"batch"`, or None where it wants none.
        exact_first: whether it wants the first layer's values from all neighbours where they are known: where
            messages are the features themselves. They are then called incomplete, too.
        reads_losses: whether `auxiliaries` wants the derivatives of the halo's own losses, at Ĥᴸ.
        revisits: whether derivatives at halo rows are asked for; if not, their memory is given back early.
        follows_back: whether they are asked for by `back_to_batch`, which is at every layer.
    """

    incomplete_from: Literal["reach", "batch"] | None = None
    exact_first: bool = False
    reads_losses: bool = False
    revisits: bool = False
    follows_back: bool = True

    def __init__(self, rows: int = 0) -> None:
        self._rows = rows

    # -- sums: what halo rows receive, and what comes back to them ----------------------------------

    def received(self, layer: int, incomplete: OfRows) -> Tensor:
        """(halo, width) what the halo makes of its messages before the layer's `update`, of which H̃ˡ is made.

        Args:
            layer: l.
            incomplete: computes it, for some halo rows, from the neighbours that `incomplete_from` names.
        """
        return incomplete(None)

    def returned(self, layer: int, incomplete: OfRows) -> Tensor:
        """(halo, width) the derivatives that come back to the halo's messages, of which Ṽˡ is made.

        Args:
            layer: l, the boundary before the layer they come back through.
            incomplete: computes them, for some halo rows, from the neighbours in reach.
        """
        return incomplete(None)

    def keep_received(self, layer: int, received: Tensor, from_batch: Callable[[], Tensor]) -> None:
        """The place to keep what the batch has received, (batch, width).

        Args:
            layer: l.
            received: all of it.
            from_batch: computes it for the rows `batch.telling` from their neighbours in the batch alone.
        """

    def keep_returned(self, layer: int, returned: Tensor, from_batch: Callable[[], Tensor]) -> None:
        """The same of the derivatives that have come back to the batch's messages, of which V̄ˡ is made."""

    def from_batch(self, layer: int) -> LowRank | None:
        """What batch rows receive from outside, beside the halo, as a linear function of what they send.

        Derivatives flow back through it. None for nothing.

        Args:
            layer: l, whose aggregation is linear.
        """
        return None

    # -- values: at the boundaries between layers ---------------------------------------------------

    def embeddings(self, layer: int, z: Tensor, incomplete: Tensor | None) -> Tensor:
        """(halo, width) Ĥˡ.

        Args:
            layer: l.
            z: (batch, width) H̄ˡ of the batch.
            incomplete: (halo, width) H̃ˡ, where `incomplete_from` asks for it.
        """
        return z.new_zeros(self._rows, z.shape[1])

    def auxiliaries(self, layer: int, incomplete: Callable[[], Tensor]) -> Tensor | None:
        """(halo, width) V̂ˡ, or None for zero.

        Args:
            layer: l.
            incomplete: computes (halo, width) Ṽˡ; for l = L, the derivatives of the halo's own losses.
        """
        return None

    def derivative_at_messages(self, layer: int) -> Tensor | None:
        """(batch, width) the derivative of all losses at what batch rows send, where it is known in full.

        Args:
            layer: l.
        """
        return None

    def back_to_batch(self, layer: int, derivative: Callable[[], Tensor]) -> Tensor | None:
        """(batch, width) what reaches H̄ˡ through Ĥˡ, where Ĥˡ is a function of H̄ˡ; None where it is not.

        Args:
            layer: l.
            derivative: computes (halo, width) the derivative of the batch's losses at Ĥˡ.
        """
        return None

    def keep_embeddings(self, layer: int, z: Tensor, z_halo: Tensor | None) -> None:
        """The place to keep H̄ˡ (batch, width) and Ĥˡ (halo, width), None if nothing asked for it."""

    def keep_auxiliaries(self, layer: int, v: Tensor) -> None:
        """The place to keep the batch's V̄ˡ (batch, width)."""
