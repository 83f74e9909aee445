"""Splits in the forms that people have them in, as one mask each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmc import checks, hashed_random
from lmc.data import rules
from lmc.errors import ArgumentError, GraphError

Role = Literal["train", "val", "test"]
MASKS = ("train_mask", "val_mask", "test_mask")
ROLE_OF: dict[str, Role] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
}
"""What people call the parts of a split."""


def chosen(masks: dict[str, Tensor], split: int | None) -> dict[str, Tensor]:
    """One split: of (nodes, k) masks the column `split`; None takes the first, with a warning.

    >>> chosen({"train_mask": torch.tensor([[True, False], [False, True]])}, split=1)
    {'train_mask': tensor([False,  True])}
    """
    several = {name: mask.shape[1] for name, mask in masks.items() if mask.ndim == 2}
    column = 0 if split is None else checks.whole_number("split", split, 0)
    for name, number in several.items():
        if column >= number:
            raise ArgumentError(f"split={column}: {name} has {number} splits, from 0")
    if column > 0 and not several:
        raise ArgumentError(f"split={column}: the masks are of one split")
    if split is None and max(several.values(), default=1) > 1:
        name = next(iter(several))
        warnings.warn(
            f"{name} holds {several[name]} splits: the first is taken; split= chooses another", stacklevel=5
        )
    return {name: mask[:, column] if name in several else mask for name, mask in masks.items()}


def masks_of_indices(
    indices: Mapping[str, Any], num_nodes: int, name: str = "split_idx"
) -> dict[str, Tensor]:
    """A mask per part of the split, from the node numbers of each, such as OGB's.

    >>> masks_of_indices({"train": [2], "valid": [0]}, 3)["val_mask"]
    tensor([ True, False, False])
    """
    if not isinstance(indices, Mapping):
        raise GraphError(f"{name}: {type(indices).__name__} is not a mapping from train, val, test to nodes")
    masks = {mask: torch.zeros(num_nodes, dtype=torch.bool) for mask in MASKS}
    for part, nodes in indices.items():
        if part not in ROLE_OF:
            raise GraphError(f"{name}[{part!r}]: must be one of {', '.join(get_args(Role))}")
        place = f"{name}[{part!r}]"
        masks[f"{ROLE_OF[part]}_mask"][
            rules.node_ids(place, rules.tensor(place, nodes), num_nodes).long()
        ] = True
    return masks


def random_split(num_nodes: int) -> dict[str, NDArray[np.bool_]]:
    """Of the nodes 60 % train, 20 % validate and 20 % test: at random, and always the same ones.

    >>> {name: int(mask.sum()) for name, mask in random_split(10).items()}
    {'train_mask': 6, 'val_mask': 2, 'test_mask': 2}
    """
    turn = hashed_random.permutation(num_nodes, 0)
    train, val = -(-num_nodes * 6 // 10), -(-num_nodes * 8 // 10)
    return dict(zip(MASKS, (turn < train, (turn >= train) & (turn < val), turn >= val), strict=True))
