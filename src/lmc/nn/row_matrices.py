"""Matrices with a row for each node: in memory, in blocks of columns, or on disk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lmc.scratch import ScratchMatrix
from lmc.sparse import CSR


@dataclass(frozen=True)
class RowMatrix:
    """(nodes, width) in blocks of columns, from left to right."""

    blocks: list[Tensor]

    @staticmethod
    def like(rows: Tensor, num_nodes: int, columns: int) -> RowMatrix:
        """Room for as wide rows, in blocks of so many columns."""
        return RowMatrix([rows.new_empty(num_nodes, some.shape[1]) for some in _split(rows, columns)])

    def fits(self, rows: Tensor, columns: int) -> bool:
        """Whether it is such a room."""
        widths = [block.shape[1] for block in self.blocks]
        same_type = self.blocks[0].dtype == rows.dtype
        return same_type and widths == [some.shape[1] for some in _split(rows, columns)]

    def __getitem__(self, part: slice) -> Tensor:
        rows = [block[part] for block in self.blocks]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)

    def __setitem__(self, part: slice, rows: Tensor) -> None:
        for block, some in zip(self.blocks, _split(rows, self.blocks[0].shape[1]), strict=True):
            block[part] = some

    def put(self, number: int, part: slice, rows: Tensor) -> None:
        """Write consecutive rows of one block."""
        self.blocks[number][part] = rows.to(self.blocks[number].device)

    @property
    def whole(self) -> Tensor:
        """(nodes, width) in one piece."""
        (block,) = self.blocks
        return block

    def replace_by_sums(self, adjacency: CSR, parts: list[slice]) -> None:
        """Multiply by a matrix from the left, block by block; rows outside of these parts are of no use."""
        run = slice(parts[0].start, parts[-1].stop)
        for place, block in enumerate(self.blocks):
            sums = adjacency.rows(run) @ block
            if len(sums) < len(block):
                whole = sums.new_zeros(len(block), sums.shape[1])
                whole[run] = sums
                sums = whole
            self.blocks[place] = sums


@dataclass(frozen=True)
class StoredRowMatrix(RowMatrix):
    """The same on disk, in one block."""

    file: ScratchMatrix

    @staticmethod
    def of(file: ScratchMatrix) -> StoredRowMatrix:
        """What is read and written there."""
        return StoredRowMatrix([file.values], file)

    def __setitem__(self, part: slice, rows: Tensor) -> None:
        self.file[part] = rows

    def put(self, number: int, part: slice, rows: Tensor) -> None:
        """Write consecutive rows of the block."""
        self.file[part] = rows


def _split(rows: Tensor, columns: int) -> list[Tensor]:
    width = rows.shape[1]
    return [rows[:, first : first + columns] for first in range(0, max(1, width), max(1, columns))]
