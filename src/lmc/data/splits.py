"""A split for graphs that come without one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lmc import hashed_random
from lmc.data.pyg import MASKS


def random_split(num_nodes: int) -> dict[str, NDArray[np.bool_]]:
    """Of the nodes 60 % train, 20 % validate and 20 % test: at random, and always the same ones.

    >>> {name: int(mask.sum()) for name, mask in random_split(10).items()}
    {'train_mask': 6, 'val_mask': 2, 'test_mask': 2}
    """
    turn = hashed_random.permutation(num_nodes, 0)
    train, val = -(-num_nodes * 6 // 10), -(-num_nodes * 8 // 10)
    return dict(zip(MASKS, (turn < train, (turn >= train) & (turn < val), turn >= val), strict=True))
