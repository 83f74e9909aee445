"""Random values as hashes: looked up by an address, not drawn one after the other.

A value is a hash of its address, such as (seed, epoch, cluster): it depends neither on what was drawn
before nor on the number of threads, and is the same on every machine, because only integer arithmetic
and correctly rounded floating point take part.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def uniform(*address: ArrayLike) -> NDArray[np.float64]:
    """Numbers between 0 and 1, neither of them, at these addresses.

    >>> bool(uniform(0, 1, [5, 6, 7])[1] == uniform(0, 1, 6)[0])
    True
    """
    found: NDArray[np.float64] = ((bits(*address) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return found


def _splitmix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of the splitmix64 generator: a bijection that flips every output bit half the time."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def bits(*address: ArrayLike) -> NDArray[np.uint64]:
    """64 uniform bits for an address of integers, which broadcast against each other.

    >>> bits(0, 1, [5, 6, 7]).shape
    (3,)
    >>> bool(bits(0, 1, [5, 6, 7])[1] == bits(0, 1, 6)[0])
    True
    """
    return continued(0, *address)


def continued(key: ArrayLike, *address: ArrayLike) -> NDArray[np.uint64]:
    """64 uniform bits for a longer address, of which `key` are the bits of the beginning.

    >>> bool(continued(bits(0, 1), 6) == bits(0, 1, 6))
    True
    """
    state = np.atleast_1d(np.asarray(key, dtype=np.uint64))
    for part in address:
        word = np.atleast_1d(np.asarray(part)).astype(np.uint64)
        state = _splitmix((state ^ word) + _GOLDEN)
    return state


def below(bound: ArrayLike, *address: ArrayLike) -> NDArray[np.int64]:
    """Integers in 0 .. bound - 1; their bias, bound / 2**64, is out of sight for any graph.

    >>> int(below(10, 3, 1)[0]) in range(10)
    True
    """
    return (bits(*address) % np.asarray(bound, dtype=np.uint64)).astype(np.int64)


def permutation(size: int, *address: ArrayLike) -> NDArray[np.int64]:
    """A random order of 0 .. size - 1.

    >>> sorted(permutation(4, 0, 7).tolist())
    [0, 1, 2, 3]
    """
    key, keys = bits(*address), np.empty(size, np.uint64)
    for start in range(0, size, 1 << 20):
        keys[start : start + (1 << 20)] = continued(key, np.arange(start, min(start + (1 << 20), size)))
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def roughly_normal(*address: ArrayLike) -> NDArray[np.float32]:
    """Bell-shaped values of mean 0 and variance 1 (the sum of four uniform 16-bit integers).

    >>> abs(float(roughly_normal(0, range(10_000)).mean())) < 0.05
    True
    """
    h = bits(*address)
    mask = np.uint64(0xFFFF)
    total = (h & mask) + (h >> np.uint64(48))
    total += (h >> np.uint64(16)) & mask
    total += (h >> np.uint64(32)) & mask
    centred = total.astype(np.float32) - np.float32(2 * 0xFFFF)
    return centred / np.float32((4 * (2.0**32 - 1) / 12) ** 0.5)


def columns(key: NDArray[np.uint64], width: int) -> NDArray[np.uint16]:
    """(keys, width) 16 uniform bits per key and column, by two rounds of a 32-bit mixer.

    A word of 32 bits serves two columns: one of the first half of them, and one of the second.

    >>> columns(bits(0, [5, 6]), 3).shape
    (2, 3)
    """
    z: NDArray[np.uint32]
    words = (width + 1) // 2
    low, high = key.astype(np.uint32)[:, None], (key >> np.uint64(32)).astype(np.uint32)[:, None]
    z = low ^ (np.arange(words, dtype=np.uint32) * np.uint32(0x9E3779B9))
    z = (z ^ (z >> np.uint32(16))) * np.uint32(0x7FEB352D)
    z = (z ^ (z >> np.uint32(15))) * np.uint32(0x846CA68B)
    z = (z ^ (z >> np.uint32(16))) + high
    z = (z ^ (z >> np.uint32(16))) * np.uint32(0x7FEB352D)
    z = (z ^ (z >> np.uint32(15))) * np.uint32(0x846CA68B)
    z ^= z >> np.uint32(16)
    halves = np.concatenate([z & np.uint32(0xFFFF), z >> np.uint32(16)], axis=1)
    return halves[:, :width].astype(np.uint16)
