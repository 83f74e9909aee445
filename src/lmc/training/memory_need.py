"""How much memory training needs, before it is tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from lmc import checks
from lmc.errors import ArgumentError

INDEX_SIZE = 4
"""Bytes of a column in a block, as long as the graph has less than 2^31 edges."""
KEPT = 2.25
"""Numbers kept of a row for each column of a layer: z, the sums of messages, a byte for what got through."""


class Need(NamedTuple):
    """Bytes, besides the graph, its normalised adjacency and its features."""

    histories: int
    """Kept from step to step, for every node that may be outside of a batch."""
    step: int
    """The most that one step holds at a time."""

    @property
    def total(self) -> int:
        """Both together."""
        return self.histories + self.step


def need(
    widths: Sequence[int],
    features: int,
    batch_nodes: int,
    halo_nodes: int,
    num_nodes: int,
    itemsize: int = 4,
    kept: int | None = None,
    messages: int = 0,
    history_itemsize: int | None = None,
    remembered_nodes: int | None = None,
    computes_halo: bool = False,
    ranks: Sequence[int] = (),
) -> Need:
    """An estimate of what a layer-wise step of a GCN needs, and of its histories.

    Numbers per row, with the boundary widths w_1 .. w_L. Kept from the forward to the backward pass:

    - `features`: what the first layer receives;
    - 2.25 w_l for every l < L: the boundary value z, the received messages, and a byte for what got through
      the activation between them.

    On top of it comes the largest of these moments, for every two neighbouring boundaries, w before w':

    - forward, before anything is received: batch rows have the next message, halo rows their z and their
      message, 2 w;
    - forward, when it is received: batch rows have message, sum and the boundary value made of it;
    - at the end, 4 w_L: the last boundary value, the rows of it with a label, their log-probabilities, and
      the derivative of the losses; the same of the halo where its own losses count;
    - backward, derivatives come back: batch rows have the derivative and its sum over the neighbours (2 w'),
      halo rows the derivative (w'); then batch rows that sum and the derivative at the message, w' + w;
    - backward, the halo of the boundary before is fetched: batch and halo rows have its derivative, w.

    Entries of the block count twice, since the next batch is built meanwhile.

    Where halo rows are computed, as by default, they keep as much as batch rows of each layer from the third
    on until derivatives have come back; and while the sums of a layer are mixed, they have its values and
    messages, the historical sums, and three of those that are mixed, 6 w.

    Measured peaks of a GCN of widths [256, 256, 40] on 128 features in float32 (ogbn-arxiv, the second epoch
    of a process), and estimates, in MB: 54 and 53 for 2,180 nodes and 20,082 halo; 197 and 174 for 21,200 and
    27,000; 604 and 616 for 85,000 and 39,000; 1,124 and 1,134 for the whole graph of 169,343.

    With a halo that is computed: 113 and 147 for 2,180 nodes and 20,082 halo; 234 and 307 for 10,585 and
    36,596; 319 and 373 for 21,436 and 36,200; 753 and 820 for 84,720 and 41,384.

    Where a linear map stands in for the halo (`TOP`), no halo row is read: a step is one on the batch alone,
    with the two factors of each map, and those of the next batch. Measured and estimated in MB: 183 and
    180 for 21,168 nodes and two maps of rank 64; 288 and 310 of rank 256; 700 and 721 for 84,672 nodes and
    rank 64, where GAS has 604.

    Not in it: an encoder or a head, input dropout, GCNII's second input, and the optimiser.

    Args:
        widths: of the boundaries z¹ .. zᴸ, as `GCN.widths` without the prediction at the end.
        features: how many features a node has.
        batch_nodes: nodes in the batch.
        halo_nodes: their neighbours outside.
        num_nodes: nodes in the graph.
        itemsize: bytes of a number in the computation.
        kept: numbers that histories have of a node, `remembered(...).width` of an estimator. None for those
            of the paper's LMC and a GCN: embeddings 1 .. L, auxiliaries 2 .. L - 1.
        messages: entries of the batch's blocks.
        history_itemsize: bytes of a number in the histories; None for `itemsize`.
        remembered_nodes: nodes that histories are kept of; None for all.
        computes_halo: whether halo rows are computed, not only fetched.
        ranks: of the maps that stand in for the halo, where it is not read; none where it is.

    >>> need([256, 256, 40], 128, batch_nodes=2180, halo_nodes=20082, num_nodes=169343)
    Need(histories=547316576, step=52289536)
    """
    _check_counts(widths, features, batch_nodes, halo_nodes, num_nodes, messages)
    per_node = sum(widths) + sum(widths[1:-1]) if kept is None else checks.whole_number("kept", kept, 0)
    nodes = checks.whole_number(
        "remembered_nodes", num_nodes if remembered_nodes is None else remembered_nodes, 0, num_nodes
    )
    moments = chain(_moments(widths, features), _halo_moments(widths, features) if computes_halo else ())
    halo_rows = 0 if ranks else halo_nodes
    dense = math.ceil(max(batch * batch_nodes + halo * halo_rows for batch, halo in moments))
    dense += 2 * 2 * sum(ranks) * batch_nodes  # left and right, of this batch and of the next
    blocks = 2 * messages * (INDEX_SIZE + itemsize)
    return Need(
        histories=per_node * nodes * (history_itemsize or itemsize),
        step=dense * itemsize + blocks,
    )


def _moments(widths: Sequence[int], features: int) -> Iterator[tuple[float, float]]:
    """Numbers per batch row and per halo row, at each moment that may be the peak."""
    *hidden, last = widths
    for place, (width, after) in enumerate(pairwise(widths)):
        kept = features + KEPT * sum(hidden[:place])
        yield kept + KEPT * width, 2 * width
        yield kept + (1 + KEPT) * width + after, width
    yield features + KEPT * sum(hidden) + 4 * last, 4 * last
    for place, (before, width) in enumerate(pairwise(widths), start=1):
        kept = features + KEPT * sum(hidden[:place])
        yield kept + 2 * width, width
        yield kept + 2 * width + before, 0
        yield kept + before, before


def _halo_moments(widths: Sequence[int], features: int) -> Iterator[tuple[float, float]]:
    """The same, at moments in which halo rows are computed."""
    hidden = widths[:-1]
    for place, width in enumerate(hidden):
        yield (
            features + KEPT * sum(hidden[:place]) + (1 + KEPT) * width,
            KEPT * sum(hidden[1:place]) + 6 * width,
        )
    for place, (before, width) in enumerate(pairwise(widths), start=1):
        kept, kept_of_halo = features + KEPT * sum(hidden[:place]), KEPT * sum(hidden[1:place])
        yield kept + 2 * (width + before), kept_of_halo + 2 * width + before


def _check_counts(
    widths: Sequence[int], features: int, batch_nodes: int, halo_nodes: int, num_nodes: int, messages: int
) -> None:
    if len(widths) == 0:
        raise ArgumentError("widths=[]: must be one width per layer, one or more")
    for layer, width in enumerate(widths):
        checks.whole_number(f"widths[{layer}]", width, 1)
    checks.whole_number("features", features, 0)
    checks.whole_number("num_nodes", num_nodes, 1)
    checks.whole_number("batch_nodes", batch_nodes, 1, num_nodes)
    checks.whole_number("halo_nodes", halo_nodes, 0, num_nodes - batch_nodes)
    checks.whole_number("messages", messages, 0)
