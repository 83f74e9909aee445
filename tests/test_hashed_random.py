import numpy as np

from lmc import hashed_random


def test_bits_are_the_same_on_every_machine():
    # Computed once with Python integers, from the definition of splitmix64's finaliser.
    def finalise(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        return z ^ (z >> 31)

    expected = 0
    for word in (7, 0, 123456789):
        expected = finalise(((expected ^ word) + 0x9E3779B97F4A7C15) % 2**64)
    assert int(hashed_random.bits(7, 0, 123456789)[0]) == expected


def test_an_address_is_not_the_sum_of_its_words():
    words = [(a, b) for a in range(40) for b in range(40)]
    values = {int(hashed_random.bits(*word)[0]) for word in words}
    assert len(values) == len(words)


def test_every_bit_is_fair_and_neighbouring_addresses_are_independent():
    n = 1 << 16
    values = hashed_random.bits(3, np.arange(n))
    for shift in range(64):
        bit = ((values >> np.uint64(shift)) & np.uint64(1)).astype(float)
        assert abs(bit.mean() - 0.5) < 5 * 0.5 / n**0.5
        assert abs((bit[1:] == bit[:-1]).mean() - 0.5) < 5 * 0.5 / n**0.5


def test_below_covers_its_range_evenly():
    counts = np.bincount(hashed_random.below(7, 1, np.arange(70_000)), minlength=7)
    assert counts.shape == (7,)
    assert np.all(np.abs(counts - 10_000) < 5 * 100)


def test_permutations_differ_by_address():
    first, second = hashed_random.permutation(100, 0, 1), hashed_random.permutation(100, 0, 2)
    assert sorted(first) == sorted(second) == list(range(100))
    assert not np.array_equal(first, second)


def test_roughly_normal_values_have_mean_zero_and_variance_one():
    values = hashed_random.roughly_normal(0, np.arange(100_000)).astype(float)
    assert abs(values.mean()) < 0.02
    assert abs(values.var() - 1) < 0.02
