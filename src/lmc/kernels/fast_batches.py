"""Which nodes a batch needs, and its block: loops that follow a batch, not the graph.

A set of nodes is looked up in a hash table where the batch is a small part of the graph, so that memory
follows the batch, and otherwise in an array with a place for every node of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmc.kernels.compilation import loop

SMALL_PART = 16  # a batch is small if this many times its nodes are fewer than the graph's


@loop
def _slot(keys: Any, node: Any) -> Any:
    """Where a node is, or would be, in a table of open addresses whose size is a power of two."""
    mask = np.uint64(len(keys) - 1)
    slot = ((np.uint64(node) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
    while keys[slot] != node and keys[slot] != -1:
        slot = (slot + np.uint64(1)) & mask
    return slot


@loop
def _table(members: Any, capacity: Any) -> Any:
    size = 1024
    while size < capacity:
        size *= 2
    keys, places = np.full(size, -1, members.dtype), np.empty(size, members.dtype)
    for place, node in enumerate(members):
        slot = _slot(keys, node)
        keys[slot], places[slot] = node, place
    return keys, places


@loop
def _members_by_table(indptr: Any, indices: Any, nodes: Any) -> Any:
    count = len(nodes)
    keys, _ = _table(nodes, 4 * count)
    found = np.empty(len(keys), nodes.dtype)
    found[:count] = nodes
    for node in nodes:
        for e in range(indptr[node], indptr[node + 1]):
            slot = _slot(keys, indices[e])
            if keys[slot] == -1:
                keys[slot] = found[count] = indices[e]
                count += 1
                if 2 * count > len(keys):  # half full: twice the room
                    keys, _ = _table(found[:count], 2 * len(keys))
                    larger = np.empty(len(keys), nodes.dtype)
                    larger[:count] = found[:count]
                    found = larger
    return found[:count].copy()


@loop
def _members_by_marks(indptr: Any, indices: Any, nodes: Any) -> Any:
    count, num_nodes = len(nodes), len(indptr) - 1
    marked, found = np.zeros(num_nodes, np.bool_), np.empty(num_nodes, nodes.dtype)
    marked[nodes] = True
    found[:count] = nodes
    for node in nodes:
        for e in range(indptr[node], indptr[node + 1]):
            if not marked[indices[e]]:
                marked[indices[e]] = True
                found[count] = indices[e]
                count += 1
    return found[:count].copy()


def members(indptr: Tensor, indices: Tensor, nodes: Tensor) -> Tensor:
    """(nodes + halo,) int64: `nodes`, then their neighbours outside, in the order of first appearance."""
    small = SMALL_PART * len(nodes) < len(indptr) - 1
    find = _members_by_table if small else _members_by_marks
    return torch.from_numpy(find(indptr.numpy(), indices.numpy(), nodes.numpy()))


@loop
def _block_by_table(
    indptr: Any, indices: Any, values: Any, rows: Any, members: Any, block: Any, weights: Any
) -> Any:
    keys, places = _table(members, 2 * len(members))
    offsets = np.zeros(len(rows) + 1, indptr.dtype)
    count = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            slot = _slot(keys, indices[e])
            if keys[slot] != -1:
                block[count] = places[slot]
                if len(values):
                    weights[count] = values[e]
                count += 1
        offsets[i + 1] = count
    return offsets


@loop
def _block_by_place(
    indptr: Any, indices: Any, values: Any, rows: Any, members: Any, block: Any, weights: Any
) -> Any:
    places = np.full(len(indptr) - 1, -1, indices.dtype)
    for place in range(len(members)):
        places[members[place]] = place
    offsets = np.zeros(len(rows) + 1, indptr.dtype)
    count = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            place = places[indices[e]]
            if place != -1:
                block[count] = place
                if len(values):
                    weights[count] = values[e]
                count += 1
        offsets[i + 1] = count
    return offsets


def localize(
    indptr: Tensor, indices: Tensor, values: Tensor | None, rows: Tensor, members: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """These rows of a CSR matrix, with the columns that are members, under their places among them."""
    starts, columns, wanted, known = (t.numpy() for t in (indptr, indices, rows, members))
    given = np.empty(0, np.float32) if values is None else values.numpy()
    total = int((starts[wanted + 1] - starts[wanted]).sum())
    block, weights = np.empty(total, columns.dtype), np.empty(total if len(given) else 0, given.dtype)
    small = SMALL_PART * len(known) < len(starts) - 1
    build = _block_by_table if small else _block_by_place
    offsets = build(starts, columns, given, wanted, known, block, weights)
    found = int(offsets[-1])
    if found < total:
        block, weights = block[:found].copy(), weights[:found].copy()
    kept = None if values is None else torch.from_numpy(weights)
    return torch.from_numpy(offsets), torch.from_numpy(block), kept


@loop
def swap_between_groups(order: Any, size: Any, described: Any, steps: Any) -> None:
    """Swap items of different groups while the squared deviations of the groups' sums from their mean fall.

    Args:
        order: (items,) int64, changed in place; a group is `size` consecutive ones.
        size: of a group.
        described: (any, columns) float64, what is summed up, by item.
        steps: (sweeps, tries) how far behind an item those are that it may be swapped with; of these the best
            is taken.
    """
    count, columns = len(order), described.shape[1]
    # A group's deviation differs from its sum by the same vector for all groups, which cancels out below.
    sums = np.zeros((count // size, columns))
    for place in range(count):
        for c in range(columns):
            sums[place // size, c] += described[order[place], c]
    for sweep in range(len(steps)):
        swaps = 0
        for one in range(count):
            best, least = -1, -1e-9
            for t in range(steps.shape[1]):
                other = (one + steps[sweep, t]) % count
                if other // size != one // size:
                    # d moves from the one group to the other: |g - d|^2 + |h + d|^2 - |g|^2 - |h|^2, halved
                    change = 0.0
                    for c in range(columns):
                        d = described[order[one], c] - described[order[other], c]
                        change += d * (sums[other // size, c] - sums[one // size, c] + d)
                    if change < least:
                        best, least = other, change
            if best >= 0:
                for c in range(columns):
                    d = described[order[one], c] - described[order[best], c]
                    sums[one // size, c] -= d
                    sums[best // size, c] += d
                order[one], order[best] = order[best], order[one]
                swaps += 1
        if swaps == 0:
            return
